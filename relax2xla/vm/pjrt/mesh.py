"""Programs over several devices: what XLA partitions, and arrays spread as it asks (design D19).

The program is compiled once for all devices of a :class:`relax2xla.runtime.device.Mesh`; its
annotations (Shardy's, or XLA's ``mhlo.sharding``) say how arguments and results are spread. What
they leave open is copied to each device, if it is an argument, and XLA's choice, if it is a result.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec
from jaxlib import xla_client as xc

from relax2xla.errors import DeviceError
from relax2xla.runtime.device import Mesh
from relax2xla.stablehlo.mlir import ir
from relax2xla.vm.pjrt import xla

# Names and sizes of a mesh's axes.
Axes: TypeAlias = tuple[tuple[str, int], ...]


def mesh_of(given: Any, platform: str | None) -> Mesh:
    """The mesh that a caller names: a ``jax.sharding.Mesh``, a DeviceMesh, or a number of devices.

    ``platform``: where devices are looked for by number. Raises DeviceError, TypeError.
    """
    if isinstance(given, Mesh):
        return given
    if isinstance(given, jax.sharding.Mesh):
        found = list(given.devices.flat)
        axes = tuple((str(n), int(s)) for n, s in given.shape.items())
        return _made(found, axes)
    devices = jax.devices(platform)
    if hasattr(given, "device_ids"):
        ids = list(given.device_ids)
        shape = [int(s) for s in given.shape]
    elif isinstance(given, int) and not isinstance(given, bool):
        if given < 1:
            raise DeviceError(f"mesh is a number of devices, one at least; got {given}")
        ids, shape = list(range(given)), [given]
    else:
        raise TypeError(
            "mesh is a jax.sharding.Mesh, a DeviceMesh or a number of devices; got "
            f"{type(given).__name__}"
        )
    if not ids or min(ids) < 0 or max(ids) >= len(devices):
        raise DeviceError(
            f"the mesh names devices {ids}; JAX has {len(devices)}. Several devices of a CPU: "
            "XLA_FLAGS=--xla_force_host_platform_device_count=8"
        )
    axes = tuple((f"axis{i}", size) for i, size in enumerate(shape))
    return _made([devices[i] for i in ids], axes)


def _made(devices: Sequence[Any], axes: Axes) -> Mesh:
    ids = tuple(d.id for d in devices)
    if len(set(ids)) != len(ids):
        raise DeviceError(f"the mesh names a device twice: {list(ids)}")
    own = [d for d in devices if d.process_index == jax.process_index()]
    if not own:
        raise DeviceError("the mesh has no device of this process")
    platform = "cuda" if own[0].platform == "gpu" else own[0].platform
    return Mesh(platform, own[0].local_hardware_id or 0, ids, axes)


def results_free(module: ir.Module) -> list[bool]:
    """Of each result of the program whether XLA may choose how it is spread.

    Of one that it has to copy to each device it would choose too, where it partitions by itself.
    """
    (main,) = (
        op.operation
        for op in module.body.operations
        if op.operation.name == "func.func"
        and ir.StringAttr(op.attributes["sym_name"]).value == "main"
    )
    kind: Any = ir.TypeAttr(main.attributes["function_type"]).value
    if "res_attrs" not in main.attributes:
        return [True] * len(kind.results)
    stated: Any = ir.ArrayAttr(main.attributes["res_attrs"])
    return ["mhlo.sharding" not in attrs for attrs in stated]


def partition(options: Any, mesh: Mesh, shardy: bool, free: Sequence[bool]) -> None:
    """Let XLA make one program of the devices of ``mesh``, by Shardy's annotations or its own.

    ``free``: of each result, or of all, whether its place is XLA's choice.
    """
    count = len(mesh.ids)
    options.num_replicas, options.num_partitions = 1, count
    options.device_assignment = xc.DeviceAssignment.create(np.array([mesh.ids]))
    build = options.executable_build_options
    build.use_spmd_partitioning = True
    build.use_shardy_partitioner = shardy
    build.allow_spmd_sharding_propagation_to_output = list(free)


class Spread:
    """How a compiled program's arguments and results lie on a mesh.

    ``results``: their shardings. ``execute`` brings arguments to where the program takes them; an
    array that is given again, such as a weight, is brought there once.
    """

    def __init__(self, executable: Any, mesh: Mesh, outputs: Sequence[Any]) -> None:
        self._run, self._mesh = executable.execute_sharded, mesh
        self._copies = xla.sharding(mesh)
        given = executable.get_parameter_shardings()
        made = executable.get_output_shardings()
        self._arguments = None if given is None else [_sharding(s, mesh) for s in given]
        self.results = (
            [self._copies] * len(outputs) if made is None else [_sharding(s, mesh) for s in made]
        )
        # By identity of what was given: a reference to it, and what lies where it is taken.
        self._moved: dict[int, tuple[weakref.ref[Any], Any]] = {}

    def execute(self, buffers: list[Any]) -> Any:
        """Run on arrays of the mesh, spread in any way."""
        wanted = self._arguments or [self._copies] * len(buffers)
        return self._run([self._placed(b, w) for b, w in zip(buffers, wanted, strict=True)])

    def handler(self, aval: Any, where: Any, **options: Any) -> Any:
        """What makes a result of the arrays that the devices give, in the order of the mesh."""
        if _ids(where) == self._mesh.ids:
            return xc.array_result_handler(aval, where, committed=True, **options)
        return lambda arrays: jax.make_array_from_single_device_arrays(aval.shape, where, arrays)

    def _placed(self, value: Any, where: Any) -> Any:
        if value.sharding.is_equivalent_to(where, value.ndim) and _ids(where) == self._mesh.ids:
            return value
        known = self._moved.get(id(value))
        if known is not None and known[0]() is value:
            return known[1]
        made = xla.reshard(value, where)
        if _ids(where) != self._mesh.ids:
            # The program takes what lies on the devices in the order of its mesh, not of this one.
            parts = [shard.data for shard in made.addressable_shards]
            order = NamedSharding(xla.jax_mesh(replace(self._mesh, axes=_axes(where))), where.spec)
            made = jax.make_array_from_single_device_arrays(made.shape, order, parts)
        key = id(value)
        self._moved[key] = (weakref.ref(value, lambda _: self._moved.pop(key, None)), made)
        return made


def _ids(where: Any) -> tuple[int, ...]:
    """The devices of a sharding, in its order."""
    return tuple(d.id for d in where.mesh.devices.flat)


def _axes(where: Any) -> Axes:
    return tuple((str(n), int(size)) for n, size in where.mesh.shape.items())


def _sharding(stated: Any, mesh: Mesh) -> Any:
    """XLA's sharding as one of JAX's: by the axes of ``mesh``, or by axes of its own."""
    tiles = xc.HloSharding.from_proto(stated)
    if tiles.is_replicated() or tiles.is_unknown():
        return xla.sharding(mesh)
    cut = all(t == xc.OpSharding.Type.REPLICATED for t in _subgroups(tiles))
    if tiles.is_manual() or tiles.is_maximal() or not cut:
        raise DeviceError(f"a sharding of XLA's that has no form in JAX: {tiles}")
    dims = tiles.tile_assignment_dimensions()
    order = np.array(tiles.tile_assignment_devices()).reshape(dims)
    axes = dims[:-1] if tiles.replicate_on_last_tile_dim() else dims
    axes = axes[: len(axes) - len(_subgroups(tiles))]
    for names in (mesh.axes, *_fine_axes(len(mesh.ids))):
        spec = _by_axes(order, len(axes), names)
        if spec is not None:
            known = xla.jax_mesh(replace(mesh, axes=names))
            return NamedSharding(known, PartitionSpec(*spec))
    # The devices are in an order of their own.
    names = tuple((f"axis{i}", size) for i, size in enumerate(order.shape))
    turned = replace(mesh, axes=names, ids=tuple(mesh.ids[n] for n in order.flat))
    spec = [name for name, _ in names[: len(axes)]]
    return NamedSharding(xla.jax_mesh(turned), PartitionSpec(*spec))


def _fine_axes(count: int) -> Iterator[Axes]:
    """Meshes of ``count`` devices whose axes have prime sizes, in each order."""
    primes: list[int] = []
    rest, p = count, 2
    while rest > 1:
        if rest % p:
            p += 1
        else:
            primes.append(p)
            rest //= p
    for sizes in _orders(primes):
        yield tuple((f"axis{i}", size) for i, size in enumerate(sizes))


def _orders(items: list[int]) -> Iterator[tuple[int, ...]]:
    """The different orders of ``items``."""
    if not items:
        yield ()
    for first in dict.fromkeys(items):
        rest = list(items)
        rest.remove(first)
        yield from ((first, *tail) for tail in _orders(rest))


def _subgroups(tiles: Any) -> list[Any]:
    """The kinds of the trailing dimensions of a tile assignment that cut no axis of the array."""
    return list(tiles.subgroup_types())


def _by_axes(order: Any, ndim: int, axes: Axes) -> list[tuple[str, ...]] | None:
    """The axes of a mesh that cut each axis of the array, the outer one first; None if none do.

    ``order``: the devices' numbers by tile; its dimensions after ``ndim`` hold copies.
    """
    steps = {
        math.prod(size for _, size in axes[i + 1 :]): (name, size)
        for i, (name, size) in enumerate(axes)
        if size > 1
    }
    spec: list[tuple[str, ...]] = []
    for at in range(ndim):
        # The devices of the first tiles along this axis, the others at 0.
        line = np.moveaxis(order, at, 0).reshape(order.shape[at], -1)[:, 0]
        names: list[str] = []
        while len(line) > 1:
            found = steps.get(int(line[1] - line[0]))
            if found is None or len(line) % found[1]:
                return None
            names.insert(0, found[0])
            line = line[:: found[1]]
        spec.append(tuple(names))
    used = [name for names in spec for name in names]
    if len(set(used)) != len(used):
        return None
    # What these axes mean, held against what XLA says.
    names = [name for name, _ in axes]
    grid = np.arange(order.size).reshape([size for _, size in axes])
    turned = [*used, *(n for n in names if n not in used)]
    grid = grid.transpose([names.index(n) for n in turned]).reshape(order.shape)
    return spec if np.array_equal(_tiles(grid, ndim), _tiles(order, ndim)) else None


def _tiles(order: Any, ndim: int) -> Any:
    """The devices' numbers by tile, those of copies in ascending order."""
    return np.sort(order.reshape(*order.shape[:ndim], -1), -1)
