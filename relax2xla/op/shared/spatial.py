"""What convolutions and pooling share: layouts, attributes per spatial axis, padding.

A layout is a string with one letter an axis, in any order: ``N`` batch, ``C`` channels, ``O`` and
``I`` output and input channels of a kernel, ``D``, ``H``, ``W`` the spatial axes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final

from relax2xla.errors import OpError
from relax2xla.ir.op import Kind, as_ints
from relax2xla.op.shared.checks import pairs, per_axis

SPATIAL: Final = {1: "W", 2: "HW", 3: "DHW"}


def _ints(ndim: int) -> Callable[[Any], tuple[int, ...]]:
    return lambda value: per_axis(as_ints(value), ndim, "value")


def _padding(ndim: int) -> Callable[[Any], tuple[int, ...]]:
    def convert(value: Any) -> tuple[int, ...]:
        both = pairs(as_ints(value), ndim)
        return (*(low for low, _ in both), *(high for _, high in both))

    return convert


def _optional(convert: Callable[[Any], tuple[int, ...]]) -> Callable[[Any], tuple[int, ...] | None]:
    return lambda value: None if value is None else convert(value)


# One number per spatial axis, or one for all; stored per axis.
Ints1 = Annotated[Any, Kind(False, _ints(1))]
Ints2 = Annotated[Any, Kind(False, _ints(2))]
Ints3 = Annotated[Any, Kind(False, _ints(3))]
# The same, or None.
Size1 = Annotated[Any, Kind(False, _optional(_ints(1)))]
Size2 = Annotated[Any, Kind(False, _optional(_ints(2)))]
Size3 = Annotated[Any, Kind(False, _optional(_ints(3)))]
# One number, one per axis, or all befores then all afters; stored in the last form.
Padding1 = Annotated[Any, Kind(False, _padding(1))]
Padding2 = Annotated[Any, Kind(False, _padding(2))]
Padding3 = Annotated[Any, Kind(False, _padding(3))]


def axes_of(layout: str, letters: str, name: str) -> list[int]:
    """Positions in ``layout`` of ``letters``; OpError unless it is a permutation of them."""
    if sorted(layout) != sorted(letters):
        hint = ""
        if any(c.isdigit() or c.islower() for c in layout):
            hint = (
                "; blocked layouts such as NCHW4c are not supported: use reshape and permute_dims"
            )
        raise OpError(f"`{name}` must be a permutation of {letters!r}; got {layout!r}{hint}")
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
