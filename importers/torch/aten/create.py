# ruff: noqa: D103  (a converter's documentation is the ATen schema; it says what differs)
"""Making tensors: constant fills, ranges, and scalars."""

from __future__ import annotations

from typing import Any

import torch

from relax2xla import op as R
from relax2xla import tir
from relax2xla.dtypes import is_float
from relax2xla.importers.shared.gaps import Unsupported
from relax2xla.importers.torch.engine.context import Context, larger
from relax2xla.importers.torch.engine.registry import Function, aten
from relax2xla.importers.torch.engine.weights import as_numpy
from relax2xla.ir import Constant, Expr

# Shape and dtype are those of torch's result. Memory that torch leaves undefined holds zeros here.
FILLS: dict[str, Any] = {
    "zeros": 0,
    "zeros_like": 0,
    "new_zeros": 0,
    "_efficientzerotensor": 0,
    "empty.memory_format": 0,
    "empty_like": 0,
    "new_empty": 0,
    "empty_strided": 0,
    "empty_permuted": 0,
    "new_empty_strided": 0,
    "ones": 1,
    "ones_like": 1,
    "new_ones": 1,
    "zero": 0,
}


def _fill(value: Any) -> Function:
    def convert(
        ctx: Context,
        size: Any = None,
        self: Any = None,
        dtype: Any = None,
        stride: Any = None,
        physical_layout: Any = None,
    ) -> Expr:
        return ctx.full(ctx.dims(), value, ctx.dtype())

    return convert


for _name, _value in FILLS.items():
    aten(_name)(_fill(_value))


@aten("full", "full_like", "new_full")
def full(
    ctx: Context, fill_value: Any, size: Any = None, self: Any = None, dtype: Any = None
) -> Expr:
    return ctx.full(ctx.dims(), fill_value, ctx.dtype())


@aten("fill.Scalar", "fill.Tensor")
def fill(ctx: Context, self: Expr, value: Any) -> Expr:
    return ctx.full(ctx.dims(), value, ctx.dtype())


@aten("scalar_tensor")
def scalar_tensor(ctx: Context, s: Any, dtype: Any = None) -> Expr:
    return ctx.tensor(s, ctx.dtype())


@aten("arange", "arange.start", "arange.start_step")
def arange(ctx: Context, end: Any, start: Any = 0, step: Any = 1, dtype: Any = None) -> Expr:
    """Steps are counted in the dtype of the arguments, as in torch; then converted."""
    kind = ctx.dtype()
    if any(isinstance(v, float) for v in (start, end, step)) and not is_float(kind):
        exact = R.arange(start, end, step, "float64")
        return R.astype(exact, kind)
    return R.arange(start, end, step, kind)


@aten("linspace")
def linspace(ctx: Context, start: Any, end: Any, steps: Any, dtype: Any = None) -> Expr:
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


@aten("eye", "eye.m")
def eye(ctx: Context, n: Any, m: Any = None, dtype: Any = None) -> Expr:
    rows, columns = ctx.dims()
    return R.eye(rows, columns, 0, ctx.dtype())
