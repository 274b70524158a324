"""What convolutions, pooling and resizing share: one unit for all ranks, layouts, padding.

A layout is a string with one letter an axis, in any order: ``N`` batch, ``C`` channels, ``O`` and
``I`` output and input channels of a kernel, ``D``, ``H``, ``W`` the spatial axes.
"""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Concatenate, Final, ParamSpec, TypeVar

from relax2xla.errors import OpError
from relax2xla.ir.op import Kind, Op, Rule, as_ints, op
from relax2xla.op.shared.checks import pairs, per_axis

P = ParamSpec("P")
Which = TypeVar("Which")
SPATIAL: Final = {1: "W", 2: "HW", 3: "DHW"}


@dataclass(frozen=True, slots=True)
class OfRank:
    """How an attribute is converted, which depends on the number of spatial axes."""

    convert: Callable[[Any, int], Any]


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


@functools.cache
def _described(rule: Callable[..., Rule]) -> tuple[list[inspect.Parameter], dict[str, Any]]:
    """The parameters of a family's unit but the first, and what all annotations mean."""
    own, *parameters = inspect.signature(rule).parameters.values()
    hints = typing.get_type_hints(rule, include_extras=True)
    return parameters, {name: hint for name, hint in hints.items() if name != own.name}


def ranked(
    name: str,
    rule: Callable[Concatenate[Which, P], Rule],
    which: Which,
    ndim: int,
    *,
    doc: str,
    follows: Mapping[str, str] | None = None,
    defaults: Mapping[str, Any],
) -> Op[P]:
    """One member of a family: the operator of ``ndim`` spatial axes.

    ``rule`` is the unit that the family shares. Its first argument says ``which`` member it is; the
    others are the operator's, with ``defaults`` in the place of those that it states.
    """
    parameters, hints = _described(rule)

    def made(*args: P.args, **kwargs: P.kwargs) -> Rule:
        return rule(which, *args, **kwargs)

    def at_rank(hint: Any) -> Any:
        kind = next((m for m in getattr(hint, "__metadata__", ()) if isinstance(m, OfRank)), None)
        if kind is None:
            return hint
        return Annotated[Any, Kind(False, lambda value: kind.convert(value, ndim))]

    unknown = defaults.keys() - {p.name for p in parameters}
    if unknown:
        raise RuntimeError(f"{name} has no parameter {', '.join(sorted(unknown))}")
    signature = [p.replace(default=defaults.get(p.name, p.default)) for p in parameters]
    made.__annotations__ = {n: at_rank(h) for n, h in hints.items()}
    setattr(made, "__signature__", inspect.Signature(signature))  # noqa: B010
    return op(name, doc=doc, follows=follows)(made)


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
