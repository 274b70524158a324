"""Exchanges between devices, inside ``jax.shard_map``: rows name devices, JAX axes of a mesh.

Partition i of a program is the i-th device of the axes over which the function is mapped.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from relax2xla.errors import UnsupportedError
from relax2xla.interop.lax_rows.reductions import folded
from relax2xla.interop.lax_rows.site import Region, Rule, Site, with_derivative_of


def mapped_axes() -> dict[str, int]:
    """Names and sizes of the axes that ``jax.shard_map`` maps over here; none outside of it."""
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.empty:
        return {}
    return {name: size for name, size in mesh.shape.items() if name in mesh.manual_axes}


def _whole_mesh() -> dict[str, int]:
    """Names and sizes of all axes of the mesh, those that are mapped over among them."""
    return dict(jax.sharding.get_abstract_mesh().shape)


def workers_here() -> int:
    """How many devices run the function that is traced here, each on its own part."""
    return math.prod(mapped_axes().values())


class _Group:
    """The devices between which a row exchanges values, as JAX names them.

    ``axes``: of the mesh, none where each device is alone; ``groups``: places along them, or None
    where the axes say it all.
    """

    def __init__(self, site: Site) -> None:
        axes = mapped_axes()
        stated = site.attrs["replica_groups"]
        if isinstance(stated, Mapping):
            self.axes, self.groups = _along_axes(site, str(stated.get("mlir"))), None
            return
        groups = [list(map(int, g)) for g in stated] or [[*range(workers_here())]]
        count, whole = 1 + max(map(max, groups)), _whole_mesh()
        if count > workers_here() and count == math.prod(whole.values()):
            # Mapped over some axes: JAX counts the devices of all.
            names, others = _named(whole, groups)
            if others is None and axes.keys() >= set(names):
                self.axes, self.groups = names, None
                return
        _enough(site, count)
        self.axes, self.groups = _named(axes, groups)

    @property
    def how(self) -> dict[str, Any]:
        """The arguments of JAX's collectives."""
        return {"axis_name": self.axes, "axis_index_groups": self.groups}


# Groups along axes of a mesh, as JAX 0.12 writes them; parts of axes have more to say.
_ALONG = re.compile(r"#stablehlo\.replica_group_mesh_axes<mesh = @[^,]+, axes = \[(.*)\]>")
_AXIS = re.compile(r'#stablehlo\.axis_ref<name = "([^"]*)">')


def _along_axes(site: Site, groups: str) -> tuple[str, ...]:
    """The axes that ``groups`` names; UnsupportedError where the function is not mapped so."""
    found, known = _ALONG.fullmatch(groups), mapped_axes()
    names = tuple(_AXIS.findall(found[1])) if found else ()
    if found is None or len(names) != found[1].count("axis_ref"):
        raise UnsupportedError(f"{site.call.op!r}: groups of devices of another form: {groups}")
    if not known.keys() >= set(names):
        raise UnsupportedError(
            f"{site.call.op!r} is along the axes {', '.join(names)} of a mesh, and the function is "
            f"mapped over {', '.join(known) or 'none'}; call it inside jax.shard_map over them"
        )
    return names


def _enough(site: Site, count: int) -> None:
    """UnsupportedError where a row is between more devices than there are."""
    axes = mapped_axes()
    if count > workers_here():
        where = f"mapped over {axes}" if axes else "on one"
        raise UnsupportedError(
            f"{site.call.op!r} is between {count} devices, and the function is {where}; call it "
            f"inside jax.shard_map over a mesh of {count} devices, all of its axes manual"
        )


def _named(
    axes: Mapping[str, int], groups: list[list[int]]
) -> tuple[tuple[str, ...], list[list[int]] | None]:
    """The axes along which groups of devices lie; all, and the groups, where none do."""
    names, sizes = tuple(axes), tuple(axes.values())
    grid = np.arange(math.prod(sizes)).reshape(sizes)
    wanted = sorted(groups)
    for count in range(len(names) + 1):
        for chosen in itertools.permutations(range(len(names)), count):
            rest = [a for a in range(len(names)) if a not in chosen]
            lines = grid.transpose(*rest, *chosen).reshape(-1, math.prod(sizes[a] for a in chosen))
            if sorted(lines.tolist()) == wanted:
                return tuple(names[a] for a in chosen), None
    return names, groups


def _all_reduce(site: Site, *operands: Any) -> Any:
    *xs, region = operands
    assert isinstance(region, Region)
    group = _Group(site)
    return site.result([_reduced(group, jnp.asarray(x), region) for x in xs])


_EXTREMES: dict[str, Any] = {"maximum": lax.pmax, "minimum": lax.pmin}


def _reduced(group: _Group, x: Any, region: Region) -> Any:
    """The values of a group combined by a body; sums and extremes are JAX's own."""
    if not group.axes:
        return x

    def smooth(x: Any) -> Any:
        return folded(region, [lax.all_gather(x, **group.how, axis=0)])[0]

    if region.binary == "add" and x.dtype != bool:
        return lax.psum(x, **group.how)
    if region.binary in _EXTREMES and x.dtype != bool:
        # JAX has no derivative of these.
        extreme = _EXTREMES[region.binary]
        return with_derivative_of(lambda x: extreme(x, **group.how), smooth)(x)
    return smooth(x)


def _all_gather(site: Site, *xs: Any) -> Any:
    group = _Group(site)
    axis = site.attrs["all_gather_dim"]
    if not group.axes:
        return site.result(xs)
    return site.result([lax.all_gather(x, **group.how, axis=axis, tiled=True) for x in xs])


def _reduce_scatter(site: Site, x: Any, region: Region) -> Any:
    group = _Group(site)
    axis = site.attrs["scatter_dimension"]
    if not group.axes:
        return x
    if region.binary == "add":
        return lax.psum_scatter(x, **group.how, scatter_dimension=axis, tiled=True)
    return _part(group, _reduced(group, x, region), axis, site.shape[axis])


def _part(group: _Group, x: Any, axis: int, size: int) -> Any:
    """This device's part of what all of its group have."""
    at = lax.axis_index(group.axes)
    if group.groups is not None:
        places = np.zeros(sum(map(len, group.groups)), np.int32)
        for members in group.groups:
            places[members] = range(len(members))
        at = jnp.asarray(places)[at]
    return lax.dynamic_slice_in_dim(x, at * size, size, axis)


def _all_to_all(site: Site, *xs: Any) -> Any:
    group = _Group(site)
    split, concat = site.attrs["split_dimension"], site.attrs["concat_dimension"]
    if not group.axes:
        return site.result(xs)
    return site.result(
        [
            lax.all_to_all(x, **group.how, split_axis=split, concat_axis=concat, tiled=True)
            for x in xs
        ]
    )


def _permute(site: Site, x: Any) -> Any:
    pairs = [(int(a), int(b)) for a, b in site.attrs["source_target_pairs"]]
    pairs = _along_mapped(pairs) or pairs
    _enough(site, 1 + max(map(max, pairs), default=0))
    axes = tuple(mapped_axes())
    if axes:
        return lax.ppermute(x, axes, pairs)
    return x if pairs else lax.full_like(x, 0)


def _broadcast(site: Site, *xs: Any) -> Any:
    group = _Group(site)
    if not group.axes:
        return site.result(xs)
    return site.result([lax.all_gather(x, **group.how, axis=0)[0] for x in xs])


def _along_mapped(pairs: list[tuple[int, int]]) -> list[tuple[int, int]] | None:
    """Pairs of devices of the whole mesh as pairs of those that are mapped over.

    None where each of the others does not have the same pairs within it.
    """
    axes, whole = mapped_axes(), _whole_mesh()
    count = math.prod(whole.values())
    if len(axes) == len(whole) or not pairs or max(map(max, pairs)) >= count:
        return None
    sizes = tuple(whole.values())
    found: dict[tuple[int, ...], set[tuple[int, int]]] = {}
    for pair in pairs:
        places = [dict(zip(whole, np.unravel_index(p, sizes), strict=True)) for p in pair]
        first, second = (tuple(int(at[n]) for n in whole if n not in axes) for at in places)
        if first != second:
            return None
        mapped = [
            np.ravel_multi_index([at[n] for n in axes], tuple(axes.values())) for at in places
        ]
        found.setdefault(first, set()).add((int(mapped[0]), int(mapped[1])))
    own, *others = found.values()
    same = len(found) == count // workers_here() and all(other == own for other in others)
    return sorted(own) if same else None


def _partition_id(site: Site) -> Any:
    """Of the mesh's devices, the first of those that have this part: their own ids say no more."""
    axes, whole = mapped_axes(), _whole_mesh()
    place: Any = np.int32(0)
    for name, size in whole.items():
        place = place * np.int32(size) + (lax.axis_index(name) if name in axes else np.int32(0))
    return lax.convert_element_type(place, np.uint32)


# ---- manual computations
_SHARDING = re.compile(
    r"<(?:@([^\s,>]+)|mesh<\[([^\]]*)\](?:, device_ids=\[([\d, ]*)\])?>), \[([^\]]*)\]"
)
_AXES = re.compile(r'"([^"]+)"(:\(\d+\)\d+)?')
_SIZES = re.compile(r'"([^"]+)"=(\d+)')


def _manual(site: Site, *operands: Any) -> Any:
    """Shardy's manual computation: a ``jax.shard_map`` over a mesh of JAX's first devices."""
    *xs, region = operands
    assert isinstance(region, Region)
    manual = {name for name, _ in _AXES.findall(_text(site, "manual_axes"))}
    takes, gives = (_shardings(site, f"{end}_shardings") for end in ("in", "out"))
    if not manual:
        return site.result(region.several(*xs))
    mesh = _mesh(site, (*takes, *gives)[0])
    specs, outs = ([_spec(site, s, manual) for s in side] for side in (takes, gives))
    mapped = jax.shard_map(
        region.several,
        mesh=mesh,
        in_specs=tuple(specs),
        out_specs=tuple(outs),
        axis_names=manual,
        check_vma=False,
    )
    return site.result(mapped(*map(jnp.asarray, xs)))


def _text(site: Site, name: str) -> str:
    return str(site.attrs[name]["mlir"])


def _shardings(site: Site, name: str) -> list[tuple[str, ...]]:
    """By value: the mesh's name, or its axes and order of devices; and the cuts."""
    return _SHARDING.findall(_text(site, name))


def _mesh(site: Site, sharding: tuple[str, ...]) -> Any:
    """The mesh of a sharding; None for the one that is mapped over already, in part."""
    name, axes, order, _ = sharding
    if name:
        found = re.search(
            rf"sdy\.mesh @{re.escape(name)} = <\[([^\]]*)\](?:, device_ids=\[([\d, ]*)\])?",
            "\n".join(map(str, site.runner.prelude)),
        )
        if found is None:
            raise UnsupportedError(f"the program has no mesh @{name}")
        axes, order = found[1], found[2] or ""
    sizes = {axis: int(size) for axis, size in _SIZES.findall(axes)}
    if mapped_axes():
        return None
    count = math.prod(sizes.values())
    ids = [int(i) for i in order.split(",")] if order.strip() else list(range(count))
    devices = jax.devices()
    if max(ids, default=0) >= len(devices):
        raise UnsupportedError(
            f"{site.call.op!r} is over {count} devices, and JAX has {len(devices)}. Several "
            f"devices of a CPU: XLA_FLAGS=--xla_force_host_platform_device_count={count}"
        )
    grid = np.array([devices[i] for i in ids]).reshape(tuple(sizes.values()))
    return jax.sharding.Mesh(grid, tuple(sizes))


def _spec(site: Site, sharding: tuple[str, ...], manual: set[str]) -> Any:
    """How a value is cut, along manual axes alone."""
    cuts: list[Any] = []
    for part in re.findall(r"\{([^}]*)\}", sharding[3]):
        found = _AXES.findall(part)
        if any(piece for _, piece in found):
            raise UnsupportedError(f"{site.call.op!r} cuts along a part of an axis of its mesh")
        names = tuple(name for name, _ in found if name in manual)
        cuts.append(names or None)
    return jax.sharding.PartitionSpec(*cuts)


RULES: dict[str, Rule] = {
    "stablehlo.all_reduce": _all_reduce,
    "stablehlo.all_gather": _all_gather,
    "stablehlo.reduce_scatter": _reduce_scatter,
    "stablehlo.all_to_all": _all_to_all,
    "stablehlo.collective_permute": _permute,
    "stablehlo.collective_broadcast": _broadcast,
    "stablehlo.partition_id": _partition_id,
    "sdy.manual_computation": _manual,
    # Programs over a mesh have partitions, and are one replica.
    "stablehlo.replica_id": lambda site: np.uint32(0),
}
