"""Activations and softmax."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from relax2xla import te, tir
from relax2xla.topi.math import each, fast_exp
from relax2xla.topi.shared import FUNCTIONS, of_dtype, one_axis


def relu(x: te.Tensor) -> te.Tensor:
    """The larger of each element and 0."""
    return each(x, lambda e: tir.max(e, tir.const(0, x.dtype)))


def leaky_relu(x: te.Tensor, alpha: float) -> te.Tensor:
    """Each element, times ``alpha`` where it is not above 0."""
    slope = of_dtype(alpha, x.dtype)
    return each(x, lambda e: tir.Select(tir.const(0, x.dtype) < e, e, e * slope))


def prelu(x: te.Tensor, slope: te.Tensor, axis: int = 1) -> te.Tensor:
    """Each element, times the ``slope`` of its place along ``axis`` where it is not above 0."""
    at = one_axis(axis, x.ndim, "nn.prelu")

    def element(*i: Any) -> Any:
        value = x(*i)
        return tir.Select(tir.const(0, x.dtype) < value, value, value * slope(i[at]))

    return te.compute(x.shape, element)


def softplus(x: te.Tensor, beta: float = 1.0, threshold: float = 20.0) -> te.Tensor:
    """log(1 + exp(beta x)) / beta; x itself where beta x is above ``threshold``."""
    by, limit = of_dtype(beta, x.dtype), of_dtype(threshold, x.dtype)
    one = of_dtype(1, x.dtype)

    def element(e: Any) -> Any:
        soft = FUNCTIONS["log"](one + FUNCTIONS["exp"](e * by)) / by
        return tir.Select(e * by > limit, e, soft)

    return each(x, element)


def _rest(axis: int) -> Callable[[Sequence[Any]], list[Any]]:
    return lambda i: [v for n, v in enumerate(i) if n != axis]


def _with(axis: int, k: Any) -> Callable[[Sequence[Any]], list[Any]]:
    return lambda i: [*i[:axis], k, *i[axis:]]


def _largest(x: te.Tensor, at: int) -> te.Tensor:
    k = te.reduce_axis((0, x.shape[at]), "k")
    place, rest = _with(at, k), _rest(at)
    return te.compute(rest(x.shape), lambda *i: te.max(x(*place(i)), axis=k), "T_softmax_maxelem")


def _softmax(
    x: te.Tensor, axis: int, name: str, powers_of: Callable[[Callable[..., Any]], te.Tensor]
) -> te.Tensor:
    """Softmax along one axis; ``powers_of``: e to the power of elements, none of them above 0."""
    at = one_axis(axis, x.ndim, f"nn.{name}")
    largest, rest = _largest(x, at), _rest(at)
    k = te.reduce_axis((0, x.shape[at]), "k")
    place = _with(at, k)
    powers = powers_of(lambda *i: x(*i) - largest(*rest(i)))
    total = te.compute(
        rest(x.shape), lambda *i: te.sum(powers(*place(i)), axis=k), "T_softmax_expsum"
    )
    return te.compute(
        x.shape,
        lambda *i: powers(*i) / total(*rest(i)),
        "T_softmax_norm",
        f"{name}_output",
        {"axis": at},
    )


def softmax(x: te.Tensor, axis: int = -1) -> te.Tensor:
    """exp(x - max(x)) / sum(exp(x - max(x))) along one axis."""

    def powers_of(element: Callable[..., Any]) -> te.Tensor:
        return te.compute(x.shape, lambda *i: FUNCTIONS["exp"](element(*i)), "T_softmax_exp")

    return _softmax(x, axis, "softmax", powers_of)


def fast_softmax(x: te.Tensor, axis: int = -1) -> te.Tensor:
    """:func:`softmax` with :func:`topi.fast_exp`."""

    def powers_of(element: Callable[..., Any]) -> te.Tensor:
        return fast_exp(te.compute(x.shape, element, "T_softmax_delta"))

    return _softmax(x, axis, "fast_softmax", powers_of)


def log_softmax(x: te.Tensor, axis: int = -1) -> te.Tensor:
    """x - max(x) - log(sum(exp(x - max(x)))) along one axis."""
    at = one_axis(axis, x.ndim, "nn.log_softmax")
    largest, rest = _largest(x, at), _rest(at)
    k = te.reduce_axis((0, x.shape[at]), "k")
    place = _with(at, k)

    def power(*i: Any) -> Any:
        return te.sum(FUNCTIONS["exp"](x(*place(i)) - largest(*i)), axis=k)

    total = te.compute(rest(x.shape), power)

    def element(*i: Any) -> Any:
        return x(*i) - largest(*rest(i)) - FUNCTIONS["log"](total(*rest(i)))

    return te.compute(x.shape, element, "compute", "log_softmax_output", {"axis": at})
