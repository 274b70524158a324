"""Where buffers are: sizes as numbers, new memory, and the memory behind a view."""

from __future__ import annotations

import math
from collections.abc import Sequence

from relax2xla.dtypes import DTYPES
from relax2xla.op.shared.lowering import dtype_of, full
from relax2xla.stablehlo.loops.axes import in_order, size_of
from relax2xla.stablehlo.loops.forms import form_of
from relax2xla.stablehlo.loops.state import Kernel, Memory, Scope
from relax2xla.tir.binary import Add
from relax2xla.tir.buffer import Buffer, BufferRegion
from relax2xla.tir.convert import as_prim_expr, cast
from relax2xla.tir.node import Dim, PrimExpr, Var

MOST_ELEMENTS = 1 << 30
"""The largest buffer that a kernel may allocate, its copies for threads counted."""
_BYTES = {"bool", "int8", "uint8"}
"""TVM keeps truth values in bytes: views of one as the other have the same values."""


def fixed_size(kernel: Kernel, dim: Dim, scope: Scope) -> int:
    """A dimension as a number."""
    if isinstance(dim, int):
        return dim
    form = form_of(kernel, dim, scope, scalars=False)
    if form is None or not form.is_number:
        raise kernel.error(f"the size {dim} is not known when the kernel is compiled")
    return form.const


def fixed_shape(kernel: Kernel, buffer: Buffer, scope: Scope) -> tuple[int, ...]:
    """The shape of a buffer as numbers; the buffer is row-major and compact."""
    shape = tuple(fixed_size(kernel, d, scope) for d in buffer.shape)
    if buffer.strides:
        steps = [fixed_size(kernel, s, scope) for s in buffer.strides]
        for i, step in enumerate(steps):
            if shape[i] != 1 and step != math.prod(shape[i + 1 :]):
                kernel.line = buffer.line or kernel.line
                raise kernel.error(
                    f"the buffer {buffer.name} has strides {steps} for the shape {shape}; only "
                    "compact row-major buffers can be lowered"
                )
    if not isinstance(buffer.elem_offset, Var) and fixed_size(kernel, buffer.elem_offset, scope):
        kernel.line = buffer.line or kernel.line
        raise kernel.error(
            f"the buffer {buffer.name} starts at element {buffer.elem_offset} of its memory; "
            "only buffers that start at 0 can be lowered"
        )
    return shape


def allocate(
    kernel: Kernel, buffer: Buffer, scope: Scope, shape: tuple[int, ...] | None = None
) -> None:
    """New memory for a buffer: one for each lane around it, or each block if it is shared."""
    if buffer.dtype not in DTYPES:
        raise kernel.error(f"the buffer {buffer.name} is of dtype {buffer.dtype}")
    axes = [a for a in in_order(scope.axes) if a not in scope.fixed]
    if buffer.scope.startswith("shared"):
        axes = [a for a in axes if not a.thread.startswith(("threadIdx", "vthread"))]
    shape = fixed_shape(kernel, buffer, scope) if shape is None else shape
    if any(n < 0 for n in shape):
        kernel.line = buffer.line or kernel.line
        raise kernel.error(f"the buffer {buffer.name} has the shape {shape}; no size is negative")
    whole = [*(a.size for a in axes), *shape]
    if math.prod(whole) > MOST_ELEMENTS:
        kernel.line = buffer.line or kernel.line
        each = f", {math.prod(shape)} for each of {size_of(axes)} lanes" if axes else ""
        width = DTYPES[buffer.dtype].nbytes
        raise kernel.error(
            f"the buffer {buffer.name} would take {math.prod(whole)} elements{each}, "
            f"{math.prod(whole) * width} bytes; at most {MOST_ELEMENTS} elements are possible; "
            "allocate less, or compute the values where they are read"
        )
    kernel.memory[buffer.data] = Memory(full(whole, 0, buffer.dtype), tuple(axes), shape)


def access(
    kernel: Kernel, buffer: Buffer, indices: Sequence[PrimExpr], scope: Scope
) -> tuple[Buffer, tuple[PrimExpr, ...], Memory]:
    """The buffer that holds the memory, the indices in it, and the memory in its shape."""
    place = tuple(i if i.dtype != "bool" else cast("int32", i) for i in indices)
    while (view := kernel.views.get(buffer)) is not None:
        place = viewed_indices(view, buffer, place)
        buffer = view.buffer
    memory = kernel.memory.get(buffer.data)
    if memory is None:
        raise kernel.error(
            f"the buffer {buffer.name} has no memory; parameters, T.alloc_buffer, T.allocate "
            "and T.decl_buffer give it"
        )
    held = dtype_of(memory.expr)
    if held != buffer.dtype and {held, buffer.dtype} - _BYTES:
        raise kernel.error(
            f"the buffer {buffer.name} views memory of {held} as {buffer.dtype}; declare it with "
            "the dtype of its memory, and read the bits by T.reinterpret"
        )
    shape = fixed_shape(kernel, buffer, scope)
    if shape != memory.shape:
        if math.prod(shape) != math.prod(memory.shape):
            raise kernel.error(
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
    if index is None:
        return as_prim_expr(start, "int32")
    if isinstance(start, int):
        return Add.make(index, start)
    return Add.make(start, index)
