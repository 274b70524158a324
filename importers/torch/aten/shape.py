"""Reshaping, slicing, joining, and what only changes dtype or memory.

Operators that keep the elements in row-major order are all ``reshape`` to the shape that torch
gives for the result: symbolic sizes, ``-1`` and negative axes are worked out there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Node

from relax2xla import op as R
from relax2xla import tir
from relax2xla.dtypes import dtype_info
from relax2xla.importers.shared.gaps import Unsupported
from relax2xla.importers.shared.index import joined
from relax2xla.importers.torch.engine.context import (
    Context,
    Dim,
    axes_of,
    axis_of,
    broadcast,
    dims_of,
    dtype_of,
    larger,
    ndim_of,
    row,
    scalar,
    smaller,
)
from relax2xla.importers.torch.engine.converters import aten
from relax2xla.importers.torch.engine.gradients import stopped
from relax2xla.importers.torch.source.torch_internals import statically_known_true
from relax2xla.ir import Expr, TensorStructInfo

INT64_MAX = (1 << 63) - 1
END = 1 << 62  # torch writes an open end of a slice as the largest int64


# -- the same elements in the same order ----------------------------------------------------------
@aten(
    "view view_copy view_as _unsafe_view reshape _reshape_copy reshape_as",
    "flatten.using_ints unflatten.int ravel",
    "atleast_1d atleast_2d atleast_3d",
    ignored="size shape other start_dim end_dim sizes dim",
)  # dim: that of unflatten
def reshape(ctx: Context, self: Expr) -> Expr:
    """All of these are a reshape to the result's shape, which the arguments only describe."""
    return ctx.reshape(self, ctx.dims())


aten("unsqueeze unsqueeze_copy")(lambda ctx, self, dim: R.expand_dims(self, [dim]))


@aten("squeeze", "squeeze.dim", "squeeze.dims", "squeeze_copy.dims")
def squeeze(ctx: Context, self: Expr, dim: Any = None) -> Expr:
    """torch has decided which sizes are 1: at other ones the result has another rank."""
    shape = dims_of(self)
    asked = [shape[a] for a in axes_of(dim, len(shape))] if dim != [] else []
    unknown = [d for d in asked if not isinstance(d, int)]
    taken = len(shape) - len(ctx.dims()) - asked.count(1)
    if taken in (0, len(unknown)):
        for size in unknown:
            ctx.require((tir.EQ if taken else tir.NE).make(size, 1))
    if len(ctx.dims()) == len(shape):
        return self
    if unknown:
        return ctx.reshape(self, ctx.dims())
    if dim is None:
        return R.squeeze(self)
    given = [dim] if isinstance(dim, int) else dim
    return R.squeeze(self, [a for a in given if shape[axis_of(a, len(shape))] == 1])


@aten(
    "alias alias_copy clone contiguous",
    "lift lift_fresh lift_fresh_copy positive resolve_conj resolve_neg",
    "prims::copy_strided",
    ignored="stride",
)
def identity(ctx: Context, self: Expr) -> Expr:
    """Layouts in memory Relax decides by itself."""
    return self


@aten("detach detach_ detach_copy")
def detach(ctx: Context, self: Expr) -> Expr:
    return stopped(ctx, self)


@aten(
    "to.dtype to.dtype_layout to.device to.other _to_copy type_as",
    "prims::convert_element_type",
    ignored="dtype copy other",
)
def convert(ctx: Context, self: Expr) -> Expr:
    """Torch's conversions: towards zero to integers; ``copy`` has no meaning without aliasing."""
    return ctx.cast(self, ctx.dtype())


@aten("copy")
def copy(ctx: Context, self: Expr, src: Expr) -> Expr:
    return broadcast(ctx.cast(src, ctx.dtype()), ctx.dims())


@aten("view.dtype", "view_copy.dtype", ignored="dtype")
def bitcast(ctx: Context, self: Expr) -> Expr:
    """Elements of another width are several in the last axis, or parts of one."""
    have, want = dtype_of(self), ctx.dtype()
    if "complex" in have or "complex" in want or "bool" in (have, want):
        raise Unsupported(
            f"{have} elements viewed as {want}",
            "use torch.view_as_real or torch.view_as_complex for complex numbers, .to for booleans",
        )
    dims, old, new = ctx.dims(), dtype_info(have).bits, dtype_info(want).bits
    if new < old:
        dims = (*dims_of(self), old // new)
    elif new > old:
        self = ctx.reshape(self, (*dims, new // old))
    made = row("bitcast_convert", self, sinfo_args=TensorStructInfo(dims, want))
    return ctx.reshape(made, ctx.dims())


# -- axes ----------------------------------------------------------------------------------------
def _permute(x: Expr, order: Sequence[int]) -> Expr:
    return x if list(order) == list(range(len(order))) else R.permute_dims(x, list(order))


@aten("permute", "permute_copy")
def permute(ctx: Context, self: Expr, dims: Sequence[int]) -> Expr:
    return _permute(self, axes_of(dims, ndim_of(self)))


@aten("transpose.int", "swapaxes", "swapdims", "transpose_copy.int")
def transpose(
    ctx: Context,
    self: Expr,
    dim0: int = 0,
    dim1: int = 0,
    axis0: int | None = None,
    axis1: int | None = None,
) -> Expr:
    ndim = ndim_of(self)
    a = axis_of(dim0 if axis0 is None else axis0, ndim)
    b = axis_of(dim1 if axis1 is None else axis1, ndim)
    order = list(range(ndim))
    if ndim:
        order[a], order[b] = order[b], order[a]
    return _permute(self, order)


@aten("movedim.int", "movedim.intlist", "moveaxis.int", "moveaxis.intlist")
def movedim(ctx: Context, self: Expr, source: Any, destination: Any) -> Expr:
    ndim = ndim_of(self)
    from_, to = axes_of(source, ndim), axes_of(destination, ndim)
    rest = iter(a for a in range(ndim) if a not in from_)
    order = [from_[to.index(i)] if i in to else next(rest) for i in range(ndim)]
    return _permute(self, order)


aten("expand", "expand_as", "broadcast_to", "expand_copy", ignored="size implicit other")(
    lambda ctx, self: broadcast(self, ctx.dims())
)


@aten("broadcast_tensors")
def broadcast_tensors(ctx: Context, tensors: Sequence[Expr]) -> list[Expr]:
    """All to the shape that they have together."""
    return [broadcast(x, ctx.dims(0)) for x in tensors]


@aten("repeat", "tile")
def repeat(ctx: Context, self: Expr, repeats: Any = None, dims: Any = None) -> Expr:
    """Of symbolic numbers a broadcast along new axes, then a reshape: XLA fuses both."""
    given = list(repeats if repeats is not None else dims)
    shape = list(dims_of(self))
    ndim = max(len(given), len(shape))
    given = [1] * (ndim - len(given)) + given
    shape = [1] * (ndim - len(shape)) + shape
    if all(isinstance(r, int) and r == 1 for r in given):
        return ctx.reshape(self, shape)
    if all(isinstance(r, int) for r in given):
        return R.tile(self, list(repeats if repeats is not None else dims))
    narrow: list[Dim] = []
    wide: list[Dim] = []
    for times, size in zip(given, shape, strict=True):
        narrow += [1, size]
        wide += [times, size]
    return ctx.reshape(R.broadcast_to(ctx.reshape(self, narrow), wide), ctx.dims())


@aten("repeat_interleave.self_int", ignored="output_size")
def repeat_interleave(ctx: Context, self: Expr, repeats: Any, dim: int | None = None) -> Expr:
    shape: list[Dim] = list(dims_of(self))
    if dim is None:
        shape, axis = [math.prod(shape)], 0
    else:
        axis = axis_of(dim, len(shape))
    narrow = [*shape[: axis + 1], 1, *shape[axis + 1 :]]
    wide = [*shape[: axis + 1], repeats, *shape[axis + 1 :]]
    return ctx.reshape(R.broadcast_to(ctx.reshape(self, narrow), wide), ctx.dims())


aten("fliplr")(lambda ctx, self: R.flip(self, 1))
aten("flipud")(lambda ctx, self: R.flip(self, 0))


@aten("flip")
def flip(ctx: Context, self: Expr, dims: Sequence[int]) -> Expr:
    x = self
    for axis in dims if ndim_of(self) else ():
        x = R.flip(x, axis)
    return x


@aten("roll")
def roll(ctx: Context, self: Expr, shifts: Sequence[Any], dims: Sequence[int] = ()) -> Expr:
    shape = dims_of(self)
    x = self if dims else R.reshape(self, (-1,))
    for shift, axis in zip(shifts, axes_of(dims, len(shape)) if dims else [0], strict=True):
        x = ctx.emit(x)
        size = dims_of(x)[axis]
        if isinstance(size, int) and size == 0:
            continue
        at = size - shift % larger(size, 1)
        head = ctx.emit(R.strided_slice(x, [axis], [0], [at], [1]))
        x = R.concat([R.strided_slice(x, [axis], [at], [size], [1]), head], axis)
    return ctx.reshape(x, ctx.dims())


# -- parts ---------------------------------------------------------------------------------------
def take_range(x: Expr, axis: int, start: Dim, stop: Dim, step: Dim = 1) -> Expr:
    """``x[start:stop:step]`` along one axis; the bounds lie inside."""
    size = dims_of(x)[axis]
    if (start, step) == (0, 1) and stop == size:
        return x
    # Of numbers there is nothing to assume.
    inbound = not all(isinstance(d, int) for d in (size, start, stop))
    return R.strided_slice(x, [axis], [start], [stop], [step], assume_inbound=inbound)


def bound_of(ctx: Context, value: Any, size: Dim, default: Dim, axis: int) -> Dim:
    """A bound of a slice of the first operand, from the front and clamped, as Python does."""
    if value is None:
        return default
    if isinstance(value, int) and value >= END:
        return size
    at = place_of(ctx, value, size)
    if at == 0 or at == size:
        return at
    if isinstance(at, int) and isinstance(size, int):
        return max(0, min(at, size))
    # torch.export has mostly decided how a number lies to the size.
    known = _size_of_operand(ctx, axis)
    if isinstance(value, int) and isinstance(known, torch.SymInt):
        if value < 0 and statically_known_true(known + value >= 0):
            return at
        if value > 0 and statically_known_true(known >= value):
            return at
    return smaller(larger(at, 0), size)


def fits(ctx: Context, count: Dim, size: Dim) -> None:
    """torch takes sizes for 2 at least: at smaller ones a part may be shorter than it says."""
    if isinstance(count, int) and not isinstance(size, int):
        ctx.require(tir.GE.make(size, count))


def _size_of_operand(ctx: Context, axis: int) -> Any:
    """torch's symbol for a size of the first operand; None where the graph does not show it."""
    at: Any = ctx.node.args[0] if ctx.node is not None and ctx.node.args else None
    meta = at.meta.get("val") if isinstance(at, Node) else None
    return meta.shape[axis] if isinstance(meta, torch.Tensor) else None


def place_of(ctx: Context, index: Any, size: Dim) -> Dim:
    """An index counted from the front; of a number that is data each call sees the sign."""
    if isinstance(index, int):
        return index + size if index < 0 else index
    if ctx.never_negative(index):
        return index
    return tir.simplify(tir.if_then_else(index < 0, index + size, index))


@aten("narrow")
def narrow(ctx: Context, self: Expr, dim: int, start: Any, length: Any) -> Expr:
    size = dims_of(self)[axis_of(dim, ndim_of(self))]
    if all(isinstance(n, int) for n in (size, start, length)) and (length != size):
        low = place_of(ctx, start, size)
        return R.strided_slice(self, [dim], [low], [low + length])
    return slice_(ctx, self, dim, start, length=length)


@aten("slice.Tensor", "slice_copy.Tensor")
def slice_(
    ctx: Context,
    self: Expr,
    dim: int = 0,
    start: Any = None,
    end: Any = None,
    step: int = 1,
    length: Any = None,
) -> Expr:
    axis = axis_of(dim, ndim_of(self))
    size = dims_of(self)[axis]
    low = bound_of(ctx, start, size, 0, axis)
    fresh = ctx.symbols.fresh(ctx.out.shape[axis])
    if fresh is not None:  # bounds are data, and so is the number of elements
        if length is None:
            high = larger(low, bound_of(ctx, end, size, size, axis))
        else:
            high = tir.simplify(low + length)
        ctx.symbols.define(fresh, tir.as_dim(tir.simplify((high - low + step - 1) // step)))
        return take_range(self, axis, low, high, step)
    count = ctx.dims()[axis]
    if isinstance(size, int) and count == size and step == 1:
        return self
    if all(isinstance(v, int | None) for v in (size, start, end)) and length is None:
        # Of numbers the bounds stay as the program has them.
        given = start or 0, INT64_MAX if end is None else end
        return R.strided_slice(self, [dim], [given[0]], [given[1]], [step])
    if step == 1:
        fits(ctx, count, size)
        high = low + count  # what torch has made of an end beyond the size
        high = tir.simplify(high) if isinstance(high, tir.PrimExpr) else high
    else:
        high = bound_of(ctx, end, size, size, axis)
    return take_range(self, axis, low, high, step)


@aten("select.int", "select_copy.int")
def select(ctx: Context, self: Expr, dim: int, index: Any) -> Expr:
    axis = axis_of(dim, ndim_of(self))
    at = place_of(ctx, index, dims_of(self)[axis])
    if isinstance(at, int):
        return R.take(self, scalar(at, "int64"), dim)
    one = take_range(self, axis, at, at + 1)
    return ctx.reshape(one, ctx.dims())


@aten(
    "split.Tensor split_copy.Tensor unsafe_split.Tensor chunk unsafe_chunk",
    ignored="split_size chunks",
)
def split(ctx: Context, self: Expr, dim: int = 0) -> list[Expr]:
    """Parts of one size; the last one may be smaller."""
    axis = axis_of(dim, ndim_of(self))
    sizes = [ctx.dims(i)[axis] for i in range(len(ctx.out))]
    if len(sizes) > 1 and all(isinstance(s, int) and s == sizes[0] for s in sizes):
        return list(ctx.emit(R.split(self, len(sizes), dim)))
    return split_with_sizes(ctx, self, dim)


@aten("split_with_sizes split_with_sizes_copy split.sizes", ignored="split_size split_sizes")
def split_with_sizes(ctx: Context, self: Expr, dim: int = 0) -> list[Expr]:
    """The parts' sizes are those that torch gives."""
    axis = axis_of(dim, ndim_of(self))
    sizes = [ctx.dims(i)[axis] for i in range(len(ctx.out))]
    if len(sizes) == 1:
        return [self]
    if all(isinstance(s, int) for s in sizes):
        ends = [sum(sizes[: i + 1]) for i in range(len(sizes) - 1)]  # type: ignore[arg-type]
        return list(ctx.emit(R.split(self, ends, dim)))
    return parts_of(ctx, self, axis)


def parts_of(ctx: Context, x: Expr, axis: int) -> list[Expr]:
    """Parts of the sizes that torch gives, one after the other."""
    made: list[Expr] = []
    start: Dim = 0
    for i in range(len(ctx.out)):
        stop = tir.simplify(start + ctx.dims(i)[axis])
        made.append(take_range(x, axis, start, stop))
        start = stop
    return made


@aten("unbind.int", "unbind_copy.int")
def unbind(ctx: Context, self: Expr, dim: int = 0) -> list[Expr]:
    axis = axis_of(dim, ndim_of(self))
    count = len(ctx.out)
    if count == 1:
        return [ctx.reshape(self, ctx.dims(0))]
    parts = ctx.emit(R.split(self, count, axis))
    return [R.squeeze(part, [axis]) for part in parts]


@aten("diagonal", "diagonal_copy", "diag")
def diagonal(
    ctx: Context, self: Expr, offset: int = 0, dim1: int = 0, dim2: int = 1, diagonal: int = 0
) -> Expr:
    """Flatten the two axes; the diagonal has a stride of one row and one column."""
    shape = dims_of(self)
    offset = offset or diagonal
    if len(shape) < 2:
        raise Unsupported("diag of a vector")
    a, b = axis_of(dim1, len(shape)), axis_of(dim2, len(shape))
    rows, columns = shape[a], shape[b]
    others = [i for i in range(len(shape)) if i not in (a, b)]
    x = _permute(self, [*others, a, b])
    lead = [shape[i] for i in others]
    count = ctx.dims()[-1]
    # torch takes sizes for 2 at least, and may have left out that there is no diagonal.
    ends = smaller(rows + min(offset, 0), columns - max(offset, 0))
    ctx.require(tir.EQ.make(larger(ends, 0), count))
    if isinstance(count, int) and count == 0:
        return ctx.full(ctx.dims(), 0, dtype_of(self))
    first = offset if offset >= 0 else -offset * columns
    flat = R.reshape(x, (*lead, rows * columns))
    last = first + (count - 1) * (columns + 1) + 1
    return take_range(flat, len(lead), first, last, columns + 1)


def diagonal_alone(ctx: Context, x: Expr) -> Expr:
    """Each matrix with zeros beside its diagonal."""
    *_, rows, columns = dims_of(x)
    on = R.equal(ctx.grid((rows, 1), (1, 0)), ctx.grid((1, columns), (0, 1)))
    return R.where(on, x, scalar(0, dtype_of(x)))


@aten("trace")
def trace(ctx: Context, self: Expr) -> Expr:
    return R.sum(diagonal_alone(ctx, ctx.cast(self, ctx.dtype())))


# -- joining -------------------------------------------------------------------------------------
@aten("cat", "concat", "concatenate")
def cat(ctx: Context, tensors: Sequence[Expr], dim: int = 0) -> Expr:
    """In the result's dtype, without torch's legacy empty vectors."""
    used = [t for t in tensors if not (ndim_of(t) == 1 and dims_of(t) == (0,))]
    parts = [ctx.cast(t, ctx.dtype()) for t in used or list(tensors)]
    return joined(parts, dim)


@aten("stack")
def stack(ctx: Context, tensors: Sequence[Expr], dim: int = 0) -> Expr:
    shape = ctx.dims()
    axis = dim % len(shape)
    thin = (*shape[:axis], 1, *shape[axis + 1 :])
    parts = [ctx.cast(t, ctx.dtype()) for t in tensors]
    if len(parts) == 1:
        return ctx.reshape(parts[0], thin)
    return R.stack(parts, dim)


# -- triangles and the pixels of images ----------------------------------------------------------
aten("tril")(lambda ctx, self, diagonal=0: R.tril(self, diagonal))
aten("triu")(lambda ctx, self, diagonal=0: R.triu(self, diagonal))


@aten("pixel_shuffle")
def pixel_shuffle(ctx: Context, self: Expr, upscale_factor: int) -> Expr:
    return R.nn.pixel_shuffle(self, upscale_factor)


@aten("pixel_unshuffle")
def pixel_unshuffle(ctx: Context, self: Expr, downscale_factor: int) -> Expr:
    *lead, channels, _, _ = dims_of(self)
    r = downscale_factor
    *_, high, wide = ctx.dims()
    n = len(lead)
    x = R.reshape(self, (*lead, channels, high, r, wide, r))
    order = [*range(n), n, n + 2, n + 4, n + 1, n + 3]
    return R.reshape(R.permute_dims(x, order), ctx.dims())


@aten("channel_shuffle")
def channel_shuffle(ctx: Context, self: Expr, groups: Any) -> Expr:
    lead, channels, *rest = dims_of(self)
    x = R.reshape(self, (lead, groups, tir.simplify(channels // groups), *rest))
    order = [0, 2, 1, *range(3, 3 + len(rest))]
    return R.reshape(R.permute_dims(x, order), ctx.dims())


@aten("unfold")
def unfold(ctx: Context, self: Expr, dimension: int, size: int, step: int) -> Expr:
    axis = axis_of(dimension, ndim_of(self))
    taken = R.take(self, ctx.grid((ctx.dims()[axis], size), (step, 1)), axis)
    ndim = ndim_of(self)
    order = [i if i <= axis else i + 1 for i in range(ndim)] + [axis + 1]
    return R.permute_dims(taken, order)


@aten("meshgrid", "meshgrid.indexing")
def meshgrid(ctx: Context, tensors: Sequence[Expr], indexing: str = "ij") -> list[Expr]:
    """With "xy" the first two grids lie along each other's axes."""
    grids = ctx.emit(R.meshgrid(list(tensors), indexing))
    return [grids[i] for i in range(len(tensors))]


@aten("diff")
def diff(
    ctx: Context,
    self: Expr,
    n: int = 1,
    dim: int = -1,
    prepend: Expr | None = None,
    append: Expr | None = None,
) -> Expr:
    """Booleans differ by exclusive or."""
    axis = axis_of(dim, ndim_of(self))
    parts = [ctx.cast(x, ctx.dtype()) for x in (prepend, self, append) if x is not None]
    x = ctx.emit(joined(parts, axis))
    minus = R.logical_xor if ctx.dtype() == "bool" else R.subtract
    for _ in range(n):
        size = dims_of(x)[axis]
        if isinstance(size, int) and size == 0:
            break
        later = R.strided_slice(x, [axis], [1], [size])
        x = ctx.emit(minus(later, R.strided_slice(x, [axis], [0], [size - 1])))
    return x
