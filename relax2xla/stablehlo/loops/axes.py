"""Named axes, and arrays whose axes have names: what a loop becomes when it is a vector.

A loop that is a vector is an :class:`Axis`; the value of an expression under several such loops is
a :class:`Value`, a tensor with an axis for each loop that it depends on, outermost first.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from relax2xla.ir.expr import Constant, Expr
from relax2xla.op.shared.lowering import (
    broadcast_in_dim,
    dtype_of,
    full,
    reduce,
    reshape,
    scalar,
    shape_of,
    slice_axis,
    transpose,
)

LARGEST: Final = 1 << 27
"""A domain of more elements is looped: it is not made, even where XLA might fuse it away."""

_numbers = itertools.count()


@dataclass(frozen=True, slots=True, eq=False)
class Axis:
    """One vector loop, or one digit of its variable. ``thread`` is the tag of a bound loop."""

    size: int
    name: str = ""
    thread: str = ""
    number: int = field(default_factory=_numbers.__next__)

    def __repr__(self) -> str:
        return f"{self.name}:{self.size}"


def in_order(axes: Iterable[Axis]) -> list[Axis]:
    """Axes from the outermost loop to the innermost."""
    return sorted(axes, key=lambda a: a.number)


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor and the axes that it has, in order."""

    expr: Expr
    axes: tuple[Axis, ...] = ()

    @property
    def dtype(self) -> str:
        """dtype of the elements."""
        return dtype_of(self.expr)


class NeedsLoop(Exception):
    """One of ``axes`` (any, if there is none) cannot be a vector; caught where its loop starts."""

    def __init__(self, axes: Iterable[Axis], why: str) -> None:
        super().__init__(why)
        self.axes, self.why = frozenset(axes), why


def size_of(axes: Iterable[Axis]) -> int:
    """How many elements a value of these axes has."""
    return math.prod(a.size for a in axes)


def constant(value: float, dtype: str) -> Value:
    """A number that is known."""
    return Value(scalar(value, dtype))


def known(value: Value) -> bool | int | float | None:
    """The number that ``value`` is, or None where only running the program tells."""
    if isinstance(value.expr, Constant) and not value.axes and value.expr.data.shape == ():
        return value.expr.data.item()
    return None


def labelled(expr: Expr, labels: Sequence[Axis]) -> Value:
    """``expr``, whose axes are ``labels`` in any order."""
    order = sorted(range(len(labels)), key=lambda i: labels[i].number)
    return Value(transpose(expr, order), tuple(labels[i] for i in order))


def union(*values: Value) -> list[Axis]:
    """The axes that any of the values has."""
    return in_order({a for v in values for a in v.axes})


def spread(value: Value, axes: Sequence[Axis]) -> Expr:
    """``value`` along exactly ``axes``, in their order; it has no others."""
    shape = [a.size for a in axes]
    number = known(value)
    if number is not None:
        return full(shape, number, value.dtype)
    mine = [a for a in axes if a in value.axes]
    expr = transpose(value.expr, [value.axes.index(a) for a in mine])
    return broadcast_in_dim(expr, shape, [axes.index(a) for a in mine])


def elementwise(rule: Callable[..., Expr], *values: Value) -> Value:
    """``rule`` of tensors of one shape, element by element."""
    axes = union(*values)
    wide = sum(a.size > 1 for a in axes)
    if size_of(axes) > LARGEST and all(sum(a.size > 1 for a in v.axes) < wide for v in values):
        raise NeedsLoop(axes[:1], f"a domain of {size_of(axes)} elements")
    return Value(rule(*(spread(v, axes) for v in values)), tuple(axes))


def fixed_at(value: Value, where: Mapping[Axis, int]) -> Value:
    """``value`` with some axes at one place."""
    expr, axes = value.expr, list(value.axes)
    for axis, place in where.items():
        if axis in axes:
            at = axes.index(axis)
            axes.remove(axis)
            expr = drop_axis(slice_axis(expr, at, place, place + 1), at)
    return Value(expr, tuple(axes))


def drop_axis(x: Expr, axis: int) -> Expr:
    """``x`` without an axis, whose size is 1."""
    shape = shape_of(x)
    return reshape(x, (*shape[:axis], *shape[axis + 1 :]))


def reduced(name: str, value: Value, axes: Sequence[Axis]) -> Value:
    """``value`` combined over some of its axes."""
    if not axes:
        return value
    places = [value.axes.index(a) for a in axes]
    if value.dtype == "bool" and name in ("maximum", "minimum"):
        name = "or" if name == "maximum" else "and"
    rest = tuple(a for a in value.axes if a not in axes)
    return Value(reduce(value.expr, name, places), rest)
