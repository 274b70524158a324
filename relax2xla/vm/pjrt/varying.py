"""Values that vary over axes of ``jax.shard_map``, which JAX has as part of their type.

JAX widens such types where operands of one operation meet, and nowhere else: what a loop carries,
what branches give and what a rule of a derivative gives have to say it. With ``check_vma=False``
nothing varies, as far as JAX says.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
from jax import lax


def is_mapped() -> bool:
    """Whether ``jax.shard_map`` maps over axes here, so that values may vary."""
    return bool(jax.sharding.get_abstract_mesh().manual_axes)


def axes_of(tree: Any) -> frozenset[Any]:
    """The axes over which an array of ``tree`` varies; its leaves may be shapes, too."""
    found: frozenset[Any] = frozenset()
    for leaf in jax.tree.leaves(tree):
        shaped = isinstance(leaf, jax.ShapeDtypeStruct | jax.core.ShapedArray)
        aval: Any = leaf if shaped else jax.typeof(leaf)
        kind = getattr(aval, "manual_axis_type", None)
        found |= kind.varying if kind is not None else frozenset()
    return found


def over(axes: frozenset[Any], tree: Any) -> Any:
    """The arrays of ``tree`` as ones that vary over ``axes`` as well."""

    def cast(x: Any) -> Any:
        if jnp.result_type(x) == jax.dtypes.float0:
            return x
        missing = axes - axes_of(x)
        return lax.pcast(x, tuple(sorted(missing, key=str)), to="varying") if missing else x

    return jax.tree.map(cast, tree) if axes else tree


def like(types: Any, tree: Any) -> Any:
    """``tree`` with each array varying over what the one at its place in ``types`` does as well."""
    return jax.tree.map(lambda t, x: over(axes_of(t), x), types, tree) if is_mapped() else tree


def settled(
    step: Callable[[Any], Any], start: Any, ends: Callable[[Any], Any] | None = None
) -> tuple[Callable[[Any], Any], Any]:
    """A round of a loop, and what it starts from, such that each value keeps the type it has.

    ends: what decides on the last round, if devices may differ in it
    """
    if not is_mapped():
        return step, start
    while True:
        wide = like(jax.eval_shape(step, start), start)
        if ends is not None:
            wide = over(axes_of(jax.eval_shape(ends, start)), wide)
        if all(map(operator.is_, jax.tree.leaves(wide), jax.tree.leaves(start))):
            return lambda carry: like(carry, step(carry)), start
        start = wide


def scan(step: Callable[..., Any], start: Any, xs: Any, **how: Any) -> Any:
    """``lax.scan`` whose carry varies over what a round makes of it."""
    if not is_mapped():
        return lax.scan(step, start, xs, **how)

    def first(x: Any) -> Any:
        return _zeros(x.shape[1:], x.dtype, axes_of(x))

    _, start = settled(lambda carry: step(carry, jax.tree.map(first, xs))[0], start)

    def once(carry: Any, item: Any) -> Any:
        made, row = step(carry, item)
        return like(carry, made), row

    return lax.scan(once, start, xs, **how)


def results(function: Callable[..., Any], avals: Sequence[Any]) -> Sequence[Any]:
    """The types of the arrays that ``function`` gives on arrays of these types, here."""
    if not is_mapped():
        made = jax.eval_shape(function, *(jax.ShapeDtypeStruct(a.shape, a.dtype) for a in avals))
        return [jax.core.ShapedArray(y.shape, y.dtype) for y in made]
    given = [(a.shape, a.dtype, axes_of(a)) for a in avals]
    return jax.make_jaxpr(lambda: function(*(_zeros(*g) for g in given)))().out_avals


def outputs_on(avals: Sequence[Any], outputs: Sequence[Any]) -> Sequence[Any]:
    """The types of a program's results, ``outputs``, on operands of these types."""
    axes = axes_of(avals) if is_mapped() else frozenset[Any]()
    return (
        results(lambda: [_zeros(o.shape, o.dtype, axes) for o in outputs], ()) if axes else outputs
    )


def _zeros(shape: Sequence[int], dtype: Any, axes: frozenset[Any]) -> Any:
    return over(axes, jnp.zeros(shape, dtype))
