"""Reductions, normalisation over a batch, and CHLO's scan.

A body that is one operation becomes JAX's primitive of it, which has every derivative. Any other
body is folded in pairs, a tree of as many levels as the axis has bits; its derivative is that of
the body's own operations, so that an argmax gives its cotangent to the element that it takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer

from relax2xla.interop.lax_rows.arithmetic import BINARY
from relax2xla.interop.lax_rows.site import Region, Rule, Site, vectorised, with_derivative_of
from relax2xla.vm.pjrt.varying import scan

_MONOIDS: dict[str, Any] = {
    "add": lax.reduce_sum,
    "multiply": lax.reduce_prod,
    "maximum": lax.reduce_max,
    "minimum": lax.reduce_min,
    "and_": lax.reduce_and,
    "or_": lax.reduce_or,
    "xor": lax.reduce_xor,
}
# The same operations on booleans.
BOOLEAN = {"add": "or_", "maximum": "or_", "multiply": "and_", "minimum": "and_"}


def identity(name: str, dtype: Any) -> Any:
    """The identity of a binary row on a dtype, as a number of it."""
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return np.asarray(name in ("and_", "multiply", "minimum"))
    if name in ("maximum", "minimum"):
        if jnp.issubdtype(dtype, np.integer):
            limits = jnp.iinfo(dtype)
            return np.asarray(limits.min if name == "maximum" else limits.max, dtype)
        return np.asarray(-np.inf if name == "maximum" else np.inf, dtype)
    if name == "and_":
        return np.invert(np.zeros((), dtype))
    return np.asarray(1 if name == "multiply" else 0, dtype)


def operation(region: Region, dtype: Any) -> str:
    """The binary row that a body is, if JAX has a reduction by it; else ""."""
    name = region.binary
    if name not in _MONOIDS or (name in ("maximum", "minimum") and np.dtype(dtype).kind == "c"):
        return ""
    return BOOLEAN.get(name, name) if np.dtype(dtype).kind == "b" else name


def starts_with_identity(site: Site, operand: int, name: str, dtype: Any) -> bool:
    """Whether an initial value is known to be the identity."""
    given = site.literal(operand)
    return given is not None and bool(given == identity(name, dtype))


def _reduce(site: Site, *operands: Any) -> Any:
    *arrays, region = operands
    assert isinstance(region, Region)
    count = len(arrays) // 2
    dims = site.ints("dimensions")
    xs, inits = arrays[:count], arrays[count:]
    name = operation(region, inits[0].dtype) if count == 1 else ""
    if any(x.dtype != i.dtype for x, i in zip(xs, inits, strict=True)):
        xs = [lax.convert_element_type(x, i.dtype) for x, i in zip(xs, inits, strict=True)]
    if name:
        made = _MONOIDS[name](jnp.asarray(xs[0]), dims)
        if starts_with_identity(site, 1, name, made.dtype):
            return made
        return BINARY[name](made, lax.broadcast(inits[0], made.shape))
    inits = [jnp.asarray(i) for i in inits]

    def fast(*xs: Any) -> Any:
        def body(left: Any, right: Any) -> Any:
            if count == 1:
                return region(left, right)
            return region.several(*left, *right)

        made = lax.reduce(
            xs[0] if count == 1 else tuple(xs),
            inits[0] if count == 1 else tuple(inits),
            body,
            dims,
        )
        return (made,) if count == 1 else tuple(made)

    def smooth(*xs: Any) -> Any:
        return _folded(region, xs, inits, dims)

    if any(isinstance(i, Tracer) for i in inits) or _captures(region):
        return site.result(smooth(*xs))
    return site.result(with_derivative_of(fast, smooth)(*xs))


def _captures(region: Region) -> bool:
    """Whether a body may use values from around it."""
    return any(isinstance(v, Tracer) for v in region.env.values())


def _folded(
    region: Region, xs: Sequence[Any], inits: Sequence[Any], dims: Sequence[int]
) -> tuple[Any, ...]:
    """The reduction of ``xs`` over ``dims`` as a tree of the body's operations."""
    kept = [a for a in range(np.ndim(xs[0])) if a not in dims]
    shape = [np.shape(xs[0])[a] for a in kept]
    values = [lax.reshape(lax.transpose(x, [*dims, *kept]), (_size(x, dims), *shape)) for x in xs]
    values = [
        lax.concatenate([lax.broadcast(i, (1, *shape)), v], 0)
        for i, v in zip(inits, values, strict=True)
    ]
    return folded(region, values)


def _size(x: Any, dims: Sequence[int]) -> int:
    return int(np.prod([np.shape(x)[d] for d in dims], dtype=np.int64))


def folded(region: Region, values: Sequence[Any]) -> tuple[Any, ...]:
    """Arrays combined along their first axis by an associative body."""
    size = np.shape(values[0])[0]
    while size > 1:
        half = size // 2
        left = [v[: 2 * half : 2] for v in values]
        right = [v[1 : 2 * half : 2] for v in values]
        made = vectorised(region.several, *left, *right)
        rest = [v[2 * half :] for v in values]
        values = [lax.concatenate(pair, 0) for pair in zip(made, rest, strict=True)]
        size = half + size % 2
    return tuple(v[0] for v in values)


# ---- batch normalisation
def _others(site: Site, x: Any) -> tuple[tuple[int, ...], Any]:
    """The axes beside the feature's, and a function that lays a vector along the feature axis."""
    axes = tuple(a for a in range(np.ndim(x)) if a != site.attrs["feature_index"])
    return axes, lambda v: jnp.expand_dims(v, axes)


def _batch_norm(site: Site, x: Any, scale: Any, offset: Any, mean: Any, variance: Any) -> Any:
    _, along = _others(site, x)
    epsilon = np.asarray(site.attrs["epsilon"], x.dtype)
    return (x - along(mean)) / lax.sqrt(along(variance) + epsilon) * along(scale) + along(offset)


def _batch_norm_training(site: Site, x: Any, scale: Any, offset: Any) -> Any:
    axes, along = _others(site, x)
    mean = x.mean(axes)
    variance = lax.square(x - along(mean)).mean(axes)
    return _batch_norm(site, x, scale, offset, mean, variance), mean, variance


def _batch_norm_grad(site: Site, x: Any, scale: Any, mean: Any, variance: Any, ct: Any) -> Any:
    axes, along = _others(site, x)
    inverse = lax.rsqrt(variance + np.asarray(site.attrs["epsilon"], x.dtype))
    normal = (x - along(mean)) * along(inverse)
    count = x.size // x.shape[site.attrs["feature_index"]]
    of_scale, of_offset = (ct * normal).sum(axes), ct.sum(axes)
    inner = count * ct - along(of_offset) - normal * along(of_scale)
    return along(scale * inverse) / count * inner, of_scale, of_offset


# ---- scan
def _scan(site: Site, *operands: Any) -> Any:
    """CHLO's scan: the body takes slices of the inputs and the carry, and gives both."""
    *arrays, region = operands
    assert isinstance(region, Region)
    inputs, _ = site.ints("operandSegmentSizes")
    outputs, _ = site.ints("resultSegmentSizes")
    axis = site.attrs["dimension"]
    xs = [jnp.moveaxis(jnp.asarray(x), axis, 0) for x in arrays[:inputs]]

    def step(carry: Any, item: Any) -> Any:
        made = region.several(*item, *carry)
        return tuple(made[outputs:]), made[:outputs]

    carry, made = scan(
        step,
        tuple(map(jnp.asarray, arrays[inputs:])),
        tuple(xs),
        length=site.attrs.get("scan_dim_size"),
        reverse=bool(site.attrs.get("is_reverse")),
    )
    return site.result([*(jnp.moveaxis(m, 0, axis) for m in made), *carry])


RULES: dict[str, Rule] = {
    "stablehlo.reduce": _reduce,
    "stablehlo.batch_norm_inference": _batch_norm,
    "stablehlo.batch_norm_training": _batch_norm_training,
    "stablehlo.batch_norm_grad": _batch_norm_grad,
    "chlo.scan": _scan,
}
