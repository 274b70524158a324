"""Making tensors: constant fills, ranges, and scalars."""

from __future__ import annotations

from typing import Any

import torch

from relax2xla import op as R
from relax2xla import tir
from relax2xla.dtypes import is_float
from relax2xla.importers.shared.gaps import Unsupported
from relax2xla.importers.torch.engine.context import Context, dtype_of, larger, static
from relax2xla.importers.torch.engine.converters import Function, aten, overloads
from relax2xla.importers.torch.engine.tensor_data import as_numpy
from relax2xla.ir import Constant, Expr, PrimValue

WINDOWS = ("default", "periodic", "periodic_alpha", "periodic_alpha_beta")
# Shape and dtype are those of torch's result. Memory that torch leaves undefined holds zeros here.
FILLS = (
    ("zeros new_zeros _efficientzerotensor", 0, ""),
    ("ones new_ones", 1, ""),
)
EMPTY = "empty.memory_format new_empty empty_strided empty_permuted new_empty_strided"


def _fill(value: int) -> Function:
    return lambda ctx: ctx.full(ctx.dims(), value, ctx.dtype())


def _like(of_shape: Function, of_tensor: Function) -> Function:
    def convert(ctx: Context, self: Expr) -> Expr:
        kind = ctx.dtype()
        return of_tensor(self) if kind == dtype_of(self) else of_shape(ctx.dims(), kind)

    return convert


for _names, _value, _layout in FILLS:
    aten(_names, ignored=f"size self dtype {_layout}")(_fill(_value))
aten(EMPTY, ignored="size self dtype stride physical_layout")(
    lambda ctx: R.zeros(ctx.dims(), ctx.dtype())
)
aten("zero zeros_like empty_like", ignored="dtype")(_like(R.zeros, R.zeros_like))
aten("ones_like", ignored="dtype")(_like(R.ones, R.ones_like))


@aten("full", "new_full", ignored="size self dtype")
def full(ctx: Context, fill_value: Any) -> Expr:
    return ctx.full(ctx.dims(), fill_value, ctx.dtype())


@aten("full_like", ignored="dtype")
def full_like(ctx: Context, self: Expr, fill_value: Any) -> Expr:
    """A small integer is an int32 whatever the tensor is, as TVM's importer has it: exact, too."""
    kind = ctx.dtype()
    if kind != dtype_of(self):
        return ctx.full(ctx.dims(), fill_value, kind)
    whole = type(fill_value) is int and abs(fill_value) < 1 << 8
    return R.full_like(self, ctx.tensor(fill_value, "int32" if whole else kind))


aten("fill.Scalar", "fill.Tensor", ignored="self")(
    lambda ctx, value: ctx.full(ctx.dims(), value, ctx.dtype())
)
aten("scalar_tensor", ignored="dtype")(lambda ctx, s: ctx.emit(ctx.tensor(s, ctx.dtype())))


@aten("arange", "arange.start", "arange.start_step", ignored="dtype")
def arange(ctx: Context, end: Any, start: Any = 0, step: Any = 1) -> Expr:
    """Steps are counted in the dtype of the arguments, as in torch; then converted."""
    kind = ctx.dtype()
    if any(isinstance(v, float) for v in (start, end, step)) and not is_float(kind):
        exact = R.arange(start, end, step, "float64")
        return R.astype(exact, kind)
    return R.arange(start, end, step, kind)


@aten(*overloads("hamming_window", WINDOWS), ignored="dtype")
def hamming_window(
    ctx: Context,
    window_length: Any,
    periodic: bool = True,
    alpha: float = 0.54,
    beta: float = 0.46,
) -> Expr:
    """A window of one element is 1, whatever the formula says."""
    size = static(window_length, "the length of the window")
    if size < 2:
        return R.ones((size,), ctx.dtype())
    a, b = (PrimValue(tir.const(v, "float32")) for v in (alpha, beta))
    return R.hamming_window(PrimValue(size), PrimValue(int(periodic)), a, b, ctx.dtype())


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
