# ruff: noqa: D103  (a converter's documentation is the ATen schema; it says what differs)
"""Views by strides, and writing to places that the sizes alone tell.

A Relax tensor has no strides. A view by strides is a gather at places that are known when the sizes
are, for operands that torch lays out in row-major order from the start of their memory.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from relax2xla import op as R
from relax2xla import tir
from relax2xla.importers._gaps import Unsupported
from relax2xla.importers.torch.aten_shape import take_range
from relax2xla.importers.torch.context import (
    Context,
    Dim,
    Dims,
    axis_of,
    dims_of,
    dtype_of,
    larger,
    ndim_of,
    scalar,
    smaller,
    static,
)
from relax2xla.importers.torch.registry import aten
from relax2xla.ir import Constant, Expr, ShapeStructInfo


def _places(ctx: Context, self: Expr, size: Any, stride: Any, offset: Any) -> Expr:
    """Positions in the flat operand."""
    operand: Any = ctx.node.args[0] if ctx.node is not None and ctx.node.args else None
    meta = getattr(operand, "meta", {}).get("val")
    if not isinstance(meta, torch.Tensor) or not meta.is_contiguous() or meta.storage_offset():
        raise Unsupported("a view by strides of a tensor that is itself a view")
    start = top = 0 if offset is None else offset
    for count, step in zip(size, stride, strict=True):
        top = top + (count - 1) * step
    if 0 not in size:
        ctx.require(math.prod(dims_of(self)) > top)  # the view lies in the tensor
    return R.broadcast_to(ctx.grid(size, stride, start), size)


@aten("as_strided", "as_strided_copy")
def as_strided(
    ctx: Context, self: Expr, size: Any, stride: Any, storage_offset: Any = None
) -> Expr:
    at = _places(ctx, self, size, stride, storage_offset)
    return R.take(R.reshape(self, (-1,)), at, 0)


def written(ctx: Context, self: Expr, at: Expr, source: Expr) -> Expr:
    """``self`` with the elements at flat places replaced."""
    if 0 in dims_of(source):
        return self
    update = R.reshape(ctx.cast(source, dtype_of(self)), (-1,))
    made = R.scatter_elements(R.reshape(self, (-1,)), R.reshape(at, (-1,)), update, 0, "update")
    return ctx.reshape(made, dims_of(self))


@aten("as_strided_scatter", "prims::as_strided_scatter")
def as_strided_scatter(
    ctx: Context,
    self: Any = None,
    src: Any = None,
    size: Any = None,
    stride: Any = None,
    storage_offset: Any = None,
    input: Any = None,
) -> Expr:
    x = self if self is not None else input
    return written(ctx, x, _places(ctx, x, size, stride, storage_offset), src)


@aten("diagonal_scatter")
def diagonal_scatter(
    ctx: Context, self: Expr, src: Expr, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Expr:
    at = _on_diagonal(ctx, dims_of(self), offset, dim1, dim2, dims_of(src))
    return written(ctx, self, at, src)


def _on_diagonal(
    ctx: Context, shape: Dims, offset: int, dim1: int, dim2: int, wanted: Dims
) -> Expr:
    """Flat places of the elements of a diagonal; ``wanted``: its shape, the diagonal last."""
    a, b = dim1 % len(shape), dim2 % len(shape)
    steps = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
    others = [steps[i] for i in range(len(shape)) if i not in (a, b)]
    start = offset * steps[b] if offset >= 0 else -offset * steps[a]
    return ctx.grid(wanted, [*others, steps[a] + steps[b]], start)


@aten("linalg_diagonal")
def linalg_diagonal(ctx: Context, A: Expr, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Expr:
    at = _on_diagonal(ctx, dims_of(A), offset, dim1, dim2, ctx.dims())
    return R.take(R.reshape(A, (-1,)), at, 0)


@aten("resize", "resize_as")
def resize(ctx: Context, self: Expr, size: Any = None, the_template: Any = None) -> Expr:
    """Elements that torch leaves undefined are 0."""
    have, count = math.prod(dims_of(self)), math.prod(ctx.dims())
    more = larger(count - have, 0)
    flat = R.concat([R.reshape(self, (have,)), R.zeros((more,), dtype_of(self))], 0)
    return R.reshape(take_range(ctx.emit(flat), 0, 0, count), ctx.dims())


def _parts(ctx: Context, x: Expr, axis: int) -> list[Expr]:
    """Parts of the sizes that torch gives."""
    made: list[Expr] = []
    start: Dim = 0
    x = ctx.emit(x)
    for i in range(len(ctx.out)):
        stop = start + ctx.dims(i)[axis]
        made.append(take_range(x, axis, start, stop))
        start = stop
    return made


@aten("hsplit.int", "hsplit.array")
def hsplit(ctx: Context, self: Expr, sections: Any = None, indices: Any = None) -> list[Expr]:
    return _cut(ctx, self, 0 if ndim_of(self) == 1 else 1, sections, indices)


@aten("vsplit.int", "vsplit.array")
def vsplit(ctx: Context, self: Expr, sections: Any = None, indices: Any = None) -> list[Expr]:
    return _cut(ctx, self, 0, sections, indices)


@aten("dsplit.int", "dsplit.array")
def dsplit(ctx: Context, self: Expr, sections: Any = None, indices: Any = None) -> list[Expr]:
    return _cut(ctx, self, 2, sections, indices)


@aten("tensor_split.sections", "tensor_split.indices")
def tensor_split(
    ctx: Context, self: Expr, sections: Any = None, indices: Any = None, dim: int = 0
) -> list[Expr]:
    return _cut(ctx, self, axis_of(dim, ndim_of(self)), sections, indices)


@aten("tensor_split.tensor_indices_or_sections")
def tensor_split_by_tensor(
    ctx: Context, self: Expr, tensor_indices_or_sections: Expr, dim: int = 0
) -> list[Expr]:
    """The sizes of parts at computed places are known when the data are there."""
    axis = axis_of(dim, ndim_of(self))
    if isinstance(tensor_indices_or_sections, Constant):
        value = tensor_indices_or_sections.data
        return _cut(ctx, self, axis, None, value.tolist() if value.ndim else None)
    if ndim_of(tensor_indices_or_sections) == 0:
        raise Unsupported("a number of parts that is computed", "give the number of parts as int")
    size = dims_of(self)[axis]
    x, zero = ctx.emit(self), scalar(0, "int64")
    at = ctx.wrap(ctx.cast(tensor_indices_or_sections, "int64"), size)
    end = ctx.tensor(size, "int64")
    at = R.minimum(R.maximum(at, zero), end)
    bounds = ctx.emit(R.concat([R.zeros((1,), "int64"), at, ctx.full((1,), end, "int64")], 0))
    made: list[Expr] = []
    for i in range(len(ctx.out)):
        start = R.strided_slice(bounds, [0], [i], [i + 1])
        count = R.subtract(R.strided_slice(bounds, [0], [i + 1], [i + 2]), start)
        pair = ctx.emit(R.concat([start, R.maximum(count, zero)], 0))
        first, length = tir.Var(f"start_{i}", "int64"), ctx.dims(i)[axis]
        shape = ctx.emit(R.tensor_to_shape(pair))
        ctx.builder.match_cast(shape, ShapeStructInfo((first, length)))
        made.append(R.strided_slice(x, [axis], [first], [first + length], assume_inbound=True))
    return made


def _cut(ctx: Context, x: Expr, axis: int, sections: Any, indices: Any) -> list[Expr]:
    """Parts may overlap where indices go backwards; torch then says so by their sizes alone."""
    if indices is None:
        return _parts(ctx, x, axis)
    size, x = dims_of(x)[axis], ctx.emit(x)
    places = [0, *(static(i, "a place to split at") for i in indices)]
    made: list[Expr] = []
    for i, place in enumerate(places):
        start = smaller(place, size) if place >= 0 else larger(size + place, 0)
        made.append(take_range(x, axis, start, start + ctx.dims(i)[axis]))
    return made


@aten("cartesian_prod")
def cartesian_prod(ctx: Context, tensors: Sequence[Expr]) -> Expr:
    if len(tensors) == 1:
        return tensors[0]
    sizes = [dims_of(t)[0] for t in tensors]
    grids: list[Expr] = []
    for i, t in enumerate(tensors):
        line = R.reshape(t, [d if j == i else 1 for j, d in enumerate(sizes)])
        grids.append(R.reshape(R.broadcast_to(line, sizes), (-1,)))
    return R.stack(grids, 1)
