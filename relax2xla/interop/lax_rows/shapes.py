"""Rows that make constants and change shapes. Dynamic ones have results of known sizes here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from relax2xla.errors import UnsupportedError
from relax2xla.interop.lax_rows.site import Prepared, Rule, Site

Function = Callable[..., Any]


def known(value: Any, what: str) -> tuple[int, ...]:
    """A vector of integers that does not depend on traced values."""
    try:
        return tuple(map(int, np.asarray(value)))
    except Exception as e:  # whatever JAX raises of a traced value
        raise UnsupportedError(f"{what} has to be known while JAX traces; it is computed") from e


def _iota(site: Site, *sizes: Any) -> Any:
    return lax.broadcasted_iota(site.dtype, site.shape, site.attrs["iota_dimension"])


def _spread(site: Site) -> Function:
    shape, dims = site.shape, site.ints("broadcast_dimensions")
    return lambda x, *sizes: lax.broadcast_in_dim(x, shape, dims)


def _reshape(site: Site) -> Function:
    shape = site.shape
    return lambda x, *sizes: lax.reshape(x, shape)


def _transpose(site: Site) -> Function:
    axes = site.ints("permutation")
    return lambda x: lax.transpose(x, axes)


def _concatenate(site: Site) -> Function:
    axis = site.attrs["dimension"]
    return lambda *xs: lax.concatenate(xs, axis)


def _slice(site: Site) -> Function:
    bounds = [site.ints(n) for n in ("start_indices", "limit_indices", "strides")]
    return lambda x: lax.slice(x, *bounds)


def _pad(site: Site) -> Function:
    names = ("edge_padding_low", "edge_padding_high", "interior_padding")
    edges = list(zip(*(site.ints(n) for n in names), strict=True))
    return lambda x, value: lax.pad(x, value, edges)


def _dynamic_pad(site: Site, x: Any, value: Any, low: Any, high: Any, inner: Any) -> Any:
    sizes = (known(v, "padding") for v in (low, high, inner))
    return lax.pad(x, value, list(zip(*sizes, strict=True)))


def _dynamic_slice(site: Site, x: Any, start: Any, limit: Any, strides: Any) -> Any:
    return lax.slice(x, *(known(v, "the bounds of a slice") for v in (start, limit, strides)))


def _constant(site: Site, value: Any) -> Any:
    return value


def _constant_like(site: Site, x: Any) -> Any:
    value = site.attrs["value"]
    return lax.full_like(x, value if not hasattr(value, "get") else value["value"])


RULES: dict[str, Rule] = {
    "stablehlo.constant": _constant,
    "chlo.constant": _constant,
    "sdy.constant": _constant,
    "chlo.constant_like": _constant_like,
    "stablehlo.iota": _iota,
    "stablehlo.dynamic_iota": _iota,
    "stablehlo.reshape": Prepared(_reshape),
    "stablehlo.dynamic_reshape": Prepared(_reshape),
    "stablehlo.broadcast": lambda site, x: lax.broadcast(x, site.ints("broadcast_sizes")),
    "stablehlo.broadcast_in_dim": Prepared(_spread),
    "stablehlo.dynamic_broadcast_in_dim": Prepared(_spread),
    "stablehlo.transpose": Prepared(_transpose),
    "stablehlo.reverse": lambda site, x: lax.rev(x, site.ints("dimensions")),
    "stablehlo.concatenate": Prepared(_concatenate),
    "stablehlo.pad": Prepared(_pad),
    "stablehlo.dynamic_pad": _dynamic_pad,
    "stablehlo.slice": Prepared(_slice),
    "stablehlo.real_dynamic_slice": _dynamic_slice,
    "stablehlo.get_dimension_size": lambda site, x: np.int32(np.shape(x)[site.attrs["dimension"]]),
}
# Tuples and what keeps values where they are.
_STRUCTURE: dict[str, Rule] = {
    "stablehlo.tuple": lambda site, *xs: tuple(xs),
    "stablehlo.get_tuple_element": lambda site, x: x[site.attrs["index"]],
    "stablehlo.optimization_barrier": lambda site, *xs: site.result(
        lax.optimization_barrier(tuple(map(jnp.asarray, xs)))
    ),
    "stablehlo.create_token": lambda site: (),
    "stablehlo.after_all": lambda site, *tokens: (),
}
# On one device Shardy's annotations are their operand.
_ANNOTATIONS: dict[str, Rule] = {
    f"sdy.{name}": lambda site, x: x
    for name in (
        "sharding_constraint",
        "reshard",
        "all_gather",
        "all_slice",
        "all_to_all",
        "collective_permute",
        "propagation_barrier",
        "data_flow_edge",
        "func_data_flow_edge",
    )
}
RULES.update(_STRUCTURE | _ANNOTATIONS | {"sdy.sharding_group": lambda site, x: ()})
