"""Operators that write into a copy: scatter_elements, scatter_nd, index_put, slice_scatter.

Sources: TVM Relax v0.20 for names and inference, ONNX and torch for values. Negative indices count
from the end; an update out of bounds is dropped. Where several updates meet in one place, "update"
keeps the last one on CPU (their order is not specified), every other reduction combines them all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from relax2xla.dtypes import is_float
from relax2xla.errors import OpError
from relax2xla.ir.expr import Expr
from relax2xla.ir.op import Rule, op
from relax2xla.ir.op_param import PrimLike, TupleLike
from relax2xla.ir.struct_info import StructInfo, TensorStructInfo, show
from relax2xla.ir.traits import Opaque
from relax2xla.op.binary import broadcasted
from relax2xla.op.index import from_end, index_infos, index_vectors, stacked_indices, wide_index
from relax2xla.op.shared.checks import INTEGER, common_dtype, differ, norm_axis, want_tensor
from relax2xla.op.shared.lowering import (
    broadcast_in_dim,
    broadcast_to,
    compare,
    concatenate,
    dtype_of,
    full,
    full_like,
    hlo,
    iota,
    known,
    pad,
    region,
    relax,
    reshape,
    scalar,
    scalar_region,
    select,
    shape_of,
    slice_axis,
    tensor_info,
)
from relax2xla.op.shared.scalars import dim_of, integer
from relax2xla.op.shared.traced import clip, count_up, size_of, spread_to
from relax2xla.op.slices import canonical, slice_length

ROWS: Final = {"add": "add", "mul": "multiply", "max": "maximum", "min": "minimum"}
REDUCTIONS: Final = ("update", "add", "mul", "mean", "max", "min")


def _combine(reduction: str, dtype: str) -> Expr:
    if reduction == "update":
        info = tensor_info((), dtype)
        return region([("a", info), ("b", info)], lambda a, b: b)
    return scalar_region(ROWS[reduction], dtype)


def scatter_vectors(data: Expr, indices: Expr, updates: Expr, reduction: str) -> Expr:
    """ONNX's ScatterND: index vectors are the last axis of ``indices``, in 0..size-1."""
    if reduction == "mean":
        return _scatter_mean(data, indices, updates)
    depth, lead = shape_of(indices)[-1], len(shape_of(indices)) - 1
    axes = tuple(range(depth))
    dtype = dtype_of(data)
    return hlo(
        "scatter",
        data,
        indices,
        updates,
        _combine(reduction, dtype),
        scatter_dimension_numbers={
            "update_window_dims": tuple(range(lead, len(shape_of(updates)))),
            "inserted_window_dims": axes,
            "scattered_dims_to_operand_dims": axes,
            "index_vector_dim": lead,
        },
        out=tensor_info(shape_of(data), dtype),
    )


def _scatter_mean(data: Expr, indices: Expr, updates: Expr) -> Expr:
    """The mean of what is there and all updates; of integers rounded down."""
    total = scatter_vectors(data, indices, updates, "add")
    ones = full(shape_of(updates), 1, dtype_of(data))
    count = scatter_vectors(full_like(data, 1), indices, ones, "add")
    name = "divide" if is_float(dtype_of(data)) else "floor_divide"
    return relax(name, total, count)


def _check_reduction(reduction: str) -> None:
    if reduction not in REDUCTIONS:
        raise OpError(f"`reduction` must be one of {', '.join(REDUCTIONS)}; got {reduction!r}")


@op("relax.scatter_elements", Opaque())
def scatter_elements(
    data: Expr, indices: Expr, updates: Expr, axis: int = 0, reduction: str = "update"
) -> StructInfo:
    """``data`` with ``result[indices[i, j], j] = updates[i, j]`` for axis 0, and so on.

    data: (*s), any dtype; indices: integers of as many axes; updates: shape of ``indices``, dtype
    of ``data``; reduction: "update", "add", "mul", "mean", "max" or "min"
    result: (*s), dtype of ``data``
    """
    info, where = want_tensor(data, "data"), want_tensor(indices, "indices", INTEGER)
    new = want_tensor(updates, "updates")
    common_dtype([info, new], ("data", "updates"))
    _check_reduction(reduction)
    ranks = {i.ndim for i in (info, where, new) if i.ndim != -1}
    if len(ranks) > 1:
        raise OpError(
            "data, indices and updates must have one rank; got "
            f"{', '.join(show(i) for i in (info, where, new))}"
        )
    if ranks:
        norm_axis(axis, ranks.pop())
    _same_shape(where, new)
    return info


def _same_shape(indices: TensorStructInfo, updates: TensorStructInfo) -> None:
    for a, b in zip(indices.dims or (), updates.dims or (), strict=False):
        if differ(a, b):
            raise OpError(
                f"updates must have the shape of indices; got {show(updates)} and {show(indices)}"
            )


@scatter_elements.legalize
def _(data: Expr, indices: Expr, updates: Expr, axis: int = 0, reduction: str = "update") -> Expr:
    shape, index_shape = shape_of(data), shape_of(indices)
    at = norm_axis(axis, len(shape))
    indices = from_end(wide_index(indices), shape[at])
    dtype = dtype_of(indices)
    columns = [indices if i == at else iota(index_shape, i, dtype) for i in range(len(shape))]
    vectors = concatenate([reshape(c, (*index_shape, 1)) for c in columns], len(shape))
    return scatter_vectors(data, vectors, updates, reduction)


@op("relax.scatter_nd", Opaque())
def scatter_nd(data: Expr, indices: Expr, updates: Expr, reduction: str = "update") -> StructInfo:
    """``data`` with ``result[tuple(indices[i])] = updates[i]``.

    data: (*s), any dtype; indices: (*t, k), integers; updates: (*t, *s[k:]), dtype of ``data``;
    reduction: "update", "add", "mul", "mean", "max" or "min"
    result: (*s), dtype of ``data``
    """
    info, where = want_tensor(data, "data"), want_tensor(indices, "indices", INTEGER)
    new = want_tensor(updates, "updates")
    common_dtype([info, new], ("data", "updates"))
    _check_reduction(reduction)
    if where.ndim == 0:
        raise OpError("`indices` must have rank 1 or more")
    if info.dims is None or where.dims is None or new.ndim == -1:
        return info
    depth = where.dims[-1]
    if not isinstance(depth, int):
        return info
    if depth > len(info.dims):
        raise OpError(
            f"the vectors in `indices`, of {depth} entries, are too long for `data`, {show(info)}"
        )
    expected = (*where.dims[:-1], *info.dims[depth:])
    wrong = new.ndim != len(expected) or any(
        differ(a, b) for a, b in zip(new.dims or (), expected, strict=False)
    )
    if wrong:
        text = ", ".join(map(str, expected))
        raise OpError(f"`updates` must have the shape ({text}); got {show(new)}")
    return info


@scatter_nd.legalize
def _(data: Expr, indices: Expr, updates: Expr, reduction: str = "update") -> Expr:
    vectors = index_vectors(wide_index(indices), shape_of(data)[: shape_of(indices)[-1]])
    return scatter_vectors(data, vectors, updates, reduction)


@op("relax.index_put", Opaque())
def index_put(data: Expr, indices: TupleLike, values: Expr, accumulate: bool = False) -> StructInfo:
    """``data`` with ``result[indices] = values`` (``+=`` with ``accumulate``), as in torch.

    data: (*s), any dtype; indices: a tuple of k integer tensors that broadcast to (*t); values:
    broadcasts to (*t, *s[k:]), dtype of ``data``
    result: (*s), dtype of ``data``
    """
    info, new = want_tensor(data, "data"), want_tensor(values, "values")
    common_dtype([info, new], ("data", "values"))
    infos = index_infos(info, indices)
    joint = broadcasted(infos, "int64", "the fields of `indices`")
    if info.dims is not None and joint.dims is not None and new.dims is not None:
        target = (*joint.dims, *info.dims[len(infos) :])
        short = len(new.dims) > len(target)
        for a, b in zip(reversed(new.dims), reversed(target), strict=False):
            short |= isinstance(a, int) and isinstance(b, int) and a not in (1, b)
        if short:
            text = ", ".join(map(str, target))
            raise OpError(f"`values` must broadcast to ({text}); got {show(new)}")
    return info


@index_put.legalize
def _(data: Expr, indices: TupleLike, values: Expr, accumulate: bool = False) -> Expr:
    vectors = stacked_indices(data, indices)
    *lead, depth = shape_of(vectors)
    updates = broadcast_to(values, (*lead, *shape_of(data)[depth:]))
    return scatter_vectors(data, vectors, updates, "add" if accumulate else "update")


@op("relax.slice_scatter", Opaque())
def slice_scatter(
    input_tensor: Expr,
    src: Expr,
    start: PrimLike,
    end: PrimLike,
    step: PrimLike,
    axis: int = 0,
) -> Rule:
    """``input_tensor`` with ``[start:end:step]`` of an axis replaced by ``src``.

    input_tensor: (*s), any dtype; src: the shape of that slice, same dtype;
    start, end, step: integers, the last positive
    result: (*s), dtype of ``input_tensor``
    """
    info, new = want_tensor(input_tensor, "input_tensor"), want_tensor(src, "src")
    common_dtype([info, new], ("input_tensor", "src"))
    if info.ndim != -1 and new.ndim != -1 and info.ndim != new.ndim:
        raise OpError(f"`src` must have rank {info.ndim}; got {show(new)}")
    first, last, by = dim_of(start, "start"), dim_of(end, "end"), dim_of(step, "step")
    if isinstance(by, int) and by < 1:
        raise OpError(f"`step` must be positive; got {by}")

    def lower() -> Expr:
        shape = shape_of(input_tensor)
        at = norm_axis(axis, len(shape))
        first, last, by = integer(start, "start"), integer(end, "end"), integer(step, "step")
        if not known(shape[at], first, last, by):
            return _written(input_tensor, src, first, last, by, at)
        bounds = slice(first, last, by)
        where = range(*bounds.indices(shape[at]))
        if len(where) == 0:
            return input_tensor
        stop = where[-1] + 1
        if where.step == 1:
            parts = [
                slice_axis(input_tensor, at, 0, where.start),
                src,
                slice_axis(input_tensor, at, stop, shape[at]),
            ]
            return concatenate([p for p in parts if shape_of(p)[at]], at)
        low, high, inner = ([0] * len(shape) for _ in range(3))
        low[at], high[at], inner[at] = where.start, shape[at] - stop, where.step - 1
        spread = pad(src, low, high, scalar(0, dtype_of(src)), inner)
        return select(_mask(shape, at, where), spread, input_tensor)

    if info.ndim == -1:
        return info, lower
    at = norm_axis(axis, info.ndim)
    if info.dims is None or new.dims is None or first is None or last is None:
        return info, lower
    expected = list(info.dims)
    if isinstance(by, int):
        expected[at] = slice_length(first, last, by, info.dims[at], False)
    for i, (a, b) in enumerate(zip(expected, new.dims, strict=True)):
        if differ(a, b):
            raise OpError(f"`src` must have size {a} on axis {i}; got {show(new)}")
    return info, lower


def _written(x: Expr, src: Expr, first: int, last: int, step: int, axis: int) -> Expr:
    """:func:`slice_scatter` where a bound or the size is symbolic."""
    shape = shape_of(x)
    size, dtype = shape[axis], "int64"
    begin, end = (size_of(canonical(v, size, False), dtype) for v in (first, last))  # pyright: ignore[reportArgumentType]
    by = size_of(step, dtype)
    place = count_up((size,), 0, dtype) - begin
    row = clip(place // by, 0, size_of(shape_of(src)[axis], dtype))
    inside = (place >= 0) & (place < end - begin) & (place <= row * by)
    # One more, so that there is something to take where nothing is written.
    more = [int(i == axis) for i in range(len(shape))]
    wide = pad(src, [0] * len(shape), more, scalar(0, dtype_of(src)))
    new = relax("take", wide, spread_to(row, dtype, (size,)), axis=axis)
    mask = broadcast_in_dim(spread_to(inside, "bool", (size,)), shape, [axis])
    return select(mask, new, x)


def _mask(shape: Sequence[int], axis: int, where: range) -> Expr:
    hit = pad(
        full([len(where) if i == axis else d for i, d in enumerate(shape)], 1, "int8"),
        [where.start if i == axis else 0 for i in range(len(shape))],
        [shape[axis] - where[-1] - 1 if i == axis else 0 for i in range(len(shape))],
        scalar(0, "int8"),
        [where.step - 1 if i == axis else 0 for i in range(len(shape))],
    )
    return compare(hit, full_like(hit, 0), "NE")
