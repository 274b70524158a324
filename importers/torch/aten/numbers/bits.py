"""The bits of floating-point numbers, and common divisors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from relax2xla import op as R
from relax2xla.dtypes import is_float
from relax2xla.importers.shared import loops as _loops
from relax2xla.importers.shared.gaps import Unsupported
from relax2xla.importers.torch.engine.context import (
    Context,
    axes_of,
    broadcast,
    chlo,
    dims_of,
    dtype_of,
    ndim_of,
    row,
    scalar,
    static,
)
from relax2xla.importers.torch.engine.converters import aten
from relax2xla.ir import Constant, Expr, TensorStructInfo

CARRIERS = {"float64": "int64", "float32": "int32", "float16": "int16", "bfloat16": "int16"}


def bits_of(x: Expr) -> Expr:
    """The bits of floating-point numbers as signed integers."""
    kind = CARRIERS.get(dtype_of(x))
    if kind is None:
        raise Unsupported(f"the bits of a {dtype_of(x)} tensor")
    return row("bitcast_convert", x, sinfo_args=TensorStructInfo(dims_of(x), kind))


@aten("signbit")
def signbit(ctx: Context, self: Expr) -> Expr:
    """Where the sign bit is set, for -0 and NaN too."""
    dtype = dtype_of(self)
    if is_float(dtype):
        return R.less(bits_of(self), scalar(0, CARRIERS[dtype]))
    if dtype == "bool" or dtype.startswith("uint"):
        return R.full_like(self, scalar(False, "bool"), "bool")
    return R.less(self, scalar(0, dtype))


@aten("copysign.Tensor", "copysign.Scalar")
def copysign(ctx: Context, self: Expr, other: Any) -> Expr:
    dtype = ctx.dtype()
    size = ctx.emit(R.abs(ctx.cast(self, dtype)))
    if not isinstance(other, Expr):
        return R.negative(size) if np.signbit(other) else size
    return R.where(signbit(ctx, ctx.emit(other)), R.negative(size), size)


@aten("nextafter")
def nextafter(ctx: Context, self: Expr, other: Expr) -> Expr:
    a, b = (ctx.emit(broadcast(x, ctx.dims())) for x in ctx.promote(self, other))
    still = ctx.emit(R.grad.no_grad(a))
    made = ctx.emit(chlo("next_after", still, R.grad.no_grad(b)))
    # It goes with the first operand, except where there is nowhere to go.
    goes = R.logical_and(R.not_equal(a, b), R.isfinite(a))
    step = R.where(goes, R.subtract(a, still), scalar(0, dtype_of(a)))
    return R.grad.differentiate_as(made, R.add(made, step))


@aten("frexp.Tensor")
def frexp(ctx: Context, self: Expr) -> tuple[Expr, Expr]:
    """By the bits in float64, in which every narrower number is normal."""
    dtype = dtype_of(self)
    x = ctx.emit(ctx.cast(self, "float64"))
    # Numbers below the normal ones of float64 are scaled first.
    low = ctx.emit(R.less(R.abs(x), scalar(2.0**-1022, "float64")))
    scaled = R.where(low, R.multiply(x, scalar(2.0**54, "float64")), x)
    bits = ctx.emit(bits_of(ctx.emit(scaled)))
    field = R.bitwise_and(
        row("shift_right_logical", bits, R.broadcast_to(scalar(52, "int64"), dims_of(x))),
        scalar(0x7FF, "int64"),
    )
    power = R.subtract(R.astype(field, "int32"), scalar(1022, "int32"))
    power = R.where(low, R.subtract(power, scalar(54, "int32")), power)
    kept = R.bitwise_and(bits, Constant(np.array(~(0x7FF << 52), np.int64)))
    half = R.bitwise_or(kept, scalar(1022 << 52, "int64"))
    part = row(
        "bitcast_convert", ctx.emit(half), sinfo_args=TensorStructInfo(dims_of(x), "float64")
    )
    odd = R.logical_or(R.equal(x, scalar(0.0, "float64")), R.logical_not(R.isfinite(x)))
    odd = ctx.emit(odd)
    power = ctx.emit(R.where(odd, scalar(0, "int32"), power))
    size = R.power(scalar(2.0, "float64"), R.negative(R.astype(power, "float64")))
    made = R.grad.differentiate_as(R.where(odd, x, part), R.multiply(x, size))
    return ctx.cast(made, dtype), power


def _gcd(ctx: Context, a: Expr, b: Expr) -> Expr:
    """Euclid's algorithm, on all elements at once until the last one is done."""
    dims, dtype = ctx.dims(), ctx.dtype()
    zero, one = scalar(0, dtype), scalar(1, dtype)
    start = [ctx.emit(R.abs(broadcast(x, dims))) for x in (a, b)]
    if 0 in dims:
        return start[0]

    def going(values: Sequence[Expr]) -> Expr:
        left = R.astype(R.not_equal(values[1], zero), "int32")
        return R.greater(R.max(left), scalar(0, "int32"))

    def step(values: Sequence[Expr]) -> Sequence[Expr]:
        x, y = values
        done = R.equal(y, zero)
        rest = row("remainder", x, ctx.emit(R.where(done, one, y)))
        return [R.where(done, x, y), R.where(done, zero, rest)]

    return _loops.while_loop(ctx.builder, going, step, start)[0]


@aten("gcd", "prims::gcd")
def gcd(ctx: Context, self: Expr, other: Expr) -> Expr:
    return _gcd(ctx, *ctx.promote(self, other, dtype=ctx.dtype()))


@aten("lcm")
def lcm(ctx: Context, self: Expr, other: Expr) -> Expr:
    dtype = ctx.dtype()
    a, b = (ctx.emit(x) for x in ctx.promote(self, other, dtype=dtype))
    common = ctx.emit(_gcd(ctx, a, b))
    zero = scalar(0, dtype)
    safe = R.where(R.equal(common, zero), scalar(1, dtype), common)
    whole = R.abs(R.multiply(R.floor_divide(a, safe), b))
    return R.where(R.equal(common, zero), zero, whole)


@aten("hash_tensor", ignored="keepdim")
def hash_tensor(ctx: Context, self: Expr, dim: Any = None, mode: int = 0) -> Expr:
    """Exclusive or of the bits: of integers as 64-bit ones, of other numbers as float64."""
    if mode != 0:
        raise Unsupported(f"hash_tensor with mode={mode}")
    x = ctx.emit(ctx.cast(self, "float64") if is_float(dtype_of(self)) else self)
    whole = TensorStructInfo(dims_of(x), "uint64")
    wide = dtype_of(x) == "float64"
    bits = row("bitcast_convert", x, sinfo_args=whole) if wide else ctx.cast(x, "uint64")
    axes = axes_of(dim, ndim_of(x))
    kept = [a for a in range(ndim_of(x)) if a not in axes]
    outer = [static(dims_of(x)[a], "a dimension") for a in kept]
    count = math.prod(static(dims_of(x)[a], "a dimension") for a in axes)
    if count == 0 or 0 in outer:
        return R.zeros(ctx.dims(), "uint64")
    y = R.reshape(R.permute_dims(bits, [*kept, *axes]), (*outer, count))
    last = len(outer)
    while count > 1:
        # One half meets the other; of an odd number the last one is left over.
        y, half = ctx.emit(y), count // 2
        parts = [R.strided_slice(y, [last], [i * half], [(i + 1) * half]) for i in range(2)]
        folded = R.bitwise_xor(*parts)
        if count % 2:
            folded = R.concat([folded, R.strided_slice(y, [last], [count - 1], [count])], last)
        y, count = folded, half + count % 2
    return ctx.reshape(y, ctx.dims())
