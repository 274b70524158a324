"""Special functions.

Everything is computed in float64 and rounded to the result's dtype. Bessel functions are their
integrals over a period, for which the trapezoidal rule is exact up to rounding, and Hankel's
expansions beyond ``FAR``; sums over orders are merged into the weights of the rule.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from relax2xla import op as R
from relax2xla.importers.shared import loops as _loops
from relax2xla.importers.torch.aten.numbers.math import digamma, rise
from relax2xla.importers.torch.engine.context import Context, broadcast, chlo, dims_of, row, scalar
from relax2xla.importers.torch.engine.converters import Function, aten
from relax2xla.ir import Constant, Expr

DOUBLE = "float64"
#: From here on Hankel's expansions have an error below that of float64.
FAR = 25.0
#: Terms of the expansions: the smallest one at ``FAR`` is e^-2 FAR.
TERMS = 24
NODES = 192
EULER = 0.57721566490153286061


def number(value: float) -> Expr:
    """A float64 scalar."""
    return scalar(value, DOUBLE)


def add(a: Expr, b: Expr | float) -> Expr:
    """``a + b`` in float64."""
    return R.add(a, b if isinstance(b, Expr) else number(b))


def mul(a: Expr, b: Expr | float) -> Expr:
    """``a b`` in float64."""
    return R.multiply(a, b if isinstance(b, Expr) else number(b))


def horner(x: Expr, coefficients: Sequence[float]) -> Expr:
    """A polynomial, its constant term first."""
    total: Expr = number(coefficients[-1])
    for c in reversed(coefficients[:-1]):
        total = add(mul(total, x), float(c))
    return total


def weighted_sum(x: Expr, inner: Callable[[Expr], Expr], weights: Any) -> Expr:
    """The sum over a last axis, of ``inner(x[..., None])`` times ``weights``."""
    return R.sum(R.multiply(inner(R.expand_dims(x, [-1])), Constant(weights)), [-1])


def but(y: Expr, *cases: tuple[Expr, Expr | float]) -> Expr:
    """``y``, but where a condition holds the value that goes with it; the last one counts."""
    for condition, value in cases:
        y = R.where(condition, value if isinstance(value, Expr) else number(value), y)
    return y


def is_(x: Expr, value: float) -> Expr:
    """Where ``x`` is a number."""
    return R.equal(x, number(value))


# -- Bessel functions ----------------------------------------------------------------------------
_ANGLES = 2 * np.pi * np.arange(NODES) / NODES


def hankel(order: float) -> list[float]:
    """a_k of Hankel's expansions: the product of (4 n^2 - (2j - 1)^2) / (8 j)."""
    found = [1.0]
    for k in range(1, TERMS):
        found.append(found[-1] * (4 * order * order - (2 * k - 1) ** 2) / (8 * k))
    return found


def near_j(x: Expr, order: int, weights: Any = None) -> Expr:
    """J of an order by its integral, or a sum of J of even or odd orders with its weights."""
    even = order % 2 == 0
    own = np.cos(order * _ANGLES) if even else np.sin(order * _ANGLES)
    total = (own if weights is None else weights) / NODES
    wave = R.cos if even else R.sin
    return weighted_sum(x, lambda y: wave(R.multiply(y, Constant(np.sin(_ANGLES)))), total)


def far_jy(x: Expr, order: int, second: bool) -> Expr:
    """Hankel's expansion of J or Y."""
    a = hankel(order)
    z = R.divide(number(1.0), x)
    square = R.multiply(z, z)
    signs = [(-1) ** k for k in range(TERMS // 2)]
    p = horner(square, [s * c for s, c in zip(signs, a[0::2], strict=True)])
    q = mul(horner(square, [s * c for s, c in zip(signs, a[1::2], strict=True)]), z)
    at = add(x, -(order / 2 + 0.25) * math.pi)
    sine, cosine = R.sin(at), R.cos(at)
    wave = (
        R.add(R.multiply(p, sine), R.multiply(q, cosine))
        if second
        else R.subtract(R.multiply(p, cosine), R.multiply(q, sine))
    )
    return R.multiply(R.sqrt(mul(z, 2 / math.pi)), wave)


def split(ctx: Context, x: Expr, near: Callable[[Expr], Expr], far: Callable[[Expr], Expr]) -> Expr:
    """``near`` up to ``FAR`` and ``far`` beyond, each only for arguments that it is made for."""
    edge = number(FAR)
    small = R.less_equal(x, edge)
    return R.where(small, near(ctx.emit(R.minimum(x, edge))), far(ctx.emit(R.maximum(x, edge))))


def bessel_j(order: int) -> Function:
    def apply(ctx: Context, x: Expr) -> Expr:
        size = ctx.emit(R.abs(x))
        y = split(ctx, size, lambda v: near_j(v, order), lambda v: far_jy(v, order, False))
        y = but(y, (R.isinf(x), math.nan))  # as torch has it, which Y follows
        return y if order == 0 else R.multiply(y, R.sign(x))

    return apply


def _y_weights(order: int) -> Any:
    """Of Y0: the sum over k of (-1)^k J_(2k) / k; of Y1, which is -Y0', its derivative."""
    total = np.zeros(NODES)
    for k in range(1, 46):
        total += 4 / math.pi * (1 if k % 2 else -1) / k * np.cos(2 * k * _ANGLES)
    return total * np.sin(_ANGLES) if order else total


def bessel_y(order: int) -> Function:
    weights = _y_weights(order)

    def near(x: Expr) -> Expr:
        logarithm = add(R.log(mul(x, 0.5)), EULER)
        made = R.add(
            mul(R.multiply(logarithm, near_j(x, order)), 2 / math.pi), near_j(x, order, weights)
        )
        return R.subtract(made, R.divide(mul(near_j(x, 0), 2 / math.pi), x)) if order else made

    def apply(ctx: Context, x: Expr) -> Expr:
        y = split(ctx, x, near, lambda v: far_jy(v, order, True))
        below = R.less(x, number(0.0))
        return but(y, (R.isinf(x), math.nan), (is_(x, 0.0), -math.inf), (below, math.nan))

    return apply


def bessel_i(order: int, scaled: bool) -> Function:
    """``scaled``: times e^-|x|."""
    weights = np.cos(order * _ANGLES) / NODES
    a = [(-1) ** k * c for k, c in enumerate(hankel(order))]

    def near(x: Expr) -> Expr:
        return weighted_sum(
            x, lambda y: R.exp(R.multiply(y, Constant(np.cos(_ANGLES) - 1))), weights
        )

    def far(x: Expr) -> Expr:
        z = R.divide(number(1.0), x)
        return R.multiply(R.sqrt(mul(z, 1 / (2 * math.pi))), horner(z, a))

    def apply(ctx: Context, x: Expr) -> Expr:
        # By the right side at 0, where the size has no derivative and the function has all.
        negative = ctx.emit(R.less(x, number(0.0)))
        size = ctx.emit(R.where(negative, R.negative(x), x))
        y = split(ctx, size, near, far)
        if scaled:
            # What it is scaled by has none there: torch's is 0.
            y = ctx.emit(y)
            apart = R.exp(R.subtract(size, R.abs(x)))
            y = R.grad.differentiate_as(y, R.multiply(y, apart))
        else:
            y = R.multiply(y, R.exp(size))
            y = R.where(R.isinf(size), number(math.nan), y)  # as torch has it
        return y if order == 0 else R.where(negative, R.negative(ctx.emit(y)), y)

    return apply


_STEP = 0.125
_TIMES = _STEP * np.arange(0, 800)


def scaled_k(ctx: Context, x: Expr, order: float) -> Expr:
    """K of an order times e^x, for x > 0: the integral of exp(-x (cosh t - 1)) cosh(n t)."""
    weights = np.full(_TIMES.shape, _STEP)
    weights[0] /= 2
    # cosh(t) - 1 without cancellation; beyond its range the integrand is 0 in any case.
    rise = 2 * np.sinh(_TIMES / 2) ** 2
    grow = np.log(np.cosh(order * _TIMES)) if order else np.zeros_like(_TIMES)

    def near(v: Expr) -> Expr:
        return weighted_sum(
            v,
            lambda y: R.exp(R.subtract(Constant(grow), R.multiply(y, Constant(rise)))),
            weights,
        )

    def far(v: Expr) -> Expr:
        z = R.divide(number(1.0), v)
        return R.multiply(R.sqrt(mul(z, math.pi / 2)), horner(z, hankel(order)))

    return split(ctx, x, near, far)


TINY = 1e-15


def bessel_k(order: int, scaled: bool) -> Function:
    def apply(ctx: Context, x: Expr) -> Expr:
        safe = ctx.emit(R.maximum(x, number(TINY)))
        y = scaled_k(ctx, safe, float(order))
        if not scaled:
            y = R.multiply(y, R.exp(R.negative(safe)))
        # The first term of the series is all of it below ``TINY``.
        if order:
            first = R.divide(number(1.0), x)
        else:
            first = R.negative(add(R.log(mul(x, 0.5)), EULER))
        y = but(
            y, (R.less(x, number(TINY)), first), (is_(x, 0.0), math.inf), (is_(x, math.inf), 0.0)
        )
        return but(y, (R.logical_or(R.less(x, number(0.0)), R.isnan(x)), math.nan))

    return apply


def airy(ctx: Context, x: Expr) -> Expr:
    """By K of order 1/3 above 0, Maclaurin's series below, the expansion below -9."""
    right = ctx.emit(R.maximum(x, number(1e-12)))
    zeta = ctx.emit(mul(R.multiply(right, R.sqrt(right)), 2 / 3))
    above = R.multiply(
        R.multiply(scaled_k(ctx, zeta, 1 / 3), R.exp(R.negative(zeta))),
        mul(R.sqrt(mul(right, 1 / 3)), 1 / math.pi),
    )
    left = ctx.emit(R.maximum(R.minimum(x, number(1.0)), number(-9.0)))
    cube = ctx.emit(R.multiply(R.multiply(left, left), left))
    f, g = [1.0], [1.0]
    for k in range(1, 70):
        f.append(f[-1] / ((3 * k) * (3 * k - 1)))
        g.append(g[-1] / ((3 * k) * (3 * k + 1)))
    c1, c2 = 0.355028053887817239, 0.258819403792806798
    series = R.subtract(mul(horner(cube, f), c1), mul(R.multiply(left, horner(cube, g)), c2))
    size = ctx.emit(R.maximum(R.negative(x), number(9.0)))
    turn = ctx.emit(mul(R.multiply(size, R.sqrt(size)), 2 / 3))
    u = [1.0]
    for k in range(1, 20):
        u.append(u[-1] * (6 * k - 5) * (6 * k - 3) * (6 * k - 1) / (216 * k * (2 * k - 1)))
    z = ctx.emit(R.divide(number(1.0), turn))
    square = ctx.emit(R.multiply(z, z))
    even = horner(square, [(-1) ** k * c for k, c in enumerate(u[0::2])])
    odd = mul(horner(square, [(-1) ** k * c for k, c in enumerate(u[1::2])]), z)
    at = ctx.emit(add(turn, -math.pi / 4))
    wave = R.add(R.multiply(R.cos(at), even), R.multiply(R.sin(at), odd))
    below = R.divide(wave, mul(R.sqrt(R.sqrt(size)), math.sqrt(math.pi)))
    y = but(series, (R.greater(x, number(1.0)), above), (R.less(x, number(-9.0)), below))
    return but(y, (R.logical_or(R.isnan(x), R.isinf(x)), math.nan))


# -- error functions -----------------------------------------------------------------------------
def erfcx(ctx: Context, x: Expr) -> Expr:
    """exp(x^2) erfc(x)."""
    y = ctx.emit(R.minimum(x, number(FAR)))
    near = R.multiply(R.exp(R.multiply(y, y)), chlo("erfc", y))
    z = ctx.emit(R.divide(number(1.0), R.maximum(x, number(FAR))))
    half = mul(R.multiply(z, z), 0.5)
    far = R.multiply(mul(z, 1 / math.sqrt(math.pi)), horner(half, [1.0, -1.0, 3.0, -15.0, 105.0]))
    return R.where(R.greater(x, number(FAR)), far, near)


def log_ndtr(ctx: Context, x: Expr) -> Expr:
    """The logarithm of the normal distribution."""
    below = ctx.emit(R.less(x, number(-1.0)))
    low = ctx.emit(R.where(below, x, number(-1.0)))
    scaled = erfcx(ctx, ctx.emit(mul(low, -math.sqrt(0.5))))
    tail = R.subtract(R.log(mul(scaled, 0.5)), mul(R.multiply(low, low), 0.5))
    above = chlo("erfc", mul(R.where(below, number(-1.0), x), math.sqrt(0.5)))
    body = row("log_plus_one", mul(above, -0.5))
    return R.where(below, tail, body)


def ndtri(ctx: Context, p: Expr) -> Expr:
    """The inverse of the normal distribution: Newton's steps on its logarithm."""
    high = ctx.emit(R.greater(p, number(0.5)))
    tail = ctx.emit(R.where(high, R.subtract(number(1.0), p), p))
    inside = R.logical_and(R.greater(tail, number(0.0)), R.less_equal(tail, number(0.5)))
    goal = ctx.emit(R.log(R.where(inside, tail, number(0.5))))
    t = ctx.emit(R.sqrt(mul(goal, -2.0)))
    above = horner(t, [2.515517, 0.802853, 0.010328])
    below = horner(t, [1.0, 1.432788, 0.189269, 0.001308])
    x = R.negative(R.subtract(t, R.divide(above, below)))
    for _ in range(4):
        x = ctx.emit(x)
        value = ctx.emit(log_ndtr(ctx, x))
        density = add(mul(R.multiply(x, x), -0.5), -0.5 * math.log(2 * math.pi))
        slope = R.exp(R.subtract(density, value))
        x = R.subtract(x, R.divide(R.subtract(value, goal), slope))
    y = R.where(high, R.negative(x), x)
    outside = R.logical_or(R.less(p, number(0.0)), R.greater(p, number(1.0)))
    odd = R.logical_or(outside, R.isnan(p))
    y = ctx.emit(but(y, (is_(p, 0.0), -math.inf), (is_(p, 1.0), math.inf), (odd, math.nan)))
    # Two of Newton's steps from the result, which do not move it, have its first three derivatives.
    steep = ctx.emit(R.logical_or(R.isinf(y), odd))
    u = R.negative(R.abs(R.where(steep, number(0.0), R.grad.no_grad(y))))
    tail = ctx.emit(R.where(steep, number(0.5), tail))
    for _ in range(2):
        u = ctx.emit(u)
        density = mul(R.exp(mul(R.multiply(u, u), -0.5)), 1 / math.sqrt(2 * math.pi))
        excess = R.subtract(mul(chlo("erfc", mul(u, -math.sqrt(0.5))), 0.5), tail)
        u = R.subtract(u, R.divide(excess, density))
    slope = mul(R.exp(mul(R.multiply(y, y), 0.5)), math.sqrt(2 * math.pi))
    far = R.add(R.grad.no_grad(y), rise(ctx, p, slope))
    smooth = R.where(steep, far, R.where(high, R.negative(u), u))
    return R.grad.differentiate_as(y, smooth)


def spherical_j0(ctx: Context, x: Expr) -> Expr:
    return but(R.divide(R.sin(x), x), (is_(x, 0.0), 1.0), (R.isinf(x), 0.0))


def lgamma(ctx: Context, x: Expr) -> Expr:
    """XLA's has an absolute error of some ulps of 1, which is all of the value near 1 and 2.

    At 0 its derivative has the opposite of the zero's sign, as that of ``-log x``.
    """
    pole, one = R.equal(x, number(0.0)), number(1.0)
    near = R.negative(R.log(R.where(pole, x, one)))
    smooth = R.where(pole, near, chlo("lgamma", R.where(pole, one, x)))
    return R.grad.differentiate_as(chlo("lgamma", x), smooth)


UNARY: dict[str, Callable[[Context, Expr], Expr]] = {
    "lgamma": lgamma,
    "special_airy_ai": airy,
    "special_bessel_j0": bessel_j(0),
    "special_bessel_j1": bessel_j(1),
    "special_bessel_y0": bessel_y(0),
    "special_bessel_y1": bessel_y(1),
    "i0 special_modified_bessel_i0": bessel_i(0, False),
    "special_i0e": bessel_i(0, True),
    "special_i1 special_modified_bessel_i1": bessel_i(1, False),
    "special_i1e": bessel_i(1, True),
    "special_modified_bessel_k0": bessel_k(0, False),
    "special_modified_bessel_k1": bessel_k(1, False),
    "special_scaled_modified_bessel_k0": bessel_k(0, True),
    "special_scaled_modified_bessel_k1": bessel_k(1, True),
    "special_spherical_bessel_j0": spherical_j0,
    "special_erfcx": erfcx,
    "special_log_ndtr": log_ndtr,
    "special_ndtri": ndtri,
}


def _unary(apply: Callable[[Context, Expr], Expr]) -> Function:
    return lambda ctx, self: ctx.cast(apply(ctx, ctx.emit(ctx.cast(self, DOUBLE))), ctx.dtype())


for _names, _apply in UNARY.items():
    aten(_names)(_unary(_apply))


# -- gamma functions -----------------------------------------------------------------------------
@aten("polygamma")
def polygamma(ctx: Context, n: int, self: Expr) -> Expr:
    x = ctx.emit(ctx.cast(self, DOUBLE))
    if n == 0:
        return ctx.cast(digamma(x), ctx.dtype())
    # (-1)^(n+1) n! zeta(n + 1, x), as torch computes it.
    factor = (1.0 if n % 2 else -1.0) * math.gamma(n + 1)
    order = ctx.emit(R.broadcast_to(number(float(n + 1)), dims_of(x)))
    made = ctx.emit(mul(_zeta(ctx, order, x), factor))
    made = R.grad.differentiate_as(made, _reflected(ctx, n, order, x, factor))
    if n == 1:  # the one for which torch has a limit
        made = but(made, (is_(x, math.inf), 0.0))
    return ctx.cast(made, ctx.dtype())


def _reflected(ctx: Context, n: int, order: Expr, x: Expr, factor: float) -> Expr:
    """Polygamma without a loop: of negative numbers by that of ``1 - x``, for derivatives."""
    left = ctx.emit(R.less(x, number(0.5)))
    right = mul(chlo("zeta", order, R.where(left, R.subtract(number(1.0), x), x)), factor)
    right = ctx.emit(right)
    gap = R.where(left, R.subtract(x, R.round(x)), number(0.25))
    cotangent = ctx.emit(R.divide(number(1.0), R.tan(mul(gap, math.pi))))
    # The cotangent of pi x, n times differentiated: a polynomial in itself.
    poly = np.polynomial.Polynomial([0.0, 1.0])
    for _ in range(n):
        poly = poly.deriv() * np.polynomial.Polynomial([-math.pi, 0.0, -math.pi])
    far = mul(horner(cotangent, list(map(float, poly.coef))), math.pi)
    return R.where(left, R.subtract(mul(right, (-1.0) ** n), far), right)


#: Terms that are added one by one for an argument below zero.
ZETA_TERMS = 1e5


def _zeta(ctx: Context, s: Expr, q: Expr) -> Expr:
    """The sum of (q + k)^-s: the terms up to q + k > 0 one by one."""
    zero, one = number(0.0), number(1.0)
    low = number(-ZETA_TERMS)
    start = ctx.emit(R.where(R.greater(q, low), q, one))

    def going(values: Sequence[Expr]) -> Expr:
        return R.less_equal(R.min(values[0]), zero)

    def step(values: Sequence[Expr]) -> Sequence[Expr]:
        at, total = values
        below = R.less_equal(at, zero)
        term = R.power(R.where(below, at, one), R.negative(s))
        total = R.where(below, R.add(total, term), total)
        return [R.where(below, R.add(at, one), at), total]

    none = ctx.emit(R.zeros(dims_of(q), DOUBLE))
    if 0 in dims_of(q):
        return none
    at, total = _loops.while_loop(ctx.builder, going, step, [start, none])
    y = R.add(total, chlo("zeta", s, at))
    y = R.where(R.greater(q, low), y, number(math.nan))
    pole = R.logical_and(R.less_equal(q, zero), R.equal(q, R.floor(q)))
    infinite = R.logical_or(R.equal(s, one), R.logical_and(pole, R.greater(s, one)))
    return R.where(infinite, number(math.inf), y)


@aten("special_zeta", "special_zeta.self_scalar", "special_zeta.other_scalar")
def zeta(ctx: Context, self: Any, other: Any) -> Expr:
    x, q = (_spread(ctx, v) for v in (self, other))
    return ctx.cast(_zeta(ctx, x, q), ctx.dtype())


def _spread(ctx: Context, value: Any) -> Expr:
    return ctx.emit(broadcast(ctx.tensor(value, DOUBLE), ctx.dims()))


def _igamma(ctx: Context, self: Expr, other: Expr, upper: bool) -> Expr:
    """A series where x < a + 1, Lentz's continued fraction beyond; both until nothing changes."""
    a, x = _spread(ctx, self), _spread(ctx, other)
    zero, one = number(0.0), number(1.0)
    bad = R.logical_or(R.less(x, zero), R.less(a, zero))
    nan = R.logical_or(R.isnan(a), R.isnan(x))
    bad = R.logical_or(R.logical_or(bad, nan), R.logical_and(R.equal(x, zero), R.equal(a, zero)))
    bad = R.logical_or(bad, R.logical_and(R.isinf(a), R.isinf(x)))
    bad = ctx.emit(bad)
    plain = R.logical_and(R.greater(x, zero), R.greater(a, zero))
    plain = R.logical_and(plain, R.logical_and(R.isfinite(x), R.isfinite(a)))
    plain = ctx.emit(R.logical_and(plain, R.logical_not(bad)))
    sa, sx = ctx.emit(R.where(plain, a, one)), ctx.emit(R.where(plain, x, one))
    exponent = R.subtract(R.subtract(R.multiply(sa, R.log(sx)), sx), chlo("lgamma", sa))
    front = ctx.emit(R.exp(exponent))
    below = ctx.emit(R.less(sx, R.add(sa, one)))
    low = _series(ctx, R.where(below, sa, one), R.where(below, sx, one))
    high = _fraction(ctx, R.where(below, one, sa), R.where(below, number(3.0), sx))
    low, high = R.multiply(front, low), R.multiply(front, high)
    low, high = (R.subtract(one, low), high) if upper else (low, R.subtract(one, high))
    y = R.where(below, low, high)
    empty, full = (one, zero) if upper else (zero, one)
    # P(a, 0) = 0, P(0, x) = 1, P(a, inf) = 1, P(inf, x) = 0.
    none = R.logical_or(R.equal(x, zero), R.isinf(a))
    y = R.where(plain, y, R.where(none, empty, full))
    return ctx.cast(R.where(bad, number(math.nan), y), ctx.dtype())


_CLOSE = 2.0**-52


def _series(ctx: Context, a: Expr, x: Expr) -> Expr:
    a, x = ctx.emit(a), ctx.emit(x)
    first = ctx.emit(R.divide(number(1.0), a))

    def going(values: Sequence[Expr]) -> Expr:
        term, total, _ = values
        open_ = R.greater(term, R.multiply(total, number(_CLOSE)))
        return R.greater(R.max(R.astype(open_, "int32")), scalar(0, "int32"))

    def step(values: Sequence[Expr]) -> Sequence[Expr]:
        term, total, k = values
        term = R.multiply(term, R.divide(x, R.add(a, k)))
        return [term, R.add(total, term), R.add(k, number(1.0))]

    return _loops.while_loop(ctx.builder, going, step, [first, first, number(1.0)])[1]


def _fraction(ctx: Context, a: Expr, x: Expr) -> Expr:
    a, x = ctx.emit(a), ctx.emit(x)
    tiny, one = number(1e-300), number(1.0)
    b = ctx.emit(R.subtract(R.add(x, one), a))
    c = ctx.emit(R.broadcast_to(number(1e300), dims_of(x)))
    d = ctx.emit(R.divide(one, b))

    def going(values: Sequence[Expr]) -> Expr:
        open_ = R.greater(R.abs(R.subtract(values[4], one)), number(4 * _CLOSE))
        more = R.greater(R.max(R.astype(open_, "int32")), scalar(0, "int32"))
        return R.logical_and(more, R.less(values[5], number(1e5)))

    def safe(v: Expr) -> Expr:
        return R.where(R.less(R.abs(v), tiny), tiny, v)

    def step(values: Sequence[Expr]) -> Sequence[Expr]:
        b, c, d, h, _, k = values
        an = R.multiply(R.negative(k), R.subtract(k, a))
        b = R.add(b, number(2.0))
        d = R.divide(one, safe(R.add(R.multiply(an, d), b)))
        c = safe(R.add(b, R.divide(an, c)))
        change = R.multiply(d, c)
        return [b, c, d, R.multiply(h, change), change, R.add(k, one)]

    start = [b, c, d, d, ctx.emit(R.zeros(dims_of(x), DOUBLE)), one]
    return _loops.while_loop(ctx.builder, going, step, start)[3]


aten("igamma special_gammainc")(lambda ctx, self, other: _igamma(ctx, self, other, False))
aten("igammac special_gammaincc")(lambda ctx, self, other: _igamma(ctx, self, other, True))


@aten("special_multigammaln", "mvlgamma")
def mvlgamma(ctx: Context, self: Expr, p: int) -> Expr:
    x = ctx.emit(ctx.cast(self, DOUBLE))
    total: Expr = number(p * (p - 1) / 4 * math.log(math.pi))
    for j in range(p):
        total = R.add(total, lgamma(ctx, ctx.emit(add(x, -j / 2))))
    return ctx.cast(total, ctx.dtype())
