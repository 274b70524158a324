# ruff: noqa: D103  (a converter's documentation is the ONNX schema; it says what differs)
"""ai.onnx: tensors out of nothing: constants, ranges, matrices of ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from relax2xla import op as R
from relax2xla import tir
from relax2xla.dtypes import is_float
from relax2xla.importers.onnx.engine.context import Context
from relax2xla.importers.onnx.engine.converters import Ints, Lazy, Sizes, onnx_op
from relax2xla.importers.onnx.engine.known_values import (
    Array,
    Host,
    Text,
    axis_of,
    dims_of,
    dtype_of,
    integers,
    scalar,
    statics,
    text_of,
)
from relax2xla.importers.onnx.ops.strings import shaped
from relax2xla.importers.onnx.read.tensors import dtype_of_code
from relax2xla.importers.shared.dims import fold_dim
from relax2xla.importers.shared.gaps import Unsupported
from relax2xla.importers.shared.index import entry
from relax2xla.ir import Constant, Expr


@onnx_op("Constant")
def constant(
    ctx: Context,
    *,
    value: Array | None = None,
    sparse_value: Array | None = None,
    value_float: float | None = None,
    value_floats: list[float] | None = None,
    value_int: int | None = None,
    value_ints: list[int] | None = None,
    value_string: str | None = None,
    value_strings: list[str] | None = None,
) -> Array | Text:
    forms: list[tuple[Any, Any]] = [
        (value, None),
        (sparse_value, None),
        (value_float, np.float32),
        (value_floats, np.float32),
        (value_int, np.int64),
        (value_ints, np.int64),
    ]
    given = [np.asarray(v, dtype) for v, dtype in forms if v is not None]
    if value is not None and value.dtype == object:
        return Text(value)
    if value_string is not None and not given:
        return text_of([value_string], ())
    if value_strings is not None and not given:
        return text_of(value_strings, (len(value_strings),))
    if len(given) != 1:
        raise ValueError(f"it must have exactly one value; it has {len(given)}")
    return given[0]


@onnx_op("ConstantOfShape", since=9)
def constant_of_shape(ctx: Context, input: Sizes, *, value: Array | None = None) -> Expr:
    fill = np.zeros((), np.float32) if value is None else value.reshape(())
    return R.full(input, Constant(fill), str(fill.dtype))


@onnx_op("Shape", lacks="start end")
@onnx_op("Shape", since=15)
def shape(ctx: Context, data: Expr, *, start: int = 0, end: int | None = None) -> Host:
    return integers(dims_of(shaped(ctx, data))[start:end])


@onnx_op("Size")
def size(ctx: Context, data: Expr) -> Host:
    total: Any = 1
    for d in dims_of(shaped(ctx, data)):
        total = total * d
    return integers([fold_dim(total)], ndim=0)


@onnx_op("Range", since=11)
def range_(ctx: Context, start: Lazy, limit: Lazy, delta: Lazy, *, stash_type: int = 1) -> Expr:
    """Of symbolic integers; a range of numbers is folded, unless it is large.

    ``stash_type`` is the precision of sums in half precision; values are products here.
    """
    if isinstance(start, Expr) or isinstance(limit, Expr) or isinstance(delta, Expr):
        return range_at_run_time(ctx, start, limit, delta)
    if any(isinstance(v[0], float) for v in (start, limit, delta)):
        raise Unsupported(
            "a range of so many floating-point numbers that are known",
            "make one end of it an input, or a range of integers and cast that",
        )
    first, last, step = (tir.as_dim(v[0]) for v in (start, limit, delta))
    if not isinstance(step, int) or step == 0:
        raise Unsupported(f"a range with the step {step}")
    return R.arange(first, last, step, "int64")


def range_at_run_time(ctx: Context, *ends: Sequence[Any] | Expr) -> Expr:
    """Of ends of which one at least is a tensor; the others are numbers."""
    dtype = next(dtype_of(e) for e in ends if isinstance(e, Expr))
    start, limit, step = (
        ctx.emit(R.reshape(e, ()))
        if isinstance(e, Expr)
        else ctx.cast(R.reshape(ctx.vector(e), ()), dtype)
        if any(isinstance(v, tir.PrimExpr) for v in e)
        else scalar(e[0], dtype)
        for e in ends
    )
    wide = "float64" if is_float(dtype) else "int64"
    last = R.subtract(ctx.cast(limit, wide), ctx.cast(start, wide))
    if is_float(dtype):
        count = R.astype(R.ceil(R.divide(last, ctx.cast(step, wide))), "int64")
    else:
        # Rounded up, whatever the signs.
        count = R.negative(R.floor_divide(R.negative(last), ctx.cast(step, wide)))
    (n,) = ctx.sizes(ctx.emit(R.maximum(count, scalar(0, "int64"))), "the length of a range")
    index = R.astype(R.arange(0, n, 1, "int64"), dtype)
    return R.add(start, R.multiply(index, step))


@onnx_op("EyeLike", since=9)
def eye_like(ctx: Context, input: Expr, *, dtype: int | None = None, k: int = 0) -> Expr:
    kind = dtype_of(input) if dtype is None else dtype_of_code(dtype, "EyeLike").name
    rows, columns = dims_of(input)
    return R.eye(rows, columns, k, kind)


@onnx_op("Trilu", since=14)
def trilu(ctx: Context, input: Expr, k: Ints | None = None, *, upper: int = 1) -> Expr:
    offset = 0 if k is None else tir.as_dim(k[0])
    return R.triu(input, offset) if upper else R.tril(input, offset)


@onnx_op("OneHot", since=9)
def one_hot(ctx: Context, indices: Expr, depth: Sizes, values: Expr, *, axis: int = -1) -> Expr:
    """Negative indices count from the end; what is out of range has no hot entry."""
    count: Any = tir.as_dim(int(depth[0]) if isinstance(depth[0], float) else depth[0])
    index = R.astype(indices, "int64") if is_float(dtype_of(indices)) else indices
    index = ctx.wrap(index, count)
    off, on = (entry(values, i) for i in (0, 1))
    hot = R.one_hot(index, tir.const(1, "int8"), tir.const(0, "int8"), count, axis)
    if not isinstance(count, int):
        dims = list(dims_of(indices))
        dims.insert(axis_of(axis, len(dims) + 1), count)
        hot = ctx.pinned(hot, dims)
    return R.where(R.astype(hot, "bool"), on, off)


@onnx_op("ConstantFill")
def constant_fill(
    ctx: Context,
    input: Ints | None = None,
    *,
    dtype: int = 1,
    extra_shape: list[int] | None = None,
    input_as_shape: int = 0,
    shape: list[int] | None = None,
    value: float = 0.0,
) -> Expr:
    """Experimental until opset 8; light models of old releases make their weights with it."""
    if input is not None and not input_as_shape:
        raise Unsupported("ConstantFill with the shape of its input; use input_as_shape=1")
    given = list(shape or ()) if input is None else [*input, *(extra_shape or ())]
    kind = dtype_of_code(dtype, "ConstantFill").name
    return R.full(statics(given, "the shape"), scalar(value, kind), kind)
