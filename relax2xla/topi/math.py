"""Functions of each element: one table, and casts, clips, sums of tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from relax2xla import te, tir
from relax2xla.topi.shared import FUNCTIONS, compute, of_dtype, scalar


def each(x: Any, element: Callable[[Any], Any], tag: str = "elemwise") -> Any:
    """``element`` of each element of a tensor, or of a scalar expression."""
    if not isinstance(x, te.Tensor):
        return element(scalar(x))

    def at(*i: Any) -> Any:
        return element(x(*i))

    return te.compute(x.shape, at, tag=tag)


def _intrinsic(name: str, doc: str) -> Callable[[Any], Any]:
    rule = FUNCTIONS[name]

    def function(x: Any) -> Any:
        return each(x, rule)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function


exp = _intrinsic("exp", "e to the power of each element.")
erf = _intrinsic("erf", "The error function.")
tanh = _intrinsic("tanh", "The hyperbolic tangent.")
tan = _intrinsic("tan", "The tangent.")
cos = _intrinsic("cos", "The cosine.")
cosh = _intrinsic("cosh", "The hyperbolic cosine.")
sin = _intrinsic("sin", "The sine.")
sinh = _intrinsic("sinh", "The hyperbolic sine.")
acos = _intrinsic("acos", "The inverse cosine.")
acosh = _intrinsic("acosh", "The inverse hyperbolic cosine.")
asin = _intrinsic("asin", "The inverse sine.")
asinh = _intrinsic("asinh", "The inverse hyperbolic sine.")
atan = _intrinsic("atan", "The inverse tangent.")
atanh = _intrinsic("atanh", "The inverse hyperbolic tangent.")
floor = _intrinsic("floor", "The next integer below; integers stay.")
ceil = _intrinsic("ceil", "The next integer above; integers stay.")
trunc = _intrinsic("trunc", "The next integer towards zero; integers stay.")
round = _intrinsic("round", "The nearest integer, the even one of two; integers stay.")
abs = _intrinsic("abs", "The absolute value.")
isnan = _intrinsic("isnan", "Which elements are not a number.")
isfinite = _intrinsic("isfinite", "Which elements are finite numbers.")
isinf = _intrinsic("isinf", "Which elements are infinite.")
log = _intrinsic("log", "The natural logarithm.")
log2 = _intrinsic("log2", "The logarithm to base 2.")
log10 = _intrinsic("log10", "The logarithm to base 10.")
sqrt = _intrinsic("sqrt", "The square root.")
rsqrt = _intrinsic("rsqrt", "One over the square root.")
sigmoid = _intrinsic("sigmoid", "1 / (1 + exp(-x)).")


def identity(x: te.Tensor) -> te.Tensor:
    """A copy."""
    return each(x, lambda e: e)


def negative(x: te.Tensor) -> te.Tensor:
    """-x."""
    return each(x, lambda e: -e)


def cast(x: Any, dtype: str) -> Any:
    """``x`` in another dtype, as TIR casts."""
    return each(x, lambda e: tir.cast(dtype, e))


def reinterpret(x: te.Tensor, dtype: str) -> te.Tensor:
    """The elements of another dtype of the same size that have the same bits."""
    return each(x, lambda e: FUNCTIONS["reinterpret"](dtype, e))


def clip(x: te.Tensor, a_min: Any, a_max: Any) -> te.Tensor:
    """Each element, not below ``a_min`` and not above ``a_max``, both in the dtype of ``x``."""

    def element(e: Any) -> Any:
        low, high = of_dtype(a_min, x.dtype), of_dtype(a_max, x.dtype)
        return tir.max(tir.min(e, high), low)

    return each(x, element)


def _named(x: te.Tensor, element: Callable[[Any], Any], name: str) -> te.Tensor:
    def at(*i: Any) -> Any:
        return element(x(*i))

    return compute(x.shape, at, name, "elemwise")


def _fast(name: str) -> Callable[[te.Tensor], te.Tensor]:
    function = FUNCTIONS[name]

    def fast(x: te.Tensor) -> te.Tensor:
        return _named(x, function, f"T_fast_{name}")

    # TVM has polynomials of less precision here. XLA has its own, vectorised and precise, for the
    # functions themselves.
    fast.__name__ = fast.__qualname__ = f"fast_{name}"
    fast.__doc__ = f"``{name}`` as fast as XLA computes it, without loss of precision."
    return fast


fast_exp, fast_erf, fast_tanh = map(_fast, ("exp", "erf", "tanh"))


def sign(x: te.Tensor) -> te.Tensor:
    """1, -1 or 0, as each element is above, below or neither (a NaN is neither)."""
    zero, one, minus = (of_dtype(v, x.dtype) for v in (0, 1, -1))
    return _named(
        x, lambda e: tir.Select(zero < e, one, tir.Select(e < zero, minus, zero)), "T_sign"
    )


def logical_not(data: te.Tensor) -> te.Tensor:
    """Not each element; what is no bool is true unless it is zero."""
    return _named(data, lambda e: tir.Not(tir.cast("bool", e)), "T_logical_not")


def bitwise_not(data: te.Tensor) -> te.Tensor:
    """Each element with all its bits turned."""
    return _named(data, lambda e: ~e, "T_bitwise_not")


def elemwise_sum(xs: Sequence[te.Tensor]) -> te.Tensor:
    """The sum of tensors of one shape."""
    if not xs:
        raise ValueError("topi.elemwise_sum takes one tensor or more")

    def element(*i: Any) -> Any:
        made = xs[0](*i)
        for x in xs[1:]:
            made = made + x(*i)
        return made

    return compute(xs[0].shape, element, "T_elemwise_sum", "elemwise")
