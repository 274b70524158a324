"""What lowering a kernel keeps: the memory of each buffer, and the scope of a statement."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from relax2xla.dtypes import DTYPES
from relax2xla.errors import LegalizeError
from relax2xla.ir.expr import Expr
from relax2xla.op.shared.lowering import dtype_of, full, reshape
from relax2xla.stablehlo.loops.affine import Form
from relax2xla.stablehlo.loops.axes import Axis, Value, elementwise, in_order, size_of
from relax2xla.tir.buffer import Buffer, BufferRegion
from relax2xla.tir.node import Dim, PrimExpr, Var

MOST_ELEMENTS = 1 << 30
"""The largest buffer that a kernel may allocate, its copies for threads counted."""

Bindings = Mapping[Var, "Form | Value"]


@dataclass(frozen=True, slots=True)
class Scope:
    """Where a statement stands.

    ``env``: what variables are; ``axes``: the vector loops around it; ``mask``: where it runs;
    ``fixed``: axes that are at one place; ``unrolled``: how often loops around it are repeated;
    ``guarded``: whether it may stand where it is not run, so that indices may be out of range;
    ``threads``: forms of the threads by tag; ``rounded``: whether an expression is part of what is
    rounded to an integer, so that its last bit may decide.
    """

    env: Bindings = field(default_factory=lambda: MappingProxyType({}))
    axes: tuple[Axis, ...] = ()
    mask: Value | None = None
    fixed: Mapping[Axis, int] = field(default_factory=lambda: MappingProxyType({}))
    unrolled: int = 1
    guarded: bool = False
    threads: Mapping[str, Form] = field(default_factory=lambda: MappingProxyType({}))
    rounded: bool = False

    def but(self, **changes: Any) -> Scope:
        """A scope that differs in some fields."""
        return replace(self, **changes)

    def bind(self, var: Var, to: Form | Value) -> Scope:
        """This scope with a variable."""
        return replace(self, env={**self.env, var: to})

    def where(self, mask: Value | None) -> Scope:
        """This scope where ``mask`` holds, too."""
        if mask is None:
            return self
        return replace(self, mask=both(self.mask, mask), guarded=True)


def both(a: Value | None, b: Value) -> Value:
    """Where both masks hold."""
    from relax2xla.op.shared.lowering import hlo

    return b if a is None else elementwise(lambda x, y: hlo("and", x, y), a, b)


@dataclass(frozen=True, slots=True)
class Memory:
    """The contents of a buffer: ``axes`` of threads that have one each, then its own ``shape``."""

    expr: Expr
    axes: tuple[Axis, ...]
    shape: tuple[int, ...]

    @property
    def dtype(self) -> str:
        """dtype of the elements."""
        return dtype_of(self.expr)

    def viewed(self, shape: tuple[int, ...]) -> Memory:
        """The same contents in another shape."""
        if shape == self.shape:
            return self
        sizes = [a.size for a in self.axes]
        return Memory(reshape(self.expr, (*sizes, *shape)), self.axes, shape)


@dataclass(frozen=True, slots=True)
class StayedLoop:
    """A loop that is a ``while``: its variable, how many steps (None: data says), why, its line."""

    name: str
    steps: int | None
    why: str
    line: int


class Kernel:
    """One PrimFunc while it is lowered.

    ``memory``: contents by the buffer's data variable; ``views``: buffers that are regions of
    others; ``parameters``: data variables that the caller gives; ``uses``: how often the kernel
    names each memory; ``line``: of the statement at work; ``loops``: loops that stayed
    sequential, each with its reason; ``forms``: what became of what, counted.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.memory: dict[Var, Memory] = {}
        self.views: dict[Buffer, BufferRegion] = {}
        self.parameters: set[Var] = set()
        self.uses: Counter[Var] = Counter()
        self.line = 0
        self.loops: list[StayedLoop] = []
        self.forms: dict[str, int] = {}

    def count(self, form: str) -> None:
        """One more row of a kind."""
        self.forms[form] = self.forms.get(form, 0) + 1

    def error(self, what: str) -> LegalizeError:
        """The error for what cannot be lowered, with its line."""
        at = f", line {self.line}" if self.line else ""
        return LegalizeError(f"{self.name}{at}: {what}")

    def size(self, dim: Dim, scope: Scope) -> int:
        """A dimension as a number."""
        from relax2xla.stablehlo.loops.forms import form_of

        if isinstance(dim, int):
            return dim
        form = form_of(self, dim, scope, scalars=False)
        if form is None or not form.is_number:
            raise self.error(f"the size {dim} is not known when the kernel is compiled")
        return form.const

    def shape(self, buffer: Buffer, scope: Scope) -> tuple[int, ...]:
        """The shape of a buffer as numbers; the buffer is row-major and compact."""
        shape = tuple(self.size(d, scope) for d in buffer.shape)
        if buffer.strides:
            steps = [self.size(s, scope) for s in buffer.strides]
            for i, step in enumerate(steps):
                if shape[i] != 1 and step != math.prod(shape[i + 1 :]):
                    raise self.error(
                        f"the buffer {buffer.name} has strides {steps} for the shape {shape}; only "
                        "compact row-major buffers can be lowered"
                    )
        if not isinstance(buffer.elem_offset, Var) and self.size(buffer.elem_offset, scope):
            raise self.error(
                f"the buffer {buffer.name} starts at element {buffer.elem_offset} of its memory; "
                "only buffers that start at 0 can be lowered"
            )
        return shape

    def allocate(self, buffer: Buffer, scope: Scope, shape: tuple[int, ...] | None = None) -> None:
        """New memory for a buffer: one for each lane around it, or each block if it is shared."""
        if buffer.dtype not in DTYPES:
            raise self.error(f"the buffer {buffer.name} is of dtype {buffer.dtype}")
        axes = [a for a in in_order(scope.axes) if a not in scope.fixed]
        if buffer.scope.startswith("shared"):
            axes = [a for a in axes if not a.thread.startswith(("threadIdx", "vthread"))]
        shape = self.shape(buffer, scope) if shape is None else shape
        whole = [*(a.size for a in axes), *shape]
        if size_of(axes) * math.prod(shape) > MOST_ELEMENTS:
            raise self.error(
                f"the buffer {buffer.name} would take {math.prod(whole)} elements, one of "
                f"{math.prod(shape)} for each of {size_of(axes)} lanes; at most {MOST_ELEMENTS} "
                "are possible"
            )
        self.memory[buffer.data] = Memory(full(whole, 0, buffer.dtype), tuple(axes), shape)

    def access(
        self, buffer: Buffer, indices: Sequence[PrimExpr], scope: Scope
    ) -> tuple[Buffer, tuple[PrimExpr, ...], Memory]:
        """The buffer that holds the memory, the indices in it, and the memory in its shape."""
        place = tuple(indices)
        while (view := self.views.get(buffer)) is not None:
            place = viewed_indices(view, buffer, place)
            buffer = view.buffer
        memory = self.memory.get(buffer.data)
        if memory is None:
            raise self.error(
                f"the buffer {buffer.name} has no memory; parameters, T.alloc_buffer, T.allocate "
                "and T.decl_buffer give it"
            )
        shape = self.shape(buffer, scope)
        if shape != memory.shape:
            if math.prod(shape) != math.prod(memory.shape):
                raise self.error(
                    f"the buffer {buffer.name} views memory of shape {memory.shape} as {shape}; "
                    "a view must have as many elements"
                )
            memory = memory.viewed(shape)
        return buffer, place, memory


def viewed_indices(
    view: BufferRegion, buffer: Buffer, indices: Sequence[PrimExpr]
) -> tuple[PrimExpr, ...]:
    """Indices in the source of ``view`` for indices in ``buffer``, which may lack unit axes."""
    region = view.region
    extra = len(region) - len(indices)
    made: list[PrimExpr] = []
    taken = 0
    for i, part in enumerate(region):
        if extra and len(region) - i > len(indices) - taken and part.extent == 1:
            made.append(_at(part.min, None))
            extra -= 1
        else:
            made.append(_at(part.min, indices[taken]))
            taken += 1
    return tuple(made)


def _at(start: Dim, index: PrimExpr | None) -> PrimExpr:
    from relax2xla.tir.expr import Add, as_prim_expr

    if index is None:
        return as_prim_expr(start, "int32")
    if isinstance(start, int):
        return Add.make(index, start)
    return Add.make(start, index)
