"""Making tensors: constant fills, ranges, and scalars."""

from __future__ import annotations

from typing import Any

import torch

from relax2xla import op as R
from relax2xla import tir
from relax2xla.dtypes import is_float
from relax2xla.importers.shared.gaps import Unsupported
from relax2xla.importers.torch.engine.context import Context, larger
from relax2xla.importers.torch.engine.converters import Function, aten
from relax2xla.importers.torch.engine.tensor_data import as_numpy
from relax2xla.ir import Constant, Expr

# Shape and dtype are those of torch's result. Memory that torch leaves undefined holds zeros here.
FILLS = (
    ("zeros zeros_like new_zeros _efficientzerotensor zero", 0, ""),
    ("empty.memory_format empty_like new_empty", 0, ""),
    ("empty_strided empty_permuted new_empty_strided", 0, "stride physical_layout"),
    ("ones ones_like new_ones", 1, ""),
)


def _fill(value: Any) -> Function:
    return lambda ctx: ctx.full(ctx.dims(), value, ctx.dtype())


for _names, _value, _layout in FILLS:
    aten(_names, ignored=f"size self dtype {_layout}")(_fill(_value))


@aten("full", "full_like", "new_full", ignored="size self dtype")
def full(ctx: Context, fill_value: Any) -> Expr:
    return ctx.full(ctx.dims(), fill_value, ctx.dtype())


aten("fill.Scalar", "fill.Tensor", ignored="self")(
    lambda ctx, value: ctx.full(ctx.dims(), value, ctx.dtype())
)
aten("scalar_tensor", ignored="dtype")(lambda ctx, s: ctx.tensor(s, ctx.dtype()))


@aten("arange", "arange.start", "arange.start_step", ignored="dtype")
def arange(ctx: Context, end: Any, start: Any = 0, step: Any = 1) -> Expr:
    """Steps are counted in the dtype of the arguments, as in torch; then converted."""
    kind = ctx.dtype()
    if any(isinstance(v, float) for v in (start, end, step)) and not is_float(kind):
        exact = R.arange(start, end, step, "float64")
        return R.astype(exact, kind)
    return R.arange(start, end, step, kind)


@aten("linspace", ignored="dtype")
def linspace(ctx: Context, start: Any, end: Any, steps: Any) -> Expr:
    """Between numbers it is a constant that torch computes; else from both ends to the middle."""
    if not any(isinstance(v, Expr | tir.PrimExpr) for v in (start, end, steps)):
        return Constant(as_numpy(torch.linspace(start, end, steps, dtype=ctx.out.dtype)))
    kind = ctx.dtype()
    if not is_float(kind):
        raise Unsupported(f"linspace of {kind} between values that are not constants")
    first, last, gaps = (ctx.tensor(v, kind) for v in (start, end, larger(steps - 1, 1)))
    step = R.divide(R.subtract(last, first), gaps)
    at = ctx.grid((steps,), (1,))
    up = R.add(first, R.multiply(step, ctx.cast(at, kind)))
    left = R.subtract(ctx.tensor(steps - 1, "int64"), at)
    down = R.subtract(last, R.multiply(step, ctx.cast(left, kind)))
    return R.where(R.less(at, ctx.tensor(steps // 2, "int64")), up, down)


@aten("eye", "eye.m", ignored="n m dtype")
def eye(ctx: Context) -> Expr:
    rows, columns = ctx.dims()
    return R.eye(rows, columns, 0, ctx.dtype())
