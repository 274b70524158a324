"""Operators over axes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from relax2xla import te, tir, topi
from relax2xla.transform.lower.te_forms.table import Form, as_list, form


def _count(x: te.Tensor, axis: Any) -> Any:
    """How many elements there are over axes."""
    made: Any = tir.const(1, "int32")
    for a in range(x.ndim) if axis is None else axis:
        made = made * x.shape[a]
    return made


def mean(x: te.Tensor, axis: Any, keepdims: bool) -> te.Tensor:
    """The mean over axes."""
    return topi.divide(topi.sum(x, axis, keepdims), _count(x, axis))


def variance(x: te.Tensor, axis: Any, keepdims: bool) -> te.Tensor:
    """The mean square of what departs from the mean."""
    off = topi.subtract(x, mean(x, axis, True))
    return mean(topi.multiply(off, off), axis, keepdims)


def std(x: te.Tensor, axis: Any, keepdims: bool) -> te.Tensor:
    """The root of the variance."""
    return topi.sqrt(variance(x, axis, keepdims))


# Functions of a tensor, its axes, and whether these stay as axes of size 1.
OVER_AXES: Final[dict[str, Callable[..., te.Tensor]]] = {
    "argmax": topi.argmax,
    "argmin": topi.argmin,
    "max": topi.max,
    "mean": mean,
    "min": topi.min,
    "prod": topi.prod,
    "std": std,
    "sum": topi.sum,
    "variance": variance,
}


def _over_axes(name: str) -> Form:
    def rule(s: Any) -> Any:
        axes, keepdims = as_list(s.attrs["axis"]), s.attrs["keepdims"]
        return s.te(OVER_AXES[name], s.x, axes, keepdims, name=name)

    return rule


for _name in OVER_AXES:
    form(f"relax.{_name}")(_over_axes(_name))
