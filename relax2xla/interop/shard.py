"""Weights over several devices by rules on their names: tensor, data and fully sharded parallelism.

A function of :func:`relax2xla.interop.extract.extract_jax` needs no change for several devices:
JAX partitions it by how its weights and arguments lie.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from typing import Any

from relax2xla.errors import CallError


def shard(params: Any, rules: Mapping[str, Any], mesh: Any) -> Any:
    """``params`` on the devices of a mesh, each array spread as the first rule that fits it says.

    params: a tree of arrays, as ``extract_jax`` gives it; a weight's name is its path with dots.
    rules: patterns of names to ``jax.sharding.PartitionSpec`` (None: a copy on each device), such
    as ``{"*.q_proj.weight": P("model", None)}``. What no rule fits is copied to each device.
    mesh: ``jax.sharding.Mesh(devices, names)``; not one of explicit axes, over which each operation
    would have to say how its result lies.

    The derivatives of such arrays lie as they do. Raises CallError, with every name and reason,
    where a rule fits no weight, names an axis that the mesh lacks, or cuts what cannot be cut so.
    """
    import jax
    from jax.sharding import NamedSharding, PartitionSpec

    if not isinstance(mesh, jax.sharding.Mesh):
        raise CallError(
            f"shard: the mesh is a jax.sharding.Mesh(devices, names); got {type(mesh).__name__}"
        )
    if any("Explicit" in str(kind) for kind in getattr(mesh, "axis_types", ())):
        raise CallError(
            "shard: the axes of the mesh are explicit (jax.make_mesh makes them so); take "
            "jax.sharding.Mesh(devices, names), whose axes XLA's partitioner spreads values over"
        )
    leaves, tree = jax.tree_util.tree_flatten_with_path(params)
    names = [".".join(map(_key, path)) for path, _ in leaves]
    wrong: list[str] = []
    used: set[str] = set()
    placed: list[Any] = []
    for name, (_, array) in zip(names, leaves, strict=True):
        fits = [pattern for pattern in rules if fnmatch.fnmatchcase(name, pattern)]
        used.update(fits)
        spec = rules[fits[0]] if fits else None
        spec = PartitionSpec() if spec is None else spec
        shape = tuple(getattr(array, "shape", ()))
        if not hasattr(array, "__array__"):
            wrong.append(f"{name} is no array, but {type(array).__name__}")
            continue
        reason = _unfit(shape, spec, mesh)
        if reason:
            wrong.append(f"{name} {shape}, by the rule {fits[0]!r}: {reason}")
        else:
            placed.append((array, NamedSharding(mesh, spec)))
    for pattern in rules:
        if pattern not in used:
            known = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
            wrong.append(f"the rule {pattern!r} fits no weight; there are {known}")
    if wrong:
        raise CallError("shard:\n" + "\n".join(f"  {line}" for line in wrong))
    with jax.enable_x64(True):
        return tree.unflatten([jax.device_put(array, where) for array, where in placed])


def _key(entry: Any) -> str:
    """Of a dictionary, a list, or a named tuple or data class."""
    return str(
        next((getattr(entry, n) for n in ("key", "idx", "name") if hasattr(entry, n)), entry)
    )


def _unfit(shape: tuple[int, ...], spec: Any, mesh: Any) -> str:
    """Why an array of this shape cannot be spread so; "" where it can."""
    from jax.sharding import PartitionSpec

    if not isinstance(spec, PartitionSpec):
        return f"a rule gives a PartitionSpec, or None; got {type(spec).__name__} {spec!r}"
    named = [a for entry in spec for a in (entry if isinstance(entry, tuple) else (entry,))]
    if twice := {a for a in named if a is not None and named.count(a) > 1}:
        return f"{spec} names {', '.join(sorted(map(str, twice)))} twice"
    if len(spec) > len(shape):
        return f"{spec} is for {len(spec)} axes"
    for at, entry in enumerate(spec):
        axes = entry if isinstance(entry, tuple) else (entry,)
        parts = 1
        for axis in axes:
            if axis is None:
                continue
            if axis not in mesh.shape:
                return f"the mesh has no axis {axis!r}; it has {', '.join(map(str, mesh.shape))}"
            parts *= mesh.shape[axis]
        if shape[at] % parts:
            return f"axis {at} is no multiple of {parts}"
    return ""
