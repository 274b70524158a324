"""Element-wise arithmetic, comparison, logic and activations.

Type promotion is torch's: operands are cast to the dtype that torch computes in, numbers become
constants of it. Most results have the dtype that torch's own meta information gives.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import torch

from relax2xla import op as R
from relax2xla.dtypes import is_float, is_integer, limits, numpy_dtype
from relax2xla.importers.shared import activations
from relax2xla.importers.shared.gaps import Unsupported
from relax2xla.importers.torch.aten.create import full_like
from relax2xla.importers.torch.aten.numbers.complex import is_complex
from relax2xla.importers.torch.engine.context import (
    NARROW,
    Context,
    as_bool,
    chlo,
    dtype_of,
    info_of,
    ndim_of,
    row,
    scalar,
    want_float,
)
from relax2xla.importers.torch.engine.converters import Function, aten, overloads
from relax2xla.ir import Expr

#: Whether clamping has no derivative by x at a bound, and half of it at one that is a tensor. It
#: was that of x before.
FLAT_BOUNDS: Final = torch.__version__ >= "2.14"

Unary = Callable[[Expr], Expr]
Binary = Callable[[Expr, Expr], Expr]


def sign(x: Expr) -> Expr:
    """The sign; that of a complex number is one of size 1, and turns with it."""
    made = R.sign(x)
    if not is_complex(x):
        return made
    zero = R.equal(x, scalar(0, dtype_of(x)))
    some = R.where(zero, scalar(1, dtype_of(x)), x)
    turned = R.divide(some, R.astype(R.abs(some), dtype_of(x)))
    return R.grad.differentiate_as(made, R.where(zero, scalar(0, dtype_of(x)), turned))


def half_to_even(x: Expr) -> Expr:
    """Round to the nearest integer, ties to even."""
    return R.round(x)


# -- one operand ---------------------------------------------------------------------------------
# By the names that torch has for an operator. Computed in floating point: integers become the
# default floating-point dtype first.
FLOAT_UNARY: dict[str, Unary] = {
    "acos arccos": R.acos,
    "acosh arccosh": R.acosh,
    "asin arcsin": R.asin,
    "asinh arcsinh": R.asinh,
    "atan arctan": R.atan,
    "atanh arctanh": R.atanh,
    "cos": R.cos,
    "cosh": R.cosh,
    "digamma": lambda x: digamma(x),
    "erf": R.erf,
    "erfc": lambda x: chlo("erfc", x),
    "erfinv special_erfinv": lambda x: chlo("erf_inv", x),
    "exp": R.exp,
    "expm1": lambda x: row("exponential_minus_one", x),
    "log": R.log,
    "log1p": lambda x: row("log_plus_one", x),
    "reciprocal": lambda x: R.divide(scalar(1, dtype_of(x)), x),
    "rsqrt": R.rsqrt,
    "sigmoid": R.sigmoid,
    "sin": R.sin,
    "sinh": R.sinh,
    "sqrt": R.sqrt,
    "tan": R.tan,
    "tanh": R.tanh,
}
# And in float32 at least.
WIDE_UNARY: dict[str, Unary] = {
    "exp2": lambda x: R.exp(R.multiply(x, scalar(math.log(2.0), dtype_of(x)))),
    "log10": lambda x: _log_to(10.0, x),
    "log2": lambda x: _log_to(2.0, x),
    "log_sigmoid": lambda x: R.negative(R.nn.softplus(R.negative(x))),
    "mish": activations.mish,
    "silu": R.nn.silu,
    "sinc": lambda x: _sinc(x),
    "special_entr": lambda x: _entr(x),
}
# The dtype stays; on integers and booleans these change nothing.
ROUNDING: dict[str, Unary] = {
    "ceil": R.ceil,
    "floor": R.floor,
    "round": half_to_even,
    "trunc fix": R.trunc,
}
SAME_UNARY: dict[str, Unary] = {
    "abs": R.abs,
    "bitwise_not": R.bitwise_not,
    "logical_not": lambda x: R.logical_not(as_bool(x)),
    "neg negative _neg_view": R.negative,
    "relu": R.nn.relu,
    "sgn sign": lambda x: sign(x),
    "isfinite": R.isfinite,
    "isinf": R.isinf,
    "isnan": R.isnan,
}


@aten("square")
def square(ctx: Context, self: Expr) -> Expr:
    return R.square(ctx.cast(self, ctx.dtype()))


def digamma(x: Expr) -> Expr:
    """At negative integers NaN; at 0 infinite, with a sign that is the opposite of the zero's."""
    zero, one = scalar(0, dtype_of(x)), scalar(1, dtype_of(x))
    pole = R.equal(x, zero)
    near = R.negative(R.divide(one, R.where(pole, x, one)))
    return R.where(pole, near, chlo("digamma", R.where(pole, one, x)))


def rise(ctx: Context, x: Expr, slope: Expr) -> Expr:
    """0, with a derivative by ``x`` that is known, and may be infinite; the second one is not."""
    dtype = dtype_of(x)
    zero, one = scalar(0, dtype), scalar(1, dtype)
    slope = ctx.emit(R.grad.no_grad(slope))
    steep = ctx.emit(R.isinf(slope))
    step = ctx.emit(R.subtract(x, R.grad.no_grad(x)))
    # The derivative of the square root of 0 is infinite.
    steeply = R.multiply(R.sign(slope), R.sqrt(R.where(steep, step, one)))
    return R.where(steep, steeply, R.multiply(step, R.where(steep, zero, slope)))


def _log_to(base: float, x: Expr) -> Expr:
    """Of complex numbers each part is divided by itself: that of 0 is -inf + 0j, without NaN."""
    natural = R.log(x)
    if is_complex(x):
        parts = (row(part, natural) for part in ("real", "imag"))
        return row("complex", *(R.divide(p, scalar(math.log(base), dtype_of(p))) for p in parts))
    return R.divide(natural, scalar(math.log(base), dtype_of(x)))


def _sinc(x: Expr) -> Expr:
    dtype = dtype_of(x)
    middle = R.equal(x, scalar(0, dtype))
    angle = R.multiply(R.where(middle, scalar(1, dtype), x), scalar(math.pi, dtype))
    return R.where(middle, scalar(1, dtype), R.divide(R.sin(angle), angle))


def _entr(x: Expr) -> Expr:
    """``-x log x``; 0 at 0, with the infinite derivative of a square root, and -inf below."""
    zero, one = (scalar(n, dtype_of(x)) for n in (0, 1))
    at_0 = R.equal(x, zero)
    above = R.negative(R.multiply(x, R.log(R.where(at_0, one, x))))
    above = R.where(at_0, R.sqrt(R.where(at_0, x, one)), above)
    return R.where(R.less(x, zero), scalar(-math.inf, dtype_of(x)), above)


def _float_unary(apply: Unary) -> Function:
    return lambda ctx, self: apply(ctx.emit(ctx.cast(self, ctx.dtype())))


def _rounding(apply: Unary) -> Function:
    return lambda ctx, self: apply(self) if is_float(dtype_of(self)) else self


def _same_unary(apply: Unary) -> Function:
    return lambda ctx, self: apply(self)


for _names, _apply in FLOAT_UNARY.items():
    aten(_names)(_float_unary(_apply))
for _names, _apply in WIDE_UNARY.items():
    aten(_names, wide=True)(_float_unary(_apply))
for _names, _apply in ROUNDING.items():
    aten(_names)(_rounding(_apply))
for _names, _apply in SAME_UNARY.items():
    aten(_names)(_same_unary(_apply))


@aten("round.decimals", wide=True)
def round_decimals(ctx: Context, self: Expr, decimals: int) -> Expr:
    if not is_float(dtype_of(self)):
        raise Unsupported(f"round of {dtype_of(self)} with decimals={decimals}")
    factor = scalar(10.0 ** abs(decimals), dtype_of(self))
    if decimals >= 0:
        return R.divide(half_to_even(R.multiply(self, factor)), factor)
    return R.multiply(half_to_even(R.divide(self, factor)), factor)


# -- two operands --------------------------------------------------------------------------------
def _loses(value: Any, dtype: str) -> bool:
    """Whether a number, or a tensor of rank 0, may have digits that ``dtype`` does not hold."""
    if isinstance(value, Expr):
        return ndim_of(value) == 0 and dtype_of(value) != dtype
    if not isinstance(value, int | float):
        return False
    with np.errstate(over="ignore"):
        return float(np.asarray(value).astype(numpy_dtype(dtype))) != value


def _factors(ctx: Context, self: Any, other: Any) -> list[Expr]:
    """Operands of a product or quotient, in the dtype to compute it in.

    torch lets numbers meet 16-bit tensors with the digits of float32, also numbers that float16
    cannot hold.
    """
    dtype = ctx.dtype()
    wide = dtype in NARROW and _loses(other, dtype)
    return ctx.promote(self, other, dtype="float32" if wide else dtype)


def _arithmetic(apply: Binary) -> Function:
    """Operands in the result's dtype."""
    return lambda ctx, self, other: apply(*ctx.promote(self, other, dtype=ctx.dtype()))


def _comparison(apply: Binary) -> Function:
    return lambda ctx, self, other: apply(*ctx.promote(self, other))


def _logical(apply: Binary) -> Function:
    return lambda ctx, self, other: apply(as_bool(self), as_bool(other))


ARITHMETIC: dict[str, Binary] = {
    "maximum": R.maximum,
    "minimum": R.minimum,
    "floor_divide": R.floor_divide,
    "remainder": R.floor_mod,
    "fmod": R.mod,
    "atan2 arctan2": R.atan2,
    "bitwise_and __and__": R.bitwise_and,
    "bitwise_or __or__": R.bitwise_or,
    "bitwise_xor __xor__": R.bitwise_xor,
    "bitwise_left_shift __lshift__": R.left_shift,
    "bitwise_right_shift __rshift__": R.right_shift,
    "fmax": lambda a, b: _ignoring_nan(a, b, R.maximum, R.greater_equal),
    "fmin": lambda a, b: _ignoring_nan(a, b, R.minimum, R.less_equal),
}
WIDE_ARITHMETIC: dict[str, Binary] = {
    "hypot": lambda a, b: _hypot(a, b),
    "logaddexp": R.log_add_exp,
    "xlogy special_xlogy": lambda a, b: _times_log(a, b, R.log),
    "special_xlog1py": lambda a, b: _times_log(a, b, lambda y: row("log_plus_one", y)),
}
COMPARISON: dict[str, Binary] = {
    "eq": R.equal,
    "ne not_equal": R.not_equal,
    "lt less": R.less,
    "le less_equal": R.less_equal,
    "gt greater": R.greater,
    "ge greater_equal": R.greater_equal,
}
LOGICAL: dict[str, Binary] = {
    "logical_and": R.logical_and,
    "logical_or": R.logical_or,
    "logical_xor": R.logical_xor,
}
# Overloads that take tensors and numbers.
NUMERIC = ("default", "Tensor", "Scalar", "Scalar_Tensor", "Tensor_Scalar")


@aten(*overloads("mul multiply", NUMERIC))
def mul(ctx: Context, self: Any, other: Any) -> Expr:
    return ctx.cast(R.multiply(*_factors(ctx, self, other)), ctx.dtype())


for _names, _both in ARITHMETIC.items():
    aten(*overloads(_names, NUMERIC))(_arithmetic(_both))
for _names, _both in WIDE_ARITHMETIC.items():
    aten(*overloads(_names, NUMERIC), wide=True)(_arithmetic(_both))
aten("max.other")(_arithmetic(R.maximum))
aten("min.other")(_arithmetic(R.minimum))
for _names, _both in COMPARISON.items():
    aten(*overloads(_names, NUMERIC))(_comparison(_both))
for _name, _both in LOGICAL.items():
    aten(_name)(_logical(_both))


def trunc_divide(a: Expr, b: Expr) -> Expr:
    """Division rounded towards zero."""
    quotient = R.divide(a, b)
    return R.trunc(quotient) if is_float(dtype_of(a)) else quotient


def _ignoring_nan(a: Expr, b: Expr, pick: Binary, first: Binary) -> Expr:
    """Of two equal numbers, the first has the derivative (``first``: where it does)."""
    if not is_float(dtype_of(a)):
        return pick(a, b)
    made = R.where(R.isnan(a), b, R.where(R.isnan(b), a, pick(a, b)))
    own = R.logical_or(first(a, b), R.isnan(b))
    return R.grad.differentiate_as(made, R.where(own, a, b))


def _times_log(x: Expr, y: Expr, log: Unary) -> Expr:
    """0 where ``x`` is, whatever the logarithm, which moves nothing there; NaN where ``y`` is."""
    zero, dtype = R.equal(x, scalar(0, dtype_of(x))), dtype_of(x)
    made = R.where(zero, scalar(0, dtype), R.multiply(x, R.where(zero, scalar(0, dtype), log(y))))
    return R.where(R.isnan(y), scalar(math.nan, dtype), made)


def _hypot(x: Expr, y: Expr) -> Expr:
    """Neither the square of a large number nor a NaN beside an infinity counts."""
    a, b = R.abs(x), R.abs(y)
    large, small = R.maximum(a, b), R.minimum(a, b)
    zero, one = scalar(0, dtype_of(a)), scalar(1, dtype_of(a))
    ratio = R.divide(small, R.where(R.equal(large, zero), one, large))
    length = R.multiply(large, R.sqrt(R.add(one, R.multiply(ratio, ratio))))
    infinity = scalar(math.inf, dtype_of(a))
    made = R.where(R.logical_or(R.isinf(a), R.isinf(b)), infinity, length)
    # Absolute values have no second derivative at 0, where the length has one.
    plain = R.logical_and(R.isfinite(large), R.not_equal(large, zero))
    unit = R.grad.no_grad(R.where(plain, large, one))
    a, b = R.divide(x, unit), R.divide(y, unit)
    smooth = R.multiply(unit, R.sqrt(R.add(R.multiply(a, a), R.multiply(b, b))))
    return R.grad.differentiate_as(made, smooth) if is_float(dtype_of(x)) else made


def _scaled(ctx: Context, other: Any, alpha: Any, dtype: str) -> Expr:
    x = ctx.tensor(other, dtype)
    if not isinstance(alpha, bool | int | float | complex):
        return R.multiply(x, ctx.tensor(alpha, dtype))
    return x if alpha == 1 else R.multiply(x, scalar(alpha, dtype))


@aten("add.Tensor", "add.Scalar")
def add(ctx: Context, self: Any, other: Any, alpha: Any = 1) -> Expr:
    dtype = ctx.dtype()
    if dtype == "bool":
        if alpha != 1:
            raise Unsupported(f"add of booleans with alpha={alpha}")
        return R.add(ctx.tensor(self, dtype), ctx.tensor(other, dtype))  # their or
    return R.add(ctx.tensor(self, dtype), _scaled(ctx, other, alpha, dtype))


@aten(*overloads("sub subtract", ("Tensor", "Scalar")))
def sub(ctx: Context, self: Any, other: Any, alpha: Any = 1) -> Expr:
    dtype = ctx.dtype()
    return R.subtract(ctx.tensor(self, dtype), _scaled(ctx, other, alpha, dtype))


@aten("rsub.Tensor", "rsub.Scalar")
def rsub(ctx: Context, self: Any, other: Any, alpha: Any = 1) -> Expr:
    dtype = ctx.dtype()
    return R.subtract(ctx.tensor(other, dtype), _scaled(ctx, self, alpha, dtype))


@aten(*overloads("div divide true_divide", ("Tensor", "Scalar", "Tensor_mode", "Scalar_mode")))
def div(ctx: Context, self: Any, other: Any, rounding_mode: str | None = None) -> Expr:
    if rounding_mode is None:
        return ctx.cast(R.divide(*_factors(ctx, self, other)), ctx.dtype())
    a, b = ctx.promote(self, other, dtype=ctx.dtype())
    if rounding_mode == "floor":
        return R.floor_divide(a, b)
    return trunc_divide(a, b)


@aten("pow.Tensor_Tensor", "pow.Tensor_Scalar", "pow.Scalar")
def power(ctx: Context, self: Any, exponent: Any) -> Expr:
    dtype = ctx.dtype()
    base = ctx.tensor(self, dtype)
    if isinstance(exponent, int | float) and not isinstance(exponent, bool):
        if exponent in (2, 3) or (exponent == 4 and is_integer(dtype)):
            base = ctx.emit(base)
            made = R.multiply(base, base)
            for _ in range(int(exponent) - 2):
                made = R.multiply(made, base)
            return made
        if exponent in (0.5, -0.5) and is_float(dtype):
            return R.sqrt(base) if exponent > 0 else R.rsqrt(base)
    return R.power(base, ctx.tensor(exponent, dtype))


# -- three operands ------------------------------------------------------------------------------
@aten("where.self", "where.ScalarOther", "where.ScalarSelf", "where.Scalar")
def where(ctx: Context, condition: Expr, self: Any, other: Any) -> Expr:
    a, b = ctx.promote(self, other, dtype=ctx.dtype())
    return R.where(as_bool(condition), a, b)


@aten("masked_fill.Scalar", "masked_fill.Tensor")
def masked_fill(ctx: Context, self: Expr, mask: Expr, value: Any) -> Expr:
    """A number is spread over ``self`` first, as in TVM, which makes the same rows."""
    if isinstance(value, Expr):
        return R.where(mask, ctx.cast(value, dtype_of(self)), self)
    return R.where(mask, full_like(ctx, self, value), self)


@aten(*overloads("clamp clip clamp_min clamp_max", ("default", "Tensor")))
def clamp(
    ctx: Context,
    self: Expr,
    min: Any = None,
    max: Any = None,
) -> Expr:
    """NaN stays NaN; where the bounds cross, the upper one wins."""
    dtype, low, high = ctx.dtype(), min, max
    x = ctx.tensor(self, dtype)
    numbers = all(isinstance(b, int | float) for b in (low, high) if b is not None)
    if not is_float(dtype):
        if numbers and low is not None and high is not None and is_integer(dtype):
            return R.clip(x, low, high)
        x = x if low is None else R.maximum(x, ctx.tensor(low, dtype))
        return x if high is None else R.minimum(x, ctx.tensor(high, dtype))
    if numbers:
        x = ctx.emit(x)
        bounds = (-math.inf if low is None else low), (math.inf if high is None else high)
        made = R.clip(x, *bounds)
        if not FLAT_BOUNDS or ctx.becomes_integers():
            return made
        # A clip is what passes know, those of quantised networks for one.
        return R.grad.differentiate_as(made, flat_outside(ctx, x, low, high))
    low, high = (None if b is None else ctx.emit(ctx.tensor(b, dtype)) for b in (low, high))
    apart = None
    if low is not None and high is not None and FLAT_BOUNDS:
        apart = ctx.emit(R.not_equal(low, high))
    elif low is not None and high is not None:
        # Torch's derivative by the lower bound is none where the upper one is no larger.
        low = ctx.emit(R.where(R.less(low, high), low, R.grad.no_grad(low)))
    for bound, inside, cut in ((low, R.greater_equal, R.maximum), (high, R.less_equal, R.minimum)):
        if bound is None:
            continue
        x, both = ctx.emit(x), ctx.emit(cut(x, bound))
        # The derivative at a bound is that of x, or is shared out where bounds are apart.
        of_x = R.where(inside(x, bound), x, both)
        shared = both if apart is None else R.where(apart, both, of_x)
        x = shared if FLAT_BOUNDS else of_x
    return x


def flat_outside(ctx: Context, x: Expr, low: float | None, high: float | None) -> Expr:
    """``x`` between numbers, whose derivative at a bound is that of the bound: 0."""
    dtype = dtype_of(x)
    for bound, outside in ((low, R.less_equal), (high, R.greater_equal)):
        if bound is not None:
            x, cut = ctx.emit(x), scalar(bound, dtype)
            x = R.where(outside(x, cut), cut, x)
    return x


@aten("hardtanh")
def hardtanh(ctx: Context, self: Expr, min_val: Any = -1, max_val: Any = 1) -> Expr:
    """Flat at its bounds already, unlike ``clamp`` before torch 2.14."""
    dtype = ctx.dtype()
    x = ctx.tensor(self, dtype)
    if not is_float(dtype) or min_val > max_val:
        return clamp(ctx, x, min_val, max_val)
    if (min_val, max_val) == (0, 6):
        return R.nn.relu6(x)
    return flat_outside(ctx, x, min_val, max_val)


@aten("logit special_logit", wide=True)
def logit(ctx: Context, self: Expr, eps: Any = None) -> Expr:
    """The derivative is infinite at 0 and 1, where ``x / (1 - x)`` has none."""
    dtype = ctx.dtype()
    x = ctx.tensor(self, dtype)
    if eps is not None:
        x = R.clip(x, eps, 1 - eps)
    x = ctx.emit(x)
    rest = ctx.emit(R.subtract(scalar(1, dtype), x))
    return R.grad.differentiate_as(R.log(R.divide(x, rest)), R.subtract(R.log(x), R.log(rest)))


@aten("addcmul", wide=True)
def addcmul(ctx: Context, self: Expr, tensor1: Expr, tensor2: Expr, value: Any = 1) -> Expr:
    a, b, c = ctx.promote(self, tensor1, tensor2, dtype=ctx.dtype())
    return R.add(a, _scaled(ctx, R.multiply(b, c), value, dtype_of(a)))


@aten("addcdiv", wide=True)
def addcdiv(ctx: Context, self: Expr, tensor1: Expr, tensor2: Expr, value: Any = 1) -> Expr:
    a, b, c = ctx.promote(self, tensor1, tensor2, dtype=ctx.dtype())
    return R.add(a, _scaled(ctx, R.divide(b, c), value, dtype_of(a)))


@aten("lerp.Scalar", "lerp.Tensor", wide=True)
def lerp(ctx: Context, self: Expr, end: Expr, weight: Any) -> Expr:
    """Torch's two formulas, so that weights 0 and 1 give the ends exactly."""
    dtype = ctx.dtype()
    self, end = ctx.emit(self), ctx.emit(end)
    w = ctx.emit(ctx.tensor(weight, dtype))
    gap = ctx.emit(R.subtract(end, self))
    low = R.add(self, R.multiply(w, gap))
    high = R.subtract(end, R.multiply(gap, R.subtract(scalar(1, dtype), w)))
    return R.where(R.less(R.abs(w), scalar(0.5, dtype)), low, high)


@aten("nan_to_num")
def nan_to_num(
    ctx: Context, self: Expr, nan: Any = None, posinf: Any = None, neginf: Any = None
) -> Expr:
    """Of complex numbers each part by itself."""
    if is_complex(self):
        x = ctx.emit(self)
        parts = (ctx.emit(row(part, x)) for part in ("real", "imag"))
        return row("complex", *(nan_to_num(ctx, p, nan, posinf, neginf) for p in parts))
    dtype = dtype_of(self)
    if not is_float(dtype):
        return self
    low, high = limits(dtype)
    x = R.where(R.isnan(self), scalar(0.0 if nan is None else nan, dtype), self)
    for infinity, bound in (
        (math.inf, high if posinf is None else posinf),
        (-math.inf, low if neginf is None else neginf),
    ):
        x = R.where(R.equal(self, scalar(infinity, dtype)), scalar(bound, dtype), x)
    return x


# -- activations ---------------------------------------------------------------------------------
@aten("gelu")
def gelu(ctx: Context, self: Expr, approximate: str = "none") -> Expr:
    return R.nn.gelu(self) if approximate == "none" else R.nn.gelu_tanh(self)


@aten("leaky_relu")
def leaky_relu(ctx: Context, self: Expr, negative_slope: float = 0.01) -> Expr:
    return R.nn.leakyrelu(self, float(negative_slope))


@aten("elu", wide=True)
def elu(ctx: Context, self: Expr, alpha: Any = 1, scale: Any = 1, input_scale: Any = 1) -> Expr:
    return activations.elu(self, alpha, scale, input_scale)


aten("selu", wide=True)(lambda ctx, self: R.nn.selu(self))
aten("celu", wide=True)(lambda ctx, self, alpha=1.0: activations.elu(self, alpha, 1, 1.0 / alpha))
aten("relu6")(lambda ctx, self: R.nn.relu6(self))
aten("hardswish", wide=True)(lambda ctx, self: activations.hard_swish(self))
aten("hardsigmoid", wide=True)(
    lambda ctx, self: R.divide(activations.relu6_gate(self), scalar(6, dtype_of(self)))
)


@aten("softplus")
def softplus(ctx: Context, self: Expr, beta: Any = 1, threshold: Any = 20) -> Expr:
    want_float(self, "softplus")
    return R.nn.softplus(self, float(beta), float(threshold))


@aten("threshold")
def threshold(ctx: Context, self: Expr, threshold: Any, value: Any) -> Expr:
    dtype = dtype_of(self)
    return R.where(R.less_equal(self, scalar(threshold, dtype)), scalar(value, dtype), self)


@aten("softshrink")
def softshrink(ctx: Context, self: Expr, lambd: Any = 0.5) -> Expr:
    dtype = dtype_of(self)
    edge, zero = scalar(lambd, dtype), scalar(0, dtype)
    below = R.where(R.less(self, R.negative(edge)), R.add(self, edge), R.multiply(self, zero))
    return R.where(R.greater(self, edge), R.subtract(self, edge), below)


@aten("hardshrink")
def hardshrink(ctx: Context, self: Expr, lambd: Any = 0.5) -> Expr:
    dtype = dtype_of(self)
    inside = R.less_equal(R.abs(self), scalar(lambd, dtype))
    return R.where(inside, scalar(0, dtype), self)


@aten("prelu", "_prelu_kernel")
def prelu(ctx: Context, self: Expr, weight: Expr) -> Expr:
    ndim = info_of(self).ndim
    count = info_of(weight).dims
    if ndim and info_of(weight).ndim == 1:
        return R.nn.prelu(self, weight, min(1, ndim - 1))
    if info_of(weight).ndim == 1 and count != (1,) and ndim > 1:
        weight = R.reshape(weight, (1, count[0] if count else 1) + (1,) * (ndim - 2))
    return activations.prelu(self, weight)


@aten("glu")
def glu(ctx: Context, self: Expr, dim: int = -1) -> Expr:
    halves = ctx.emit(R.split(self, 2, dim))
    return R.multiply(halves[0], R.sigmoid(halves[1]))


@aten("isclose")
def isclose(
    ctx: Context,
    self: Expr,
    other: Expr,
    rtol: float = 1e-5,
    atol: float = 1e-8,
    equal_nan: bool = False,
) -> Expr:
    a, b = (ctx.emit(x) for x in ctx.promote(self, other))
    same = R.equal(a, b)
    if dtype_of(a) == "bool":
        return same
    if is_integer(dtype_of(a)):
        a, b = R.astype(a, "float64"), R.astype(b, "float64")
    share = R.abs(R.multiply(scalar(rtol, dtype_of(b)), b))
    allowed = R.add(scalar(atol, dtype_of(share)), share)
    gap = R.abs(R.subtract(a, b))
    close = R.logical_and(R.isfinite(gap), R.less_equal(gap, allowed))
    close = R.logical_or(same, close)
    if equal_nan:
        close = R.logical_or(close, R.logical_and(R.isnan(a), R.isnan(b)))
    return close
