"""Where the elements of a value lie in another one: views, as numpy has them.

What only moves an index (axes exchanged, merged, split or cut) need not be computed where a
function in C++ reads elements by their distances.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from relax2xla.ir import Call, Expr, Op, Tuple, TupleGetItem
from relax2xla.ir.op import call_attrs, constant_value
from relax2xla.transform.core.values import tensor_of


@dataclass(frozen=True, slots=True)
class Strided:
    """An element at ``index`` is at ``offset + sum(index * strides)`` of ``base``, row by row."""

    base: Expr
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0

    @property
    def size(self) -> int:
        """Elements of the base."""
        tensor = tensor_of(self.base)
        return math.prod(self.shape if tensor is None else tensor.shape)

    def is_all(self) -> bool:
        """Whether it has each element of the base, if no two of its own are the same."""
        return self.offset == 0 and math.prod(self.shape) == self.size

    def lies(self, strides: Sequence[int]) -> bool:
        """Whether elements have these distances, along axes that have more than one."""
        steps = zip(self.shape, self.strides, strides, strict=True)
        return all(size == 1 or own == other for size, own, other in steps)

    def expanded(self, axis: int) -> Strided:
        """An axis of one more, before ``axis``."""
        shape, strides = (
            (*v[:axis], one, *v[axis:]) for v, one in ((self.shape, 1), (self.strides, 0))
        )
        return replace(self, shape=shape, strides=strides)

    def permuted(self, axes: Sequence[int]) -> Strided:
        """The axes in another order."""
        shape, strides = (tuple(v[a] for a in axes) for v in (self.shape, self.strides))
        return replace(self, shape=shape, strides=strides)

    def cut(self, axis: int, begin: int, end: int) -> Strided:
        """Indices [begin, end) of an axis."""
        shape = (*self.shape[:axis], end - begin, *self.shape[axis + 1 :])
        return replace(self, shape=shape, offset=self.offset + begin * self.strides[axis])

    def reshaped(self, shape: Sequence[int]) -> Strided | None:
        """The elements in the same order under other axes; None where no strides say so."""
        # Axes that are one run of equal steps, from the last on, with the size of each run.
        runs: list[tuple[int, int]] = []
        for size, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if size == 1:
                continue
            if runs and stride == runs[-1][0] * runs[-1][1]:
                runs[-1] = (runs[-1][0] * size, runs[-1][1])
            else:
                runs.append((size, stride))
        made: list[int] = []
        left, step = 1, 1
        rest = iter(runs)
        for size in reversed(shape):
            if size > 1 and left == 1:
                left, step = next(rest, (1, 1))
            if left % size:
                return None
            made.append(step)
            left, step = left // size, step * size
        return replace(self, shape=tuple(shape), strides=tuple(reversed(made)))


def as_it_lies(value: Expr, shape: Sequence[int]) -> Strided:
    """A value of a shape as a view of itself."""
    strides = (math.prod(shape[axis + 1 :]) for axis in range(len(shape)))
    return Strided(value, tuple(shape), tuple(strides))


def strided(value: Expr, bound: Callable[[Expr], Expr]) -> Strided | None:
    """``value`` as a view of what it is made of; None where its shape is not known.

    bound: what a variable is bound to
    """
    tensor = tensor_of(value)
    if tensor is None:
        return None
    made = None if 0 in tensor.shape else _moved(bound(value), tensor.shape, bound)
    return made or as_it_lies(value, tensor.shape)


def _moved(value: Expr, shape: tuple[int, ...], bound: Callable[[Expr], Expr]) -> Strided | None:
    """What moves indices, as a view of what that is made of; None for what computes."""
    if isinstance(value, TupleGetItem):
        return _part(value, shape, bound)
    if not isinstance(value, Call) or not isinstance(value.op, Op):
        return None
    name = value.op.name
    if name == "relax.permute_dims":
        given = strided(value.args[0], bound)
        if given is None:
            return None
        return given.permuted(call_attrs(value)["axes"] or range(len(shape))[::-1])
    if name in _SAME_ORDER:
        given = strided(value.args[0], bound)
        return None if given is None else given.reshaped(shape)
    if name == "relax.strided_slice":
        return _slice(value, bound)
    return None


def _part(
    value: TupleGetItem, shape: tuple[int, ...], bound: Callable[[Expr], Expr]
) -> Strided | None:
    """One of the parts that a value is split into."""
    split = bound(value.tuple_value)
    if not isinstance(split, Call) or split.op is not Op.get("relax.split"):
        return None
    given = strided(split.args[0], bound)
    if given is None:
        return None
    attrs = call_attrs(split)
    axis = int(attrs["axis"]) % len(shape)
    places = attrs["indices_or_sections"]
    begin = value.index * shape[axis]
    if not isinstance(places, int):
        begin = [0, *map(int, places)][value.index]
    return given.cut(axis, begin, begin + shape[axis])


def _slice(value: Call, bound: Callable[[Expr], Expr]) -> Strided | None:
    """Indices of some axes, each one behind the last."""
    source, *where = value.args
    given, known = strided(source, bound), list(map(_numbers, where))
    if given is None or any(numbers is None for numbers in known):
        return None
    for axis, begin, end, *step in zip(*(numbers or [] for numbers in known), strict=True):
        first, behind, _ = slice(begin, end).indices(given.shape[axis])
        if step not in ([], [1]) or first >= behind:
            return None
        given = given.cut(axis % len(given.shape), first, behind)
    return given


def _numbers(value: Expr) -> list[int] | None:
    """Whole numbers that are known."""
    found = [constant_value(f) for f in value.fields] if isinstance(value, Tuple) else [None]
    known = [int(n) for n in found if n is not None]
    return known if len(known) == len(found) else None


# What leaves elements in their order.
_SAME_ORDER: Final = ("relax.reshape", "relax.squeeze", "relax.expand_dims", "relax.flatten")
