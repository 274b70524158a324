"""Sorting by any comparator: a permutation, by which the operands are gathered.

The permutation has no derivative, the gathered values have. A comparator that compares one operand
(or the same function of it) becomes a sort of integers by JAX; any other one goes through a network
of comparisons, ``log2(n)**2 / 2`` steps over all elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from relax2xla.interop.lax_rows.arithmetic import total_order
from relax2xla.interop.lax_rows.site import Region, Rule, Site, short_name, vectorised
from relax2xla.ir import Binding, BindingBlock, Call, Constant, Expr, Function, SeqExpr
from relax2xla.ir.rewrite import bindings_of
from relax2xla.vm.pjrt.varying import scan


def _sort(site: Site, *operands: Any) -> Any:
    *xs, region = operands
    assert isinstance(region, Region)
    axis = site.attrs.get("dimension", -1) % max(np.ndim(xs[0]), 1)
    fixed = [lax.stop_gradient(jnp.asarray(x)) for x in xs]
    key = _key(region, fixed)
    order = _by_network(region, fixed, axis) if key is None else _by_key(key, axis)
    return site.result([_taken(jnp.asarray(x), order, axis) for x in xs])


def _taken(x: Any, order: Any, axis: int) -> Any:
    return jnp.take_along_axis(x, order, axis=axis, mode="promise_in_bounds")


def _by_key(key: Any, axis: int) -> Any:
    places = lax.broadcasted_iota(np.int32, key.shape, axis)
    return lax.sort((key, places), dimension=axis, is_stable=True, num_keys=1)[1]


def _key(region: Region, xs: Sequence[Any]) -> Any:
    """What the comparator sorts by, smallest first; None where it compares in another way."""
    value = region.values.get(region.func.body.body)
    if not isinstance(value, Call) or short_name(value) != "compare":
        return None
    direction = value.attrs["comparison_direction"]
    params = region.func.params
    used = [_parameters(region, a) for a in value.args]
    if direction not in ("LT", "GT") or any(len(u) != 1 for u in used):
        return None
    (first,), (second,) = (tuple(map(params.index, u)) for u in used)
    forms = [_form(region, a) for a in value.args]
    if first ^ 1 != second or forms[0] != forms[1]:
        return None
    left = value.args[0]
    side = Function([params[first]], SeqExpr([BindingBlock(_chain(region, left))], left))
    key = vectorised(lambda x: region.runner.call(side, [x], region.env), xs[first // 2])
    if value.attrs.get("compare_type") != "TOTALORDER" and jnp.issubdtype(key.dtype, np.floating):
        key = jnp.where(key == 0, jnp.zeros_like(key), key)
    key = total_order(key)
    # Backwards by the complement, so that equal elements keep their order.
    return ~key if (direction == "GT") != bool(first % 2) else key


def _nodes(region: Region, expr: Expr) -> list[Expr]:
    """What ``expr`` is made of inside the region, operands first, each once."""
    found: dict[Expr, None] = {}
    todo = [(expr, False)]
    while todo:
        node, ready = todo.pop()
        value = region.values.get(node)
        if ready or not isinstance(value, Call):
            found[node] = None
        elif node not in found:
            todo += [(node, True), *((a, False) for a in reversed(value.args))]
    return list(found)


def _parameters(region: Region, expr: Expr) -> set[Expr]:
    return {n for n in _nodes(region, expr) if n in region.func.params}


def _chain(region: Region, expr: Expr) -> list[Binding]:
    wanted = {*_nodes(region, expr)}
    return [b for b in bindings_of(region.func.body) if b.var in wanted]


def _form(region: Region, expr: Expr) -> list[object]:
    """What ``expr`` computes, in names and numbers: alike for the same function."""
    nodes = _nodes(region, expr)
    place = {n: i for i, n in enumerate(nodes)}
    made: list[object] = []
    for node in nodes:
        value = region.values.get(node, node)
        if isinstance(value, Call):
            made.append((short_name(value), str(value.attrs), [place[a] for a in value.args]))
        elif isinstance(value, Constant):
            made.append((str(value.data.dtype), value.data.tobytes()))
        else:
            made.append("operand" if value in region.func.params else id(value))
    return made


def _by_network(region: Region, xs: Sequence[Any], axis: int) -> Any:
    """The permutation by Batcher's bitonic network; equal elements keep their order."""
    xs = [jnp.moveaxis(x, axis, -1) for x in xs]
    count, lead = xs[0].shape[-1], xs[0].shape[:-1]
    levels = max(count - 1, 0).bit_length()
    size = 1 << levels
    places = lax.iota(np.int32, size)
    order = jnp.broadcast_to(places, (*lead, size))
    stages = [(k, j) for k in range(1, levels + 1) for j in reversed(range(k))]
    if not stages:
        return jnp.moveaxis(order, -1, axis)

    def before(i: Any, j: Any) -> Any:
        """Whether the elements that stood at ``i`` come before those at ``j``."""
        at = [jnp.take_along_axis(x, jnp.minimum(p, count - 1), -1) for x in xs for p in (i, j)]
        back = [at[n ^ 1] for n in range(len(at))]
        first = vectorised(region, *at)
        tie = ~first & ~vectorised(region, *back) & (i < j)
        return jnp.where(i >= count, (j >= count) & (i < j), (j >= count) | first | tie)

    def stage(order: Any, kj: Any) -> Any:
        k, j = kj
        other = jnp.take(order, places ^ (1 << j), axis=-1)
        rising = (places >> k) & 1 == 0
        lower = (places >> j) & 1 == 0
        keeps = before(order, other) == (rising == lower)
        return jnp.where(keeps, order, other), None

    order, _ = scan(stage, order, jnp.asarray(stages, np.int32))
    return jnp.moveaxis(order[..., :count], -1, axis)


def _top_k(site: Site, x: Any) -> Any:
    return tuple(lax.top_k(x, site.attrs["k"]))


RULES: dict[str, Rule] = {"stablehlo.sort": _sort, "chlo.top_k": _top_k}
