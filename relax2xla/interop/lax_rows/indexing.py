"""Rows that read and write by computed positions."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from relax2xla.interop.lax_rows.site import Region, Rule, Site, with_derivative_of
from relax2xla.vm.pjrt.varying import scan


def narrow(index: Any) -> Any:
    """64-bit positions as int32 ones: no axis is longer, and every row clamps or drops the rest.

    Derivatives are built outside of what allows 64 bits where JAX's flag does not.
    """
    index = jnp.asarray(index)
    if index.dtype.itemsize < 8:
        return index
    low = 0 if index.dtype.kind == "u" else -1
    most = np.iinfo(np.int32).max
    kept = lax.clamp(np.asarray(low, index.dtype), index, np.asarray(most, index.dtype))
    return lax.convert_element_type(kept, np.int32)


def _vectors_last(index: Any, axis: int) -> Any:
    """Positions with the axis of their parts at the end; without one, each is a number."""
    index = narrow(index)
    return lax.expand_dims(index, (axis,)) if axis == index.ndim else jnp.moveaxis(index, axis, -1)


def _dynamic_slice(site: Site, x: Any, *start: Any) -> Any:
    return lax.dynamic_slice(
        x, [narrow(i) for i in start], site.ints("slice_sizes"), allow_negative_indices=False
    )


def _update_slice(site: Site, x: Any, update: Any, *start: Any) -> Any:
    return lax.dynamic_update_slice(
        x, update, [narrow(i) for i in start], allow_negative_indices=False
    )


def _gather(site: Site, x: Any, index: Any, *sizes: Any) -> Any:
    dims = site.attrs["dimension_numbers"]
    numbers = lax.GatherDimensionNumbers(
        tuple(dims.get("offset_dims", ())),
        tuple(dims.get("collapsed_slice_dims", ())),
        tuple(dims.get("start_index_map", ())),
        tuple(dims.get("operand_batching_dims", ())),
        tuple(dims.get("start_indices_batching_dims", ())),
    )
    return lax.gather(
        x,
        _vectors_last(index, dims.get("index_vector_dim", 0)),
        numbers,
        site.ints("slice_sizes") if not sizes else tuple(map(int, np.asarray(sizes[0]))),
        indices_are_sorted=bool(site.attrs.get("indices_are_sorted")),
        mode=lax.GatherScatterMode.CLIP,
    )


_SCATTERS: dict[str, Any] = {
    "add": lax.scatter_add,
    "multiply": lax.scatter_mul,
    "maximum": lax.scatter_max,
    "minimum": lax.scatter_min,
}
# What these rows are on booleans, as numbers 0 and 1.
_BOOLEAN = {"add": "maximum", "or_": "maximum", "multiply": "minimum", "and_": "minimum"}


def _scatter(site: Site, *operands: Any) -> Any:
    *arrays, region = operands
    assert isinstance(region, Region)
    count = (len(arrays) - 1) // 2
    xs, index, updates = arrays[:count], arrays[count], arrays[count + 1 :]
    dims = site.attrs["scatter_dimension_numbers"]
    numbers = lax.ScatterDimensionNumbers(
        tuple(dims.get("update_window_dims", ())),
        tuple(dims.get("inserted_window_dims", ())),
        tuple(dims.get("scattered_dims_to_operand_dims", ())),
        tuple(dims.get("input_batching_dims", ())),
        tuple(dims.get("scatter_indices_batching_dims", ())),
    )
    index = _vectors_last(index, dims.get("index_vector_dim", 0))
    how: dict[str, Any] = {
        "indices_are_sorted": bool(site.attrs.get("indices_are_sorted")),
        "unique_indices": bool(site.attrs.get("unique_indices")),
        "mode": lax.GatherScatterMode.FILL_OR_DROP,
    }
    if count == 1 and jnp.result_type(xs[0]) == jnp.result_type(updates[0]):
        x, update = jnp.asarray(xs[0]), jnp.asarray(updates[0])
        if region.is_second:
            return lax.scatter(x, index, update, numbers, **how)
        if x.dtype == bool and region.binary in (*_BOOLEAN, "maximum", "minimum"):
            name = _BOOLEAN.get(region.binary, region.binary)
            made = _SCATTERS[name](x.astype(np.int8), index, update.astype(np.int8), numbers, **how)
            return made.astype(bool)
        if region.binary == "multiply" and not how["unique_indices"]:

            def smooth(x: Any, index: Any, update: Any) -> Any:
                return _one_by_one([x], index, [update], region, numbers, how)[0]

            def fast(x: Any, index: Any, update: Any) -> Any:
                return lax.scatter_mul(x, index, update, numbers, **how)

            return with_derivative_of(fast, smooth)(x, index, update)
        if region.binary in _SCATTERS:
            return _SCATTERS[region.binary](x, index, update, numbers, **how)
    return site.result(_one_by_one(xs, index, updates, region, numbers, how))


def _one_by_one(
    xs: Any, index: Any, updates: Any, region: Region, numbers: Any, how: Any
) -> list[Any]:
    """A scatter with any body: the elements of the updates are combined in turn."""
    shape, dtype = np.shape(updates[0]), np.int32
    size = int(np.prod(np.shape(xs[0])))
    # Where each element of the updates goes: the same scatter's gather, of flat positions. What is
    # dropped gets the position behind the last.
    flat = lax.reshape(lax.iota(dtype, size), np.shape(xs[0]))
    window = iter(d for d in numbers.update_window_dims)
    inner = {*numbers.inserted_window_dims, *numbers.operand_batching_dims}
    sizes = [1 if a in inner else shape[next(window)] for a in range(flat.ndim)]
    gathered = lax.GatherDimensionNumbers(
        numbers.update_window_dims,
        numbers.inserted_window_dims,
        numbers.scatter_dims_to_operand_dims,
        numbers.operand_batching_dims,
        numbers.scatter_indices_batching_dims,
    )
    places = lax.gather(
        flat, index, gathered, sizes, mode=lax.GatherScatterMode.FILL_OR_DROP, fill_value=size
    )
    held = [jnp.append(jnp.ravel(x), jnp.zeros((1,), jnp.result_type(x))) for x in xs]

    def step(carry: Any, item: Any) -> Any:
        place, *values = item
        old = [c[place] for c in carry]
        new = region.several(*old, *values)
        return [c.at[place].set(n) for c, n in zip(carry, new, strict=True)], None

    flat_updates = [jnp.ravel(u) for u in updates]
    made, _ = scan(step, held, (jnp.ravel(places), *flat_updates))
    return [m[:size].reshape(np.shape(x)) for m, x in zip(made, xs, strict=True)]


def _index_select(site: Site, x: Any, index: Any) -> Any:
    axis, batch = site.attrs["dim"], site.attrs["batch_dims"]

    def take(a: Any, i: Any) -> Any:
        return jnp.take(a, narrow(i), axis=axis - batch, mode="clip")

    for _ in range(batch):
        take = jax.vmap(take)
    return take(x, index)


RULES: dict[str, Rule] = {
    "stablehlo.dynamic_slice": _dynamic_slice,
    "stablehlo.dynamic_update_slice": _update_slice,
    "stablehlo.gather": _gather,
    "stablehlo.dynamic_gather": _gather,
    "stablehlo.scatter": _scatter,
    "stablehlo.torch_index_select": _index_select,
}
