"""Rows that work element by element, CHLO's with implicit broadcasting among them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_derivatives import SymbolicZero

from relax2xla.errors import UnsupportedError
from relax2xla.interop.lax_rows.site import (
    Prepared,
    Region,
    Rule,
    Site,
    vectorised,
    with_derivative_of,
)

Function = Callable[..., Any]


#: numpy's letters; dtypes that numpy lacks have others.
_KINDS = {"b": "b", "i": "i", "u": "i", "f": "f", "c": "c"}


def _kind(x: Any) -> str:
    """``b`` for booleans, ``i`` integers, ``f`` floats, ``c`` complex numbers."""
    dtype = x.dtype if isinstance(x, jax.Array | np.ndarray) else jnp.result_type(x)
    if dtype.kind in _KINDS:
        return _KINDS[dtype.kind]
    kinds = (("b", np.bool_), ("i", np.integer), ("c", np.complexfloating))
    return next((k for k, t in kinds if jnp.issubdtype(dtype, t)), "f")


def _logical(numeric: Function, boolean: Function) -> Function:
    """``numeric``; of booleans ``boolean``, which is the same operation there."""
    return lambda x, y: (boolean if _kind(x) == "b" else numeric)(x, y)


def _logical_rule(numeric: Function, boolean: Function) -> Rule:
    """The same, by what the row is declared to give."""
    return Prepared(lambda site: boolean if site.outputs[0].dtype == "bool" else numeric)


def _power(x: Any, y: Any) -> Any:
    if _kind(x) == "i":
        return jnp.power(x, y)
    return lax.pow(x, y)


def _real(x: Any) -> Any:
    return lax.real(x) if _kind(x) == "c" else x


def _imag(x: Any) -> Any:
    return lax.imag(x) if _kind(x) == "c" else lax.full_like(x, 0)


def total_order(x: Any) -> Any:
    """Integers that are ordered as IEEE's total order has floats (-NaN < -inf, -0 < 0)."""
    if _kind(x) == "b":
        return lax.convert_element_type(x, np.int8)
    if _kind(x) != "f":
        return x
    width = x.dtype.itemsize * 8
    bits = lax.bitcast_convert_type(x, np.dtype(f"int{width}"))
    sign = lax.shift_right_arithmetic(bits, lax.full_like(bits, width - 1))
    return bits ^ (sign & lax.full_like(bits, np.iinfo(bits.dtype).max))


@jax.custom_jvp
def _zeta(x: Any, q: Any) -> Any:
    return lax.zeta(x, q)


def _zeta_derivative(primals: Any, tangents: Any) -> Any:
    (x, q), (of_x, of_q) = primals, tangents
    made = _zeta(x, q)
    if not isinstance(of_x, SymbolicZero):
        raise UnsupportedError("zeta has no derivative with respect to its first argument")
    if isinstance(of_q, SymbolicZero):
        return made, lax.full_like(made, 0)
    return made, -x * _zeta(x + 1, q) * of_q


_zeta.defjvp(_zeta_derivative, symbolic_zeros=True)


@jax.custom_jvp
def _cotangent(x: Any) -> Any:
    """The cotangent of pi x, from -1/2 to 1/2; derivatives of all orders are infinite at 0."""
    return 1 / jnp.tan(jnp.pi * x)


@_cotangent.defjvp
def _(primals: Any, tangents: Any) -> Any:
    made = _cotangent(*primals)
    return made, -jnp.pi * (1 + made * made) * tangents[0]


def _reflected_digamma(x: Any) -> Any:
    """Of negative numbers by that of ``1 - x``: JAX's derivative loses its digits below -8."""
    left = x < 0.5
    far = jnp.pi * _cotangent(jnp.where(left, x - jnp.round(x), 0.5))
    made = lax.digamma(jnp.where(left, 1 - x, x))
    return made - jnp.where(left, far, 0)


_digamma = with_derivative_of(lax.digamma, _reflected_digamma)
# JAX's derivative is its own digamma, whose derivative is far off left of zero.
_lgamma = jax.custom_jvp(lax.lgamma)
_lgamma.defjvps(lambda t, made, x: t * _digamma(x))

_COMPARISONS: dict[str, Function] = {
    "EQ": lax.eq,
    "NE": lax.ne,
    "LT": lax.lt,
    "LE": lax.le,
    "GT": lax.gt,
    "GE": lax.ge,
}


def _compare(site: Site) -> Function:
    compare = _COMPARISONS[site.attrs["comparison_direction"]]
    if site.attrs.get("compare_type") != "TOTALORDER":
        return compare
    return lambda x, y: compare(total_order(jnp.asarray(x)), total_order(jnp.asarray(y)))


def _select(pred: Any, x: Any, y: Any) -> Any:
    if np.shape(pred) != np.shape(x):
        pred = lax.broadcast_in_dim(pred, np.shape(x), tuple(range(np.ndim(pred))))
    return lax.select(pred, x, y)


def _convert(site: Site) -> Function:
    dtype = site.dtype
    if dtype.kind == "c":
        return lambda x: lax.convert_element_type(x, dtype)
    return lambda x: lax.convert_element_type(_real(x), dtype)


def _bitcast(site: Site) -> Function:
    dtype, shape = site.dtype, site.shape
    return lambda x: lax.reshape(lax.bitcast_convert_type(x, dtype), shape)


def _map(site: Site, *operands: Any) -> Any:
    *xs, region = operands
    assert isinstance(region, Region)
    return vectorised(region, *xs)


def _plain(f: Function) -> Rule:
    """A function of the operands alone."""
    return Prepared(lambda site: f)


def _spread(site: Site, *xs: Any) -> list[Any]:
    """CHLO's operands at the rank of the result (axes align at the end, or as it says)."""
    rank, dims = len(site.shape), site.attrs.get("broadcast_dimensions")
    made: list[Any] = []
    for x in xs:
        n = np.ndim(x)
        at = tuple(dims) if dims is not None and n < rank else tuple(range(rank - n, rank))
        narrow = [1] * rank
        for axis, size in zip(at, np.shape(x), strict=True):
            narrow[axis] = size
        x = lax.reshape(x, narrow)
        made.append(jnp.broadcast_to(x, site.shape))
    return made


def _broadcasting(rule: Rule) -> Rule:
    return lambda site, *xs: rule(site, *_spread(site, *xs))


UNARY: dict[str, Function] = {
    "abs": lax.abs,
    "cbrt": lax.cbrt,
    "ceil": lax.ceil,
    "cosine": lax.cos,
    "count_leading_zeros": lax.clz,
    "exponential": lax.exp,
    "exponential_minus_one": lax.expm1,
    "floor": lax.floor,
    "imag": _imag,
    "is_finite": lax.is_finite,
    "log": lax.log,
    "log_plus_one": lax.log1p,
    "logistic": lax.logistic,
    "negate": lax.neg,
    "not_": lax.bitwise_not,
    "popcnt": lax.population_count,
    "real": _real,
    "round_nearest_afz": lambda x: lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO),
    "round_nearest_even": lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN),
    "rsqrt": lax.rsqrt,
    "sign": lax.sign,
    "sine": lax.sin,
    "sqrt": lax.sqrt,
    "tan": lax.tan,
    "tanh": lax.tanh,
}
# The operation on numbers, and that on booleans.
_LOGICAL: dict[str, tuple[Function, Function]] = {
    "add": (lax.add, lax.bitwise_or),
    "maximum": (lax.max, lax.bitwise_or),
    "minimum": (lax.min, lax.bitwise_and),
    "multiply": (lax.mul, lax.bitwise_and),
    "subtract": (lax.sub, lax.bitwise_xor),
}
BINARY: dict[str, Function] = {
    "and_": lax.bitwise_and,
    "atan2": lax.atan2,
    "complex": lax.complex,
    "divide": lax.div,
    "or_": lax.bitwise_or,
    "power": _power,
    "remainder": lax.rem,
    "shift_left": lax.shift_left,
    "shift_right_arithmetic": lax.shift_right_arithmetic,
    "shift_right_logical": lax.shift_right_logical,
    "xor": lax.bitwise_xor,
} | {name: _logical(*pair) for name, pair in _LOGICAL.items()}
_CHLO_UNARY: dict[str, Function] = {
    name: getattr(lax, name)
    for name in (
        *("acos", "acosh", "asin", "asinh", "atan", "atanh", "bessel_i1e", "conj", "cosh"),
        *("erf", "erf_inv", "erfc", "sinh", "square", "tan"),
    )
} | {
    "digamma": _digamma,
    "lgamma": _lgamma,
    "is_inf": jnp.isinf,
    "is_pos_inf": jnp.isposinf,
    "is_neg_inf": jnp.isneginf,
}
_CHLO_BINARY: dict[str, Function] = {
    "next_after": lax.nextafter,
    "polygamma": lax.polygamma,
    "zeta": _zeta,
}

RULES: dict[str, Rule] = {
    **{f"stablehlo.{name}": _plain(f) for name, f in (UNARY | BINARY).items()},
    **{f"stablehlo.{name}": _logical_rule(*pair) for name, pair in _LOGICAL.items()},
    **{f"chlo.{name}": _plain(f) for name, f in (_CHLO_UNARY | _CHLO_BINARY).items()},
    **{
        f"chlo.broadcast_{name.rstrip('_')}": _broadcasting(_plain(f))
        for name, f in (BINARY | _CHLO_BINARY).items()
    },
    "chlo.mulhi": lambda site, x, y: lax.mulhi(x, y),
    "chlo.broadcast_compare": _broadcasting(Prepared(_compare)),
    "chlo.broadcast_select": _broadcasting(_plain(_select)),
    "stablehlo.compare": Prepared(_compare),
    "stablehlo.select": _plain(_select),
    "stablehlo.clamp": _plain(lax.clamp),
    "stablehlo.reduce_precision": lambda site, x: lax.reduce_precision(
        x, site.attrs["exponent_bits"], site.attrs["mantissa_bits"]
    ),
    "stablehlo.convert": Prepared(_convert),
    "stablehlo.bitcast_convert": Prepared(_bitcast),
    "stablehlo.map": _map,
}
