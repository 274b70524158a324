"""Views by strides, and writing to places that the sizes alone tell.

A Relax tensor has no strides. A view by strides is a gather at places that are known when the sizes
are, in an operand without gaps in torch's memory, or in what it is a view of.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node

from relax2xla import op as R
from relax2xla import tir
from relax2xla.importers.shared.gaps import Unsupported
from relax2xla.importers.torch.aten.shape import parts_of, take_range
from relax2xla.importers.torch.engine.context import (
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
from relax2xla.importers.torch.engine.converters import Function, aten
from relax2xla.importers.torch.source.inplace import named
from relax2xla.importers.torch.source.torch_internals import OpOverload
from relax2xla.ir import Constant, Expr, ShapeStructInfo

#: Operators whose result always is a view of their first argument, of the same elements.
VIEWS = named(
    "alias as_strided detach diagonal expand narrow permute select.int slice.Tensor split.Tensor "
    "split_with_sizes squeeze squeeze.dim squeeze.dims t transpose.int unbind.int unfold unsqueeze "
    "view"
)


@dataclass(frozen=True, slots=True)
class _Memory:
    """A tensor that fills a stretch of memory.

    order: its axes, outermost in memory first
    start: the place of its first element in the memory that views share
    """

    value: Expr
    order: list[int]
    start: Dim

    def flat(self) -> Expr:
        """The elements as they lie in memory."""
        return R.reshape(self._permuted(self.value, self.order), (-1,))

    def shaped(self, ctx: Context, flat: Expr) -> Expr:
        """A tensor of this layout that has these elements in memory."""
        dims = dims_of(self.value)
        back = [self.order.index(a) for a in range(len(dims))]
        return self._permuted(ctx.reshape(flat, [dims[a] for a in self.order]), back)

    def _permuted(self, x: Expr, order: list[int]) -> Expr:
        return x if order == sorted(order) else R.permute_dims(x, order)


def _order(meta: torch.Tensor) -> list[int] | None:
    """The axes of a tensor by their strides; None where it has gaps or overlaps."""
    axes = list(range(meta.ndim))
    if meta.is_contiguous():
        return axes
    shape, steps = meta.shape, meta.stride()
    if not all(isinstance(v, int) for v in (*shape, *steps)):
        return None
    order = sorted(axes, key=lambda a: (shape[a] == 1, -steps[a]))
    wanted = 1
    for a in reversed(order):
        if shape[a] != 1:
            if steps[a] != wanted:
                return None
            wanted *= shape[a]
    return order


def _memories(ctx: Context, self: Expr, alone: bool) -> list[_Memory]:
    """The operand and, unless ``alone``, what it is a view of, where they fill their memory."""
    at: Any = ctx.node.args[0] if ctx.node is not None and ctx.node.args else None
    value: Any = self
    found: list[_Memory] = []
    while isinstance(at, Node):
        meta = at.meta.get("val")
        if isinstance(meta, torch.Tensor) and (order := _order(meta)) is not None:
            offset: Any = meta.storage_offset()
            if isinstance(offset, int):
                found.append(_Memory(value, order, offset))
        op = at.target
        view = isinstance(op, OpOverload) and op in VIEWS
        if alone or not (view or op is operator.getitem):
            break
        at = at.args[0]
        value = ctx.values[at] if isinstance(at, Node) else None
    return found


def _places(
    ctx: Context, self: Expr, size: Any, stride: Any, offset: Any, alone: bool = False
) -> tuple[_Memory, Expr]:
    """The memory that a view by strides lies in, and its places there."""
    if offset is None:
        operand: Any = ctx.node.args[0] if ctx.node is not None and ctx.node.args else None
        meta = operand.meta.get("val") if isinstance(operand, Node) else None
        offset = meta.storage_offset() if isinstance(meta, torch.Tensor) else 0
    top = offset
    for count, step in zip(size, stride, strict=True):
        top = top + (count - 1) * step
    memories = _memories(ctx, self, alone)
    for memory in memories:
        above = memory.start + math.prod(dims_of(memory.value))
        inside: list[Any] = [memory.start <= offset, above > top]
        if 0 in size or not any(known is False for known in inside):
            if 0 not in size:
                for condition in inside:
                    ctx.require(condition)  # the view lies in the tensor
            at = ctx.grid(size, stride, offset - memory.start)
            return memory, R.broadcast_to(at, size)
    if memories and alone:
        why = "writing by strides outside of the operand"
    elif memories:
        why = "a view by strides of memory that the program does not have as a tensor"
    else:
        why = "a view by strides of an input with gaps, overlaps or symbolic sizes between its rows"
    raise Unsupported(
        why, "give `x.contiguous()` and the strides that belong to it, or index x (x[i], x.unfold)"
    )


@aten("as_strided", "as_strided_copy")
def as_strided(
    ctx: Context, self: Expr, size: Any, stride: Any, storage_offset: Any = None
) -> Expr:
    """Strides and offset count in the memory that ``self`` may be a view of."""
    memory, at = _places(ctx, self, size, stride, storage_offset)
    if memory.order == sorted(memory.order) and _is_whole(size, stride, dims_of(memory.value)):
        return ctx.reshape(memory.value, size)
    return R.take(memory.flat(), at, 0)


def _is_whole(size: Sequence[Any], stride: Sequence[Any], memory: Dims) -> bool:
    """Whether these are all elements of the memory, one after the other."""
    known = [d for d in memory if isinstance(d, int)]
    if len(known) < len(memory) or not all(isinstance(d, int) for d in (*size, *stride)):
        return False
    dense = [math.prod(size[i + 1 :]) for i in range(len(size))]
    same = all(s == d or n == 1 for s, d, n in zip(stride, dense, size, strict=True))
    return same and math.prod(size) == math.prod(known)


def written(ctx: Context, flat: Expr, at: Expr, source: Expr) -> Expr:
    """``flat`` with the elements at places replaced."""
    if 0 in dims_of(source):
        return flat
    update = R.reshape(ctx.cast(source, dtype_of(flat)), (-1,))
    return R.scatter_elements(flat, R.reshape(at, (-1,)), update, 0, "update")


@aten("as_strided_scatter", "prims::as_strided_scatter")
def as_strided_scatter(
    ctx: Context, self: Expr, src: Expr, size: Any, stride: Any, storage_offset: Any = None
) -> Expr:
    memory, at = _places(ctx, self, size, stride, storage_offset, alone=True)
    return memory.shaped(ctx, written(ctx, memory.flat(), at, src))


@aten("diagonal_scatter")
def diagonal_scatter(
    ctx: Context, self: Expr, src: Expr, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Expr:
    at = _on_diagonal(ctx, dims_of(self), offset, dim1, dim2, dims_of(src))
    return ctx.reshape(written(ctx, R.reshape(self, (-1,)), at, src), dims_of(self))


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


@aten("resize", "resize_as", ignored="size the_template")
def resize(ctx: Context, self: Expr) -> Expr:
    """Elements that torch leaves undefined are 0."""
    have, count = math.prod(dims_of(self)), math.prod(ctx.dims())
    more = larger(count - have, 0)
    flat = R.concat([R.reshape(self, (have,)), R.zeros((more,), dtype_of(self))], 0)
    return R.reshape(take_range(ctx.emit(flat), 0, 0, count), ctx.dims())


def _splitting(axis_of_rank: Callable[[int], int]) -> Function:
    def convert(ctx: Context, self: Expr, indices: Any = None) -> list[Expr]:
        return _cut(ctx, self, axis_of_rank(ndim_of(self)), indices)

    return convert


aten("hsplit.int", "hsplit.array", ignored="sections")(_splitting(lambda rank: int(rank != 1)))
aten("vsplit.int", "vsplit.array", ignored="sections")(_splitting(lambda rank: 0))
aten("dsplit.int", "dsplit.array", ignored="sections")(_splitting(lambda rank: 2))


@aten("tensor_split.sections", "tensor_split.indices", ignored="sections")
def tensor_split(ctx: Context, self: Expr, indices: Any = None, dim: int = 0) -> list[Expr]:
    return _cut(ctx, self, axis_of(dim, ndim_of(self)), indices)


@aten("tensor_split.tensor_indices_or_sections")
def tensor_split_by_tensor(
    ctx: Context, self: Expr, tensor_indices_or_sections: Expr, dim: int = 0
) -> list[Expr]:
    """The sizes of parts at computed places are known when the data are there."""
    axis = axis_of(dim, ndim_of(self))
    if isinstance(tensor_indices_or_sections, Constant):
        value = tensor_indices_or_sections.data
        return _cut(ctx, self, axis, value.tolist() if value.ndim else None)
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


def _cut(ctx: Context, x: Expr, axis: int, indices: Any) -> list[Expr]:
    """Parts may overlap where indices go backwards; torch then says so by their sizes alone."""
    if indices is None:
        return parts_of(ctx, ctx.emit(x), axis)
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
