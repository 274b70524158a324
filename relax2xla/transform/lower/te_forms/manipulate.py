"""Operators that give the same elements in another shape or order, or several times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from relax2xla import te, topi
from relax2xla.ir import Expr
from relax2xla.transform.lower.te_forms.table import (
    Form,
    Site,
    Stays,
    as_list,
    form,
    shape_of,
    value_of_shape,
)

# Functions of a tensor and a shape.
TO_SHAPE: Final[dict[str, Callable[..., te.Tensor]]] = {
    "broadcast_to": topi.broadcast_to,
    "collapse_sum_to": topi.collapse_sum,
    "reshape": topi.reshape,
}


def _to_shape(name: str) -> Form:
    def rule(s: Site) -> Expr:
        func = TO_SHAPE[name]
        return s.te(func, s.x, value_of_shape(s.args[1]), name=func.__name__)

    return rule


for _name in TO_SHAPE:
    form(f"relax.{_name}")(_to_shape(_name))


@form("relax.collapse_sum_like")
def _(s: Site) -> Expr:
    return s.te(topi.collapse_sum, s.x, shape_of(s.args[1]))


@form("relax.flatten")
def _(s: Site) -> Expr:
    return s.te(topi.reshape, s.x, shape_of(s.call))


@form("relax.concat")
def _(s: Site) -> Expr:
    axis = s.attrs["axis"]
    return s.te(topi.concatenate, s.fields(s.x), 0 if axis is None else axis)


@form("relax.stack")
def _(s: Site) -> Expr:
    return s.te(topi.stack, s.fields(s.x), s.attrs["axis"])


@form("relax.expand_dims")
def _(s: Site) -> Expr:
    return s.te(expand_dims, s.x, list(s.attrs["axis"]))


def expand_dims(data: te.Tensor, axis: Sequence[int]) -> te.Tensor:
    """Axes of size 1 at the places ``axis`` of the result."""
    count = data.ndim + len(axis)
    new = {a % count for a in axis}
    sizes = iter(data.shape)
    shape = [1 if n in new else next(sizes) for n in range(count)]

    def element(*i: Any) -> Any:
        return data(*(v for n, v in enumerate(i) if n not in new))

    return te.compute(shape, element, name="expand_dims")


@form("relax.permute_dims")
def _(s: Site) -> Expr:
    return s.te(topi.transpose, s.x, as_list(s.attrs["axes"]))


@form("relax.squeeze")
def _(s: Site) -> Expr:
    return s.te(topi.squeeze, s.x, as_list(s.attrs["axis"]))


@form("relax.split")
def _(s: Site) -> Expr:
    return s.te(topi.split, s.x, as_list(s.attrs["indices_or_sections"]), s.attrs["axis"])


@form("relax.repeat")
def _(s: Site) -> Expr:
    return s.te(repeat, s.x, s.attrs["repeats"], s.attrs["axis"])


def repeat(data: te.Tensor, repeats: int, axis: int | None) -> te.Tensor:
    """Each element ``repeats`` times along an axis, of all elements in a row by default."""
    if axis is None:
        size = data.shape[0]
        for d in data.shape[1:]:
            size = size * d
        data, axis = topi.reshape(data, (size,)), 0
    return topi.repeat(data, repeats, axis)


@form("relax.tile")
def _(s: Site) -> Expr:
    return s.te(topi.tile, s.x, as_list(s.attrs["repeats"]))


@form("relax.flip")
def _(s: Site) -> Expr:
    axis = s.attrs["axis"]
    if not isinstance(axis, int):
        raise Stays("it turns several axes")
    return s.te(topi.flip, s.x, axis)
