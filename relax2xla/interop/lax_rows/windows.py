"""Reductions over windows, and their inverse.

Sums, largest and smallest values are JAX's primitives. Everything else goes window offset by window
offset: as many element-wise steps as a window has places.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from relax2xla.interop.lax_rows.arithmetic import BINARY
from relax2xla.interop.lax_rows.reductions import identity, operation, starts_with_identity
from relax2xla.interop.lax_rows.site import (
    Region,
    Rule,
    Site,
    short_name,
    vectorised,
    with_derivative_of,
)
from relax2xla.ir import Call

_MONOIDS: dict[str, Any] = {"add": lax.add, "maximum": lax.max, "minimum": lax.min}


@dataclass(frozen=True, slots=True)
class Window:
    """The windows of a row over an array."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    padding: Sequence[tuple[int, int]]
    base: tuple[int, ...]
    dilation: tuple[int, ...]

    @classmethod
    def of(cls, site: Site, rank: int) -> Window:
        """As the attributes of a row say; all are 1 where they are absent."""
        return cls(
            site.ints("window_dimensions", 1, rank),
            site.ints("window_strides", 1, rank),
            site.pairs("padding", rank),
            site.ints("base_dilations", 1, rank),
            site.ints("window_dilations", 1, rank),
        )

    def monoid(self, x: Any, name: str) -> Any:
        """The reduction by a binary row that JAX has a primitive of."""
        return lax.reduce_window(
            x,
            identity(name, x.dtype)[()],
            _MONOIDS[name],
            self.sizes,
            self.strides,
            self.padding,
            self.base,
            self.dilation,
        )

    def padded(self, x: Any, value: Any) -> Any:
        """``x`` with its padding, and ``value`` between elements where windows see gaps."""
        edges = [(a, b, d - 1) for (a, b), d in zip(self.padding, self.base, strict=True)]
        return lax.pad(x, value, edges)

    def offsets(self) -> Iterator[tuple[int, ...]]:
        """Every place in a window, counted in elements of the padded array."""
        places = itertools.product(*map(range, self.sizes))
        return (tuple(i * d for i, d in zip(p, self.dilation, strict=True)) for p in places)

    def counts(self, padded: Sequence[int]) -> list[int]:
        """How many windows there are along each axis."""
        spans = [(n - 1) * d + 1 for n, d in zip(self.sizes, self.dilation, strict=True)]
        return [
            max(0, (n - span) // s + 1)
            for n, span, s in zip(padded, spans, self.strides, strict=True)
        ]

    def at(self, padded: Any, offset: tuple[int, ...]) -> tuple[slice, ...]:
        """Where the windows have their place ``offset`` in the padded array."""
        counts = self.counts(np.shape(padded))
        return tuple(
            slice(o, o + (n - 1) * s + 1 if n else o, s)
            for o, n, s in zip(offset, counts, self.strides, strict=True)
        )


def _reduce_window(site: Site, *operands: Any) -> Any:
    *arrays, region = operands
    assert isinstance(region, Region)
    count = len(arrays) // 2
    inits = [jnp.asarray(a) for a in arrays[count:]]
    xs = [lax.convert_element_type(x, i.dtype) for x, i in zip(arrays[:count], inits, strict=True)]
    window = Window.of(site, xs[0].ndim)

    def smooth(*xs: Any) -> tuple[Any, ...]:
        padded = [window.padded(x, i) for x, i in zip(xs, inits, strict=True)]
        made = [jnp.broadcast_to(i, site.shape) for i in inits]
        for offset in window.offsets():
            new = [p[window.at(p, offset)] for p in padded]
            made = vectorised(region.several, *made, *new)
        return tuple(made)

    name = operation(region, xs[0].dtype) if count == 1 else ""
    if name in _MONOIDS:
        fast: Callable[..., Any] = functools.partial(window.monoid, name=name)
        # JAX cannot turn round the derivative of a largest value over windows with gaps.
        if name != "add" and {*window.dilation, *window.base} != {1}:
            plain = fast
            first = jnp.greater_equal if name == "maximum" else jnp.less_equal

            def taken(x: Any) -> Any:
                """Of equal elements the first has the derivative."""
                padded = window.padded(x, inits[0])
                made = jnp.broadcast_to(inits[0], site.shape)
                for offset in window.offsets():
                    new = padded[window.at(padded, offset)]
                    made = jnp.where(first(made, new), made, new)
                return made

            fast = with_derivative_of(plain, taken)
        made = fast(xs[0])
        if starts_with_identity(site, 1, name, made.dtype):
            return made
        return BINARY[name](made, jnp.broadcast_to(inits[0], made.shape))
    return site.result(smooth(*xs))


def _select_and_scatter(site: Site, *operands: Any) -> Any:
    x, source, init, select, scatter = operands
    window = Window.of(site, np.ndim(x))
    body = next(iter(select.values.values()), None)
    name = ""
    if isinstance(body, Call) and short_name(body) == "compare" and len(select.values) == 1:
        if tuple(body.args) == tuple(select.func.params):
            direction = body.attrs["comparison_direction"]
            name = {"GE": "maximum", "LE": "minimum"}.get(direction, "")
    if name and scatter.binary == "add":
        # The first largest element of each window: the derivative of JAX's own reduction.
        _, back = jax.vjp(functools.partial(window.monoid, name=name), x)
        return back(source)[0] + init
    return _select_then_scatter(window, x, source, init, select, scatter)


def _select_then_scatter(
    window: Window, x: Any, source: Any, init: Any, select: Region, scatter: Region
) -> Any:
    """The same for any two bodies: who wins in each window, then who gets what."""
    padded = window.padded(x, lax.full_like(x, 0, shape=()))
    inside = window.padded(lax.full_like(x, True, dtype=bool), False)
    best = jnp.zeros(np.shape(source), padded.dtype)
    winner = jnp.full(np.shape(source), -1, np.int32)
    for number, offset in enumerate(window.offsets()):
        where = window.at(padded, offset)
        new, valid = padded[where], inside[where]
        keeps = vectorised(select, best, new) & (winner >= 0)
        takes = valid & ~keeps
        best, winner = jnp.where(takes, new, best), jnp.where(takes, number, winner)
    made = jnp.full(padded.shape, init)
    for number, offset in enumerate(window.offsets()):
        where = window.at(padded, offset)
        old = made[where]
        made = made.at[where].set(
            jnp.where(winner == number, vectorised(scatter, old, source), old)
        )
    edges = [(-a, -b, 0) for a, b in window.padding]
    return lax.pad(made, lax.full_like(made, 0, shape=()), edges)


RULES: dict[str, Rule] = {
    "stablehlo.reduce_window": _reduce_window,
    "stablehlo.select_and_scatter": _select_and_scatter,
}
