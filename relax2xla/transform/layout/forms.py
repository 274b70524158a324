"""Forms of tensors: in which order the axes lie, and which of them are packed.

A tensor that the program has with axes 0, 1, 2, 3 (NCHW) lies in the form 0, 2, 3, 1 where its
channels are last (NHWC), and in 0, 1, 2, 3, 1:4 where they are packed by fours (NCHW4c).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from relax2xla import tir
from relax2xla.ir import Call, Expr, Op, StructInfo, TensorStructInfo, TupleStructInfo
from relax2xla.ir.struct_info import Dims
from relax2xla.op.shared.layouts import Axis, Layout


class Part(NamedTuple):
    """One axis as it lies: of which axis of the program, and of an inner part its size (else 0)."""

    axis: int
    inner: int = 0


@dataclass(frozen=True, slots=True)
class Form:
    """The axes of a tensor as they lie."""

    parts: tuple[Part, ...]

    @property
    def rank(self) -> int:
        """How many axes the program's tensor has."""
        return sum(not p.inner for p in self.parts)

    @property
    def is_packed(self) -> bool:
        """Whether an axis lies in two parts."""
        return any(p.inner for p in self.parts)

    @property
    def packed_axes(self) -> frozenset[int]:
        """The axes that lie in two parts."""
        return frozenset(p.axis for p in self.parts if p.inner)

    def place(self, axis: int) -> int:
        """Where an axis of the program (its outer part) lies."""
        return self.parts.index(Part(axis % self.rank))

    def inner(self, axis: int) -> int:
        """The size of the inner part of an axis; 0 without one."""
        return next((p.inner for p in self.parts if p.inner and p.axis == axis), 0)

    def fits(self, dims: Dims | None) -> bool:
        """Whether a tensor with these dimensions can lie so: packed axes are cut without a rest."""
        if not self.is_packed:
            return True
        sizes = [] if dims is None else [(dims[p.axis], p.inner) for p in self.parts if p.inner]
        return bool(sizes) and all(isinstance(d, int) and d % n == 0 for d, n in sizes)

    def text(self, layout: str) -> str:
        """The layout of a tensor in this form, which ``layout`` names as the program has it."""
        letters = Layout.of(layout).plain
        return str(Layout(tuple(Axis(letters[p.axis], p.inner) for p in self.parts)))


@functools.cache
def initial(rank: int) -> Form:
    """The form that a tensor has in the program."""
    return Form(tuple(Part(i) for i in range(rank)))


def named(layout: str, source: str) -> Form:
    """The form in which a tensor in the layout ``source`` is in ``layout``."""
    axes = {letter: i for i, letter in enumerate(Layout.of(source).plain)}
    return Form(tuple(Part(axes[a.letter], a.inner) for a in Layout.of(layout).axes))


Forms: TypeAlias = "Form | tuple[Forms, ...] | None"
"""The form of a tensor, those of the fields of a tuple; None: of what has none."""


def map_tensors(info: StructInfo | None, form: Callable[[TensorStructInfo], Form | None]) -> Forms:
    """``form`` of each tensor in a value that ``info`` describes."""
    if isinstance(info, TupleStructInfo):
        return tuple(map_tensors(f, form) for f in info.fields)
    return form(info) if isinstance(info, TensorStructInfo) else None


def initial_forms(value: Expr) -> Forms:
    """The forms that a value has in the program; None of tensors of unknown rank."""
    return map_tensors(value.struct_info_, lambda i: initial(i.ndim) if i.ndim >= 0 else None)


def moved(value: Expr, have: Form, want: Form) -> Call:
    """``value``, which lies in the form ``have``, in the form ``want``."""
    if len(have.parts) == len(want.parts) and set(have.parts) == set(want.parts):
        axes = [have.parts.index(p) for p in want.parts]
        return Op.get("relax.permute_dims")(value, axes)
    return Op.get("relax.layout_transform")(value, index_map=_index_map(have, want))


def _index_map(have: Form, want: Form) -> tir.IndexMap:
    """Where the element at each place of the form ``have`` lies in ``want``."""
    indices = [tir.Var(f"i{k}", "int32") for k in range(len(have.parts))]

    def index(part: Part) -> tir.PrimExpr:
        axis, inner = part.axis, have.inner(part.axis)
        outer = indices[have.place(axis)]
        cut = want.inner(axis)
        if inner == cut:
            return indices[have.parts.index(part)]
        whole = outer * inner + indices[have.parts.index(Part(axis, inner))] if inner else outer
        if not cut:
            return whole
        return whole % cut if part.inner else whole // cut

    return tir.IndexMap(tuple(indices), tuple(index(p) for p in want.parts))


def same_axes(have: Sequence[str], want: Sequence[str]) -> bool:
    """Whether layouts name the same axes, packed or not."""
    pairs = zip(have, want, strict=True)
    return all(sorted(Layout.of(a).plain) == sorted(Layout.of(b).plain) for a, b in pairs)
