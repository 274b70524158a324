"""Gathers: take, gather_*, index_tensor, one_hot.

Sources: TVM Relax v0.20 for names and inference, numpy, torch and ONNX for values. In the gathers
of several axes (``gather_elements``, ``gather_nd``, ``index_tensor``) negative indices count from
the end, as in all three; indices out of bounds are clamped to the ends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from relax2xla.dtypes import is_float, is_kind
from relax2xla.errors import LegalizeError, OpError
from relax2xla.ir.expr import Constant, Expr
from relax2xla.ir.op import Rule, op
from relax2xla.ir.op_param import PrimLike, TupleLike
from relax2xla.ir.struct_info import PrimStructInfo, StructInfo, TensorStructInfo, show
from relax2xla.ir.traits import Opaque, Takes
from relax2xla.op.binary import as_operand, broadcasted
from relax2xla.op.shared.checks import (
    INTEGER,
    fields_of,
    norm_axis,
    tensor,
    want_fields,
    want_tensor,
)
from relax2xla.op.shared.lowering import (
    broadcast_in_dim,
    broadcast_together,
    compare,
    concatenate,
    convert,
    dtype_of,
    full,
    full_like,
    hlo,
    index_constant,
    iota,
    relax,
    reshape,
    scalar,
    select,
    shape_of,
    take_slice,
)
from relax2xla.op.shared.scalars import number, prim_of, scalar_dtype

MODES: Final = ("fast", "wrap", "clip", "nan")


# ---- lowering
def wide_index(indices: Expr) -> Expr:
    """Indices in int32 or int64, which hold every position."""
    dtype = dtype_of(indices)
    if dtype in ("int32", "int64"):
        return indices
    return convert(indices, "int64" if dtype in ("uint32", "uint64") else "int32")


def from_end(indices: Expr, size: int) -> Expr:
    """Negative indices counted from the end of an axis of ``size``."""
    if is_kind(dtype_of(indices), "uint"):
        return indices
    shifted = hlo("add", indices, full_like(indices, size))
    return select(compare(indices, full_like(indices, 0), "LT"), shifted, indices)


def _gather(
    x: Expr, indices: Expr, dimension_numbers: Mapping[str, Any], slice_sizes: Sequence[int]
) -> Expr:
    """StableHLO's gather; nothing at all of an axis without elements, of which it has no slice."""
    made = hlo(
        "gather",
        x,
        indices,
        dimension_numbers=dimension_numbers,
        slice_sizes=tuple(slice_sizes),
    )
    pairs = zip(shape_of(x), slice_sizes, strict=True)
    bare = [i for i, (d, n) in enumerate(pairs) if isinstance(d, int) and n == 1 and d == 0]
    if not bare:
        return made
    if 0 not in shape_of(made):
        raise LegalizeError(
            f"axis {bare[0]} of {show(x.struct_info)} has no elements to take; the indices are "
            f"{show(indices.struct_info)}"
        )
    return full(shape_of(made), 0, dtype_of(x))


def gather_axis(x: Expr, indices: Expr, axis: int) -> Expr:
    """``numpy.take(x, indices, axis)`` with indices clamped to the ends."""
    shape, count = shape_of(x), len(shape_of(indices))
    offsets = [*range(axis), *range(axis + count, len(shape) - 1 + count)]
    return _gather(
        x,
        indices,
        dimension_numbers={
            "offset_dims": tuple(offsets),
            "collapsed_slice_dims": (axis,),
            "start_index_map": (axis,),
            "index_vector_dim": count,
        },
        slice_sizes=tuple(1 if i == axis else d for i, d in enumerate(shape)),
    )


def gather_vectors(x: Expr, indices: Expr, batch_dims: int = 0) -> Expr:
    """ONNX's GatherND: the last axis of ``indices`` holds positions in the axes after the batch."""
    shape, index_shape = shape_of(x), shape_of(indices)
    depth = index_shape[-1]
    batch = tuple(range(batch_dims))
    mapped = tuple(range(batch_dims, batch_dims + depth))
    lead = len(index_shape) - 1
    rest = len(shape) - batch_dims - depth
    return _gather(
        x,
        indices,
        dimension_numbers={
            "offset_dims": tuple(range(lead, lead + rest)),
            "collapsed_slice_dims": mapped,
            "operand_batching_dims": batch,
            "start_indices_batching_dims": batch,
            "start_index_map": mapped,
            "index_vector_dim": lead,
        },
        slice_sizes=tuple(1 if i < batch_dims + depth else d for i, d in enumerate(shape)),
    )


def index_vectors(indices: Expr, sizes: Sequence[int]) -> Expr:
    """Negative entries of index vectors (the last axis) counted from the end of their axis."""
    if is_kind(dtype_of(indices), "uint"):
        return indices
    shape = shape_of(indices)
    limits = index_constant(sizes, dtype_of(indices))
    shifted = hlo("add", indices, broadcast_in_dim(limits, shape, [len(shape) - 1]))
    return select(compare(indices, full_like(indices, 0), "LT"), shifted, indices)


# ---- take
def _index_info(indices: Expr, name: str) -> TensorStructInfo:
    info = indices.struct_info
    if isinstance(info, PrimStructInfo):
        info = TensorStructInfo.make((), info.dtype)
    if not isinstance(info, TensorStructInfo):
        raise OpError(f"`{name}` must be a tensor or a scalar; got {show(info)}")
    if info.dtype and info.dtype not in INTEGER:
        raise OpError(f"`{name}` must be integers; got {info.dtype}. Cast them first: R.astype")
    return info


def _take_axis(axis: int | None, ndim: int) -> int:
    if axis is not None:
        return norm_axis(axis, ndim)
    if ndim != 1:
        raise OpError(f"take needs `axis` for a tensor of rank {ndim}")
    return 0


@op("relax.take", Takes())
def take(x: Expr, indices: Expr, axis: int | None = None, mode: str = "fast") -> StructInfo:
    """The parts of ``x`` at positions along an axis.

    ``mode`` says what indices out of bounds do: "fast" and "clip" take the nearest end (so a
    negative index takes position 0), "wrap" counts modulo the size, "nan" gives NaN.

    x: (*s), any dtype; indices: (*t), integers, or a scalar; axis: may be left out if ``x`` has one
    result: s[:axis] + t + s[axis + 1:], dtype of ``x``
    """
    info, where = want_tensor(x, "x"), _index_info(indices, "indices")
    if mode not in MODES:
        raise OpError(f"`mode` must be one of {', '.join(MODES)}; got {mode!r}")
    if mode == "nan" and info.dtype and not is_float(info.dtype):
        raise OpError(f'mode "nan" needs floating point; `x` is {info.dtype}')
    if info.ndim == -1:
        return tensor(None, info.dtype, like=info)
    at = _take_axis(axis, info.ndim)
    if where.ndim == -1:
        return tensor(None, info.dtype, like=info)
    if info.dims is None or where.dims is None:
        return tensor(None, info.dtype, info.ndim - 1 + where.ndim, info)
    return tensor((*info.dims[:at], *where.dims, *info.dims[at + 1 :]), info.dtype, like=info)


@take.legalize
def _(x: Expr, indices: Expr, axis: int | None = None, mode: str = "fast") -> Expr:
    shape, indices = shape_of(x), wide_index(as_operand(indices))
    at = _take_axis(axis, len(shape))
    size = shape[at]
    if isinstance(indices, Constant) and indices.data.shape == () and mode != "wrap":
        # One position that is known is a slice, which XLA fuses; a gather it does not.
        place = int(indices.data)
        # Of an axis of unknown size only the first position is known to be there.
        known = isinstance(size, int)
        if (0 <= place < size or (mode != "nan" and size)) if known else place == 0:
            place = min(max(place, 0), size - 1) if known else place
            first = [place if i == at else 0 for i in range(len(shape))]
            last = [first[i] + 1 if i == at else d for i, d in enumerate(shape)]
            return reshape(take_slice(x, first, last), (*shape[:at], *shape[at + 1 :]))
    if mode == "wrap":
        indices = relax("floor_mod", indices, full_like(indices, size))
    result = gather_axis(x, indices, at)
    if mode != "nan":
        return result
    inside = hlo(
        "and",
        compare(indices, full_like(indices, 0), "GE"),
        compare(indices, full_like(indices, size), "LT"),
    )
    axes = range(at, at + len(shape_of(indices)))
    return select(broadcast_in_dim(inside, shape_of(result), list(axes)), result, scalar_nan(x))


def scalar_nan(x: Expr) -> Expr:
    """NaN in the dtype of ``x``."""
    return scalar(float("nan"), dtype_of(x))


# ---- gathers along several axes
@op("relax.gather_elements", Opaque())
def gather_elements(data: Expr, indices: Expr, axis: int = 0) -> StructInfo:
    """``result[i, j] = data[indices[i, j], j]`` for axis 0, and so on, as torch's gather.

    data: (*s), any dtype; indices: integers of as many axes, on the other axes not larger than s
    result: shape of ``indices``, dtype of ``data``
    """
    info, where = want_tensor(data, "data"), want_tensor(indices, "indices", INTEGER)
    if info.ndim != -1 and where.ndim != -1 and info.ndim != where.ndim:
        raise OpError(f"data has rank {info.ndim}, but indices rank {where.ndim}")
    if info.ndim != -1:
        at = norm_axis(axis, info.ndim)
        for i, (d, n) in enumerate(zip(info.dims or (), where.dims or (), strict=False)):
            if i != at and isinstance(d, int) and isinstance(n, int) and n > d:
                raise OpError(f"`indices` has size {n} on axis {i}, more than {d} of `data`")
    return tensor(where.dims, info.dtype, where.ndim, info)


@gather_elements.legalize
def _(data: Expr, indices: Expr, axis: int = 0) -> Expr:
    shape, index_shape = shape_of(data), shape_of(indices)
    at = norm_axis(axis, len(shape))
    limit = [d if i == at else n for i, (d, n) in enumerate(zip(shape, index_shape, strict=True))]
    data = take_slice(data, [0] * len(shape), limit)
    indices = from_end(wide_index(indices), shape[at])
    others = tuple(i for i in range(len(shape)) if i != at)
    return _gather(
        data,
        indices,
        dimension_numbers={
            "offset_dims": (),
            "collapsed_slice_dims": (at,),
            "operand_batching_dims": others,
            "start_indices_batching_dims": others,
            "start_index_map": (at,),
            "index_vector_dim": len(shape),
        },
        slice_sizes=(1,) * len(shape),
    )


@op("relax.gather_nd", Opaque())
def gather_nd(data: Expr, indices: Expr, batch_dims: int = 0) -> StructInfo:
    """``result[i] = data[tuple(indices[i])]``: the last axis of ``indices`` holds positions.

    data: (*b, *s), any dtype; indices: (*b, *t, k), integers; b: ``batch_dims`` axes
    result: (*b, *t, *s[k:]), dtype of ``data``
    """
    info, where = want_tensor(data, "data"), want_tensor(indices, "indices", INTEGER)
    if batch_dims < 0:
        raise OpError(f"`batch_dims` must not be negative; got {batch_dims}")
    if where.ndim == 0:
        raise OpError("`indices` must have rank 1 or more")
    if where.dims is None or info.ndim == -1:
        return tensor(None, info.dtype, like=info)
    depth = where.dims[-1]
    if not isinstance(depth, int):
        return tensor(None, info.dtype, like=info)
    if batch_dims > len(where.dims) - 1 or depth > info.ndim - batch_dims:
        raise OpError(
            f"index vectors of {depth} entries after {batch_dims} batch axes do not fit "
            f"{show(info)}; `indices` is {show(where)}"
        )
    ndim = len(where.dims) - 1 + info.ndim - batch_dims - depth
    if info.dims is None:
        return tensor(None, info.dtype, ndim, info)
    return tensor((*where.dims[:-1], *info.dims[batch_dims + depth :]), info.dtype, like=info)


@gather_nd.legalize
def _(data: Expr, indices: Expr, batch_dims: int = 0) -> Expr:
    depth = shape_of(indices)[-1]
    sizes = shape_of(data)[batch_dims : batch_dims + depth]
    return gather_vectors(data, index_vectors(wide_index(indices), sizes), batch_dims)


def index_infos(data: TensorStructInfo, indices: Expr) -> list[TensorStructInfo]:
    """Struct infos of a tuple of index tensors, of which ``data`` must have enough axes."""
    infos: list[TensorStructInfo] = []
    for i, f in enumerate(want_fields(indices, "indices")):
        if not isinstance(f, TensorStructInfo) or (f.dtype and f.dtype not in (*INTEGER,)):
            raise OpError(f"`indices[{i}]` must be a tensor of integers; got {show(f)}")
        infos.append(f)
    if not infos:
        raise OpError("`indices` needs at least one tensor")
    if data.ndim != -1 and len(infos) > data.ndim:
        raise OpError(f"{len(infos)} index tensors are too many for {show(data)}")
    return infos


def stacked_indices(data: Expr, indices: Expr) -> Expr:
    """Index tensors broadcast together and put side by side as index vectors."""
    parts = [wide_index(i) for i in fields_of(indices)]
    dtype = "int64" if any(dtype_of(p) == "int64" for p in parts) else "int32"
    shape = shape_of(data)
    parts = [from_end(convert(p, dtype), shape[i]) for i, p in enumerate(parts)]
    parts = broadcast_together(*parts)
    return concatenate([reshape(p, (*shape_of(p), 1)) for p in parts], len(shape_of(parts[0])))


@op("relax.index_tensor", Opaque())
def index_tensor(data: Expr, indices: TupleLike) -> Rule:
    """``data[indices]`` with a tensor of integers for each of the first axes, as in numpy.

    data: (*s), any dtype; indices: a tuple of k integer tensors that broadcast to (*t)
    result: (*t, *s[k:]), dtype of ``data``
    """
    info = want_tensor(data, "data")
    infos = index_infos(info, indices)
    joint = broadcasted(infos, "int64", "the fields of `indices`")
    dims = None
    if info.dims is not None and joint.dims is not None:
        dims = (*joint.dims, *info.dims[len(infos) :])
    known = info.ndim != -1 and joint.ndim != -1
    ndim = joint.ndim + info.ndim - len(infos) if known else -1

    def lower() -> Expr:
        return gather_vectors(data, stacked_indices(data, indices))

    return tensor(dims, info.dtype, ndim, info), lower


# ---- one-hot
@op("relax.one_hot", Opaque())
def one_hot(
    indices: Expr, on_value: PrimLike, off_value: PrimLike, depth: int, axis: int = -1
) -> StructInfo:
    """``on_value`` where the new axis is at the index, ``off_value`` elsewhere.

    An index outside 0..depth-1 has ``off_value`` everywhere.

    indices: (*s), integers; on_value, off_value: scalars of one dtype; axis: of the new axis
    result: (*s) with ``depth`` inserted at ``axis``, dtype of ``on_value``
    """
    info = want_tensor(indices, "indices", INTEGER)
    prim_of(on_value, "on_value")
    prim_of(off_value, "off_value")
    on, off = scalar_dtype(on_value), scalar_dtype(off_value)
    if on != off:
        raise OpError(f"`on_value` is {on}, but `off_value` is {off}; they must have one dtype")
    if depth < 1:
        raise OpError(f"`depth` must be positive; got {depth}")
    if info.ndim == -1:
        return tensor(None, on, like=info)
    at = norm_axis(axis, info.ndim + 1)
    if info.dims is None:
        return tensor(None, on, info.ndim + 1, info)
    return tensor((*info.dims[:at], depth, *info.dims[at:]), on, like=info)


@one_hot.legalize
def _(indices: Expr, on_value: PrimLike, off_value: PrimLike, depth: int, axis: int = -1) -> Expr:
    indices = wide_index(indices)
    shape = shape_of(indices)
    at = norm_axis(axis, len(shape) + 1)
    wide = (*shape[:at], depth, *shape[at:])
    spread = broadcast_in_dim(indices, wide, [i for i in range(len(wide)) if i != at])
    hit = compare(spread, iota(wide, at, dtype_of(indices)), "EQ")
    dtype = scalar_dtype(on_value)
    on, off = (scalar(number(v, "a value"), dtype) for v in (on_value, off_value))
    return select(hit, on, off)
