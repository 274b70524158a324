"""Activations and softmax. Semantics: Relax, and torch's functions of the same names.

float16 and bfloat16 are computed in float32 wherever more than one rounding is at stake.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from relax2xla.errors import OpError
from relax2xla.ir.expr import Expr
from relax2xla.ir.op import Op, Rule, op
from relax2xla.ir.struct_info import StructInfo
from relax2xla.ir.traits import AlongAxis, Channelwise, Pointwise, Recognised
from relax2xla.op.shared.checks import FLOAT, REAL, common_dtype, norm_axis, want_tensor
from relax2xla.op.shared.lowering import (
    broadcast_in_dim,
    chlo,
    compare,
    dtype_of,
    full_like,
    hlo,
    in_float32,
    no_gradient,
    reduce,
    scalar,
    select,
    shape_of,
    spread,
)

SELU_ALPHA: Final = 1.6732632423543772848170429916717
SELU_SCALE: Final = 1.0507009873554804934193349852946


def _times(x: Expr, value: float) -> Expr:
    return hlo("multiply", x, full_like(x, value))


def _plus(x: Expr, value: float) -> Expr:
    return hlo("add", x, full_like(x, value))


def _gelu(x: Expr) -> Expr:
    half = _times(x, 0.5)
    return hlo("multiply", half, _plus(chlo("erf", _times(x, math.sqrt(0.5))), 1.0))


def _gelu_tanh(x: Expr) -> Expr:
    # sqrt(2 / pi) * (x + 0.044715 x^3)
    inner = hlo("multiply", x, _plus(_times(hlo("multiply", x, x), 0.044715), 1.0))
    squashed = hlo("tanh", _times(inner, math.sqrt(2.0 / math.pi)))
    return hlo("multiply", _times(x, 0.5), _plus(squashed, 1.0))


def _silu(x: Expr) -> Expr:
    return hlo("multiply", x, hlo("logistic", x))


def _selu(x: Expr) -> Expr:
    positive = compare(x, full_like(x, 0), "GT")
    # Nothing grows where it is not taken: infinity there would be NaN in the derivative.
    part = select(positive, full_like(x, 0), x)
    below = _times(hlo("exponential_minus_one", part), SELU_ALPHA * SELU_SCALE)
    return select(positive, _times(x, SELU_SCALE), below)


_UNARY_DOC = """{summary}

data:   any shape, a float dtype
result: as ``data``
Raises ``OpError`` unless ``data`` is a floating-point tensor.
"""


def _unary(name: str, summary: str, lower: Callable[[Expr], Expr]) -> Op[[Expr]]:
    """One element-wise operator on floats."""

    @op(f"relax.nn.{name}", Pointwise(), Recognised(), doc=_UNARY_DOC.format(summary=summary))
    def made(data: Expr) -> StructInfo:
        return want_tensor(data, "data", FLOAT)

    @made.legalize
    def _lower(data: Expr) -> Expr:
        return in_float32(lower, data)

    return made


gelu = _unary("gelu", "``x * Phi(x)``: ``0.5 * x * (1 + erf(x / sqrt(2)))``.", _gelu)
gelu_tanh = _unary(
    "gelu_tanh",
    "``gelu`` by tanh: ``0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3)))``.",
    _gelu_tanh,
)


@gelu.spelling
def _(data: Expr) -> Expr:
    """JAX: ``0.5 x * erfc(-x sqrt(1/2))``."""
    tail = chlo("erfc", _times(hlo("negate", data), math.sqrt(0.5)))
    return hlo("multiply", _times(data, 0.5), tail)


def _cube(x: Expr) -> Expr:
    """``1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))``."""
    cube = hlo("multiply", hlo("multiply", x, x), x)
    inner = _times(hlo("add", x, _times(cube, 0.044715)), math.sqrt(2 / math.pi))
    return _plus(hlo("tanh", inner), 1.0)


@gelu_tanh.spelling
def _(data: Expr) -> Expr:
    """JAX: the factor of a half is on the tangent."""
    return hlo("multiply", data, _times(_cube(data), 0.5))


@gelu_tanh.spelling
def _(data: Expr) -> Expr:
    """The same with the factor of a half in front, as libraries other than JAX write it."""
    return hlo("multiply", _times(data, 0.5), _cube(data))


silu = _unary("silu", "``x * sigmoid(x)``, also called swish.", _silu)


@silu.spelling
def _(data: Expr) -> Expr:
    """JAX: with the logistic function as ``1 / (1 + e^-x)``."""
    below = _plus(hlo("exponential", hlo("negate", data)), 1.0)
    return hlo("multiply", data, hlo("divide", full_like(data, 1.0), below))


selu = _unary("selu", "``scale * (max(0, x) + min(0, alpha * (exp(x) - 1)))``.", _selu)


@op("relax.nn.relu", Pointwise(), Recognised(floats=False))
def relu(data: Expr) -> Rule:
    """``max(x, 0)``; NaN stays NaN.

    data:   any shape, a float or integer dtype
    result: as ``data``
    Raises ``OpError`` for other dtypes.
    """
    return want_tensor(data, "data", REAL), lambda: hlo("maximum", data, full_like(data, 0))


@relu.derivative
def _(data: Expr) -> Expr:
    # 0 at 0.
    zero = full_like(data, 0)
    return select(compare(data, zero, "LE"), zero, data)


@op("relax.nn.relu6", Pointwise(), Recognised(floats=False))
def relu6(data: Expr) -> StructInfo:
    """``min(max(x, 0), 6)``.

    data:   any shape, a float or integer dtype
    result: as ``data``
    Raises ``OpError`` for other dtypes.
    """
    return want_tensor(data, "data", REAL)


@relu6.legalize
def _relu6(data: Expr) -> Expr:
    dtype = dtype_of(data)
    return hlo("clamp", scalar(0, dtype), data, scalar(6, dtype))


@relu6.spelling
def _(data: Expr) -> Expr:
    return hlo("minimum", hlo("maximum", data, full_like(data, 0)), full_like(data, 6))


@relu6.derivative
def _(data: Expr) -> Expr:
    # 0 at 0 and at 6.
    low, high = full_like(data, 0), full_like(data, 6)
    above = select(compare(data, low, "LE"), low, data)
    return select(compare(above, high, "GE"), high, above)


@op("relax.nn.leakyrelu", Pointwise())
def leakyrelu(data: Expr, alpha: float = 0.01) -> Rule:
    """``x`` where it is positive, else ``alpha * x``.

    data:   any shape, a float dtype
    result: as ``data``
    Raises ``OpError`` unless ``data`` is a floating-point tensor.
    """

    def lower() -> Expr:
        return select(compare(data, full_like(data, 0), "GT"), data, _times(data, alpha))

    return want_tensor(data, "data", FLOAT), lower


@leakyrelu.spelling
def _(data: Expr, alpha: float = 0.01) -> Expr | None:
    """JAX compares with ``>=``, which gives the same at 0."""
    other = select(compare(data, full_like(data, 0), "GE"), data, _times(data, alpha))
    return other if alpha > 0 else None


@op("relax.nn.prelu", Channelwise())
def prelu(data: Expr, alpha: Expr, axis: int = 1) -> StructInfo:
    """``x`` where it is positive, else ``alpha * x`` with a slope for each channel.

    data:   any shape, a float dtype
    alpha:  (c,) with c the size of ``data`` along ``axis``, or (1,) for one slope; same dtype
    axis:   the channel axis; counted from the end if negative
    result: as ``data``
    Raises ``OpError`` for other dtypes, an axis out of range, or another number of slopes.
    """
    x = want_tensor(data, "data", FLOAT)
    slopes = want_tensor(alpha, "alpha", FLOAT, 1)
    common_dtype((x, slopes), ("data", "alpha"))
    if x.ndim >= 0:
        axis = norm_axis(axis, x.ndim)
    if x.dims is not None and slopes.dims is not None:
        (count,), size = slopes.dims, x.dims[axis]
        if isinstance(count, int) and count != 1 and isinstance(size, int) and count != size:
            raise OpError(f"`alpha` has {count} slopes, but axis {axis} of `data` has {size}")
    return x


@prelu.legalize
def _prelu(data: Expr, alpha: Expr, axis: int = 1) -> Expr:
    shape = shape_of(data)
    slope = broadcast_in_dim(alpha, shape, [axis % len(shape)])
    return select(compare(data, full_like(data, 0), "GT"), data, hlo("multiply", data, slope))


@op("relax.nn.softplus", Pointwise(), Recognised())
def softplus(data: Expr, beta: float = 1.0, threshold: float = 20.0) -> StructInfo:
    """``log(1 + exp(beta * x)) / beta``, and ``x`` itself where ``beta * x > threshold``.

    data:   any shape, a float dtype
    result: as ``data``
    Raises ``OpError`` unless ``data`` is a floating-point tensor and ``beta`` is not 0.
    """
    if beta == 0:
        raise OpError("`beta` must not be 0")
    return want_tensor(data, "data", FLOAT)


@softplus.legalize
def _softplus(data: Expr, beta: float = 1.0, threshold: float = 20.0) -> Expr:
    return _soft(
        data, beta, threshold, lambda z: (hlo("maximum", z, full_like(z, 0)), hlo("abs", z))
    )


@softplus.derivative
def _(data: Expr, beta: float = 1.0, threshold: float = 20.0) -> Expr:
    # By one side at 0, where log1p(exp(z)) has all its derivatives; those of a maximum and a size
    # make the first alone.
    def parts(z: Expr) -> tuple[Expr, Expr]:
        above = compare(z, full_like(z, 0), "GT")
        return select(above, z, full_like(z, 0)), select(above, z, hlo("negate", z))

    return _soft(data, beta, threshold, parts)


def _soft(
    data: Expr, beta: float, threshold: float, parts: Callable[[Expr], tuple[Expr, Expr]]
) -> Expr:
    """``parts``: max(z, 0) and |z|."""

    def lower(x: Expr) -> Expr:
        z = x if beta == 1 else _times(x, beta)
        # max(z, 0) + log1p(exp(-|z|)) does not overflow, whatever the threshold.
        positive, size = parts(z)
        soft = hlo("add", positive, hlo("log_plus_one", hlo("exponential", hlo("negate", size))))
        soft = soft if beta == 1 else hlo("divide", soft, full_like(x, beta))
        return select(compare(z, full_like(z, threshold), "GT"), x, soft)

    return in_float32(lower, data)


def _want_softmax(data: Expr, axis: int) -> StructInfo:
    x = want_tensor(data, "data", FLOAT)
    if x.ndim >= 0:
        norm_axis(axis, x.ndim)
    return x


def _shifted(x: Expr, axis: int) -> Expr:
    """``x - max(x)``: never above 0, and 0 where ``x`` is the maximum.

    XLA may contract the multiplication that computes ``x`` with the subtraction, and so round it
    otherwise than in the maximum. Among values of 1e10 the difference is then some hundreds either
    way: exponentials of infinity, or none but 0. ``x * 0`` keeps the NaN of an infinite maximum.
    """
    top = spread(reduce(x, "maximum", [axis]), shape_of(x), [axis])
    zero = full_like(x, 0)
    below = hlo("minimum", hlo("subtract", x, top), zero)
    return select(compare(x, top, "EQ"), hlo("multiply", x, zero), below)


def _shifted_smoothly(x: Expr, axis: int) -> Expr:
    """:func:`_shifted` with the derivative of ``x``: a constant moves what is a softmax of it."""
    value = no_gradient(_shifted(x, axis))
    top = spread(no_gradient(reduce(x, "maximum", [axis])), shape_of(x), [axis])
    gap = hlo("subtract", x, top)
    exact = hlo("add", gap, no_gradient(hlo("subtract", value, gap)))
    return select(hlo("is_finite", gap), exact, value)


@op("relax.nn.softmax", AlongAxis())
def softmax(data: Expr, axis: int = -1) -> StructInfo:
    """Softmax along one axis: ``exp(x - max(x)) / sum(exp(x - max(x)))``.

    data:   any shape, a float dtype
    axis:   counted from the end if negative
    result: as ``data``
    Raises ``OpError`` if ``data`` is not floating point or ``axis`` is out of range.
    """
    return _want_softmax(data, axis)


@softmax.legalize
def _softmax(data: Expr, axis: int = -1) -> Expr:
    return _normalised(data, axis, _shifted)


@softmax.derivative
def _(data: Expr, axis: int = -1) -> Expr:
    return _normalised(data, axis, _shifted_smoothly)


def _normalised(data: Expr, axis: int, shifted: Callable[[Expr, int], Expr]) -> Expr:
    def lower(x: Expr) -> Expr:
        at = axis % len(shape_of(x))
        e = hlo("exponential", shifted(x, at))
        return hlo("divide", e, spread(reduce(e, "add", [at]), shape_of(x), [at]))

    return in_float32(lower, data)


def _plain(data: Expr, axis: int, log: bool) -> Expr:
    """JAX: as the lowering, without its guard against rounding above 0."""

    def lower(x: Expr) -> Expr:
        shape, at = shape_of(x), axis % len(shape_of(x))
        z = hlo("subtract", x, spread(reduce(x, "maximum", [at]), shape, [at]))
        e = hlo("exponential", z)
        total = reduce(e, "add", [at])
        if log:
            return hlo("subtract", z, spread(hlo("log", total), shape, [at]))
        return hlo("divide", e, spread(total, shape, [at]))

    return in_float32(lower, data)


@softmax.spelling
def _(data: Expr, axis: int = -1) -> Expr:
    return _plain(data, axis, log=False)


@op("relax.nn.log_softmax", AlongAxis())
def log_softmax(data: Expr, axis: int = -1) -> StructInfo:
    """Logarithm of the softmax along one axis: ``x - max(x) - log(sum(exp(x - max(x))))``.

    data:   any shape, a float dtype
    axis:   counted from the end if negative
    result: as ``data``
    Raises ``OpError`` if ``data`` is not floating point or ``axis`` is out of range.
    """
    return _want_softmax(data, axis)


@log_softmax.legalize
def _log_softmax(data: Expr, axis: int = -1) -> Expr:
    return _log_normalised(data, axis, _shifted)


@log_softmax.derivative
def _(data: Expr, axis: int = -1) -> Expr:
    return _log_normalised(data, axis, _shifted_smoothly)


def _log_normalised(data: Expr, axis: int, shifted: Callable[[Expr, int], Expr]) -> Expr:
    def lower(x: Expr) -> Expr:
        at = axis % len(shape_of(x))
        x = shifted(x, at)
        total = hlo("log", reduce(hlo("exponential", x), "add", [at]))
        return hlo("subtract", x, spread(total, shape_of(x), [at]))

    return in_float32(lower, data)


@log_softmax.spelling
def _(data: Expr, axis: int = -1) -> Expr:
    return _plain(data, axis, log=True)
