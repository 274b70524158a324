"""What convolutions, pooling and resizing share: layouts, attributes per spatial axis, padding.

A layout is a string with one letter an axis, in any order: ``N`` batch, ``C`` channels, ``O`` and
``I`` output and input channels of a kernel, ``D``, ``H``, ``W`` the spatial axes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final

from relax2xla.errors import OpError
from relax2xla.ir.op_param import as_ints
from relax2xla.op.shared.checks import pairs, per_axis
from relax2xla.op.shared.families import OfRank

SPATIAL: Final = {1: "W", 2: "HW", 3: "DHW"}


def _ints(value: Any, ndim: int) -> tuple[int, ...]:
    return per_axis(as_ints(value), ndim, "value")


def _size(value: Any, ndim: int) -> tuple[int, ...] | None:
    return None if value is None else _ints(value, ndim)


def as_padding(value: Any, ndim: int) -> tuple[int, ...]:
    """One number, one per axis, or all befores then all afters, in the last form."""
    both = pairs(as_ints(value), ndim)
    return (*(low for low, _ in both), *(high for _, high in both))


# One number per spatial axis, or one for all; stored per axis.
Ints = Annotated[Any, OfRank(_ints)]
# The same, or None.
Size = Annotated[Any, OfRank(_size)]
Padding = Annotated[Any, OfRank(as_padding)]


def axes_of(layout: str, letters: str, name: str) -> list[int]:
    """Positions in ``layout`` of ``letters``; OpError unless it is a permutation of them."""
    if sorted(layout) != sorted(letters):
        raise OpError(f"`{name}` must be a permutation of {letters!r}; got {layout!r}")
    return [layout.index(c) for c in letters]


def data_axes(layout: str, ndim: int, name: str) -> list[int]:
    """Positions of batch, channel and the spatial axes in a layout such as "NHWC"."""
    return axes_of(layout, "NC" + SPATIAL[ndim], name)


def want_positive(values: Sequence[int], name: str) -> None:
    """OpError unless every entry is at least 1."""
    if any(v < 1 for v in values):
        raise OpError(f"`{name}` must be at least 1 on every axis; got {tuple(values)}")


def arrange(values: Sequence[Any], axes: Sequence[int]) -> tuple[Any, ...]:
    """``values[i]`` at position ``axes[i]``."""
    out: list[Any] = [None] * len(axes)
    for value, axis in zip(values, axes, strict=True):
        out[axis] = value
    return tuple(out)


def replaced(values: Sequence[Any], axis: int, value: Any) -> tuple[Any, ...]:
    """``values`` with ``value`` at ``axis``."""
    return (*values[:axis], value, *values[axis + 1 :])
