"""XLA through jaxlib: devices and arrays. The machine's only road to the device is this room.

With ``relax2xla/stablehlo`` it is the only user of jaxlib, so that its drift stays in one place.
Two ways to run a program (design decision D5, measured in ``benchmarks/machine/dispatch.py``):

* :class:`relax2xla.vm.pjrt.compiler.Loaded`: straight on PJRT. The cost of an argument is small, so
  functions with many weights go this way; 64-bit types are exact whatever JAX's x64 flag says.
* :mod:`relax2xla.vm.pjrt.jit`: the dispatch of ``jax.jit``, the fastest for few arguments, over the
  same loaded programs.
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import importlib.util
import logging
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NoReturn

import jax
import jax.core
import numpy as np
from jaxlib import xla_client as xc

from relax2xla.dtypes import DTYPES, dtype_name, numpy_dtype
from relax2xla.errors import CallError, DeviceError, UnsupportedError, XlaError
from relax2xla.ir.struct_info import TensorStructInfo
from relax2xla.runtime.device import Device, Mesh
from relax2xla.vm.pjrt import allocator

# Before XLA takes its first block.
allocator.keep_memory()

# jaxlib's extension module; None where it is not where it was.
try:
    extension: Any = importlib.import_module("jaxlib._jax")
except ImportError:  # the name is jaxlib's own business
    extension = None

_capsule: Any = getattr(extension, "buffer_to_dlpack_managed_tensor", None)

log = logging.getLogger("relax2xla.vm")

# Devices that arrays were moved to, each of which is said once.
_moved_to: set[Any] = set()

# What XLA raises.
ERROR: type[Exception] = jax.errors.JaxRuntimeError
# The class of concrete jax arrays, for the check on the hot path.
ARRAY: type = xc.ArrayImpl


# Whether this process has used XLA, and whether it was forked from one that had.
_used: list[bool] = []
_forked: list[bool] = []


def refuse_after_fork(*args: Any, **kwargs: Any) -> NoReturn:
    """DeviceError: what would hang in this process."""
    raise DeviceError(
        "this process was forked from one that had used XLA; XLA's threads are not in it, and a "
        'call would wait for them for ever. Start it with multiprocessing.get_context("spawn"), or '
        "fork before anything is compiled or run"
    )


def check_fork() -> None:
    """DeviceError in a process that was forked from one that had used XLA."""
    if _forked:
        refuse_after_fork()


def _after_fork() -> None:
    """In the child of a fork: nothing can be compiled or run; what needs neither still works."""
    if not _used:
        return
    _forked[:] = [True]
    for forget in AFTER_FORK:
        forget()


# What other files do then, where they run programs in ways of their own.
AFTER_FORK: list[Callable[[], None]] = []
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


@functools.cache
def jax_device(device: Device | None) -> Any:
    """The jax device of ``device``; None is JAX's default device, a mesh its first of this process.

    DeviceError where there is none.
    """
    _used[:] = [True]
    if device is None:
        return jax.local_devices()[0]
    if isinstance(device, Mesh):
        return next(d for d in mesh_devices(device) if d.process_index == jax.process_index())
    try:
        found = jax.local_devices(backend=device.platform)
    except RuntimeError as e:
        raise DeviceError(
            f"there is no {device.platform} backend in this process ({e}); install a jaxlib for it "
            "or use relax2xla.cpu()"
        ) from None
    if device.index >= len(found):
        names = ", ".join(f"{device.platform}:{i}" for i in range(len(found)))
        raise DeviceError(f"there is no device {device}; this process has {names}")
    return found[device.index]


def platform(device: Device | None) -> str:
    """The platform of ``device`` as ``jax.export`` names it: "cpu", "cuda", "rocm" or "tpu"."""
    if device is not None and device.platform != "gpu":
        return device.platform
    target = jax_device(device)
    if target.platform != "gpu":
        return target.platform
    return "rocm" if "rocm" in target.client.platform_version.lower() else "cuda"


def planned_platform(device: Device | None) -> str:
    """``platform``, and no device is started where JAX can have none but the CPU.

    A process that has started devices cannot fork any more, and building alone is no reason.
    """
    wanted = getattr(jax.config, "jax_platforms", "") or "cpu"
    if device is None and wanted == "cpu" and not _plugins():
        return "cpu"
    return platform(device)


@functools.cache
def _plugins() -> bool:
    """Whether something is installed that gives JAX other devices, found as JAX finds it."""
    if any(importlib.util.find_spec(name) for name in ("jax_plugins", "libtpu")):
        return True
    return bool(importlib.metadata.entry_points(group="jax_plugins"))


def count(device: Device | None) -> int:
    """How many devices a program for ``device`` runs on."""
    return len(device.ids) if isinstance(device, Mesh) else 1


@functools.cache
def mesh_devices(mesh: Mesh) -> tuple[Any, ...]:
    """The jax devices of a mesh, in the order in which programs number them.

    DeviceError where there are fewer.
    """
    known = {d.id: d for d in jax.devices(mesh.platform)}
    lacking = [i for i in mesh.ids if i not in known]
    if lacking:
        raise DeviceError(
            f"there is no {mesh.platform} device {lacking[0]} for the mesh; JAX has {len(known)}. "
            "Several devices of a CPU: XLA_FLAGS=--xla_force_host_platform_device_count=8"
        )
    return tuple(known[i] for i in mesh.ids)


@functools.cache
def jax_mesh(mesh: Mesh) -> Any:
    """The mesh as JAX has it."""
    grid = np.array(mesh_devices(mesh)).reshape([size for _, size in mesh.axes])
    return jax.sharding.Mesh(grid, tuple(name for name, _ in mesh.axes))


@functools.cache
def sharding(device: Device | None) -> Any:
    """The sharding of an array that lies on ``device`` alone; a copy on each device of a mesh."""
    if isinstance(device, Mesh):
        return jax.sharding.NamedSharding(jax_mesh(device), jax.sharding.PartitionSpec())
    return jax.sharding.SingleDeviceSharding(jax_device(device))


def aval(info: TensorStructInfo) -> Any:
    """The abstract value of a tensor of static shape, 64-bit types included.

    UnsupportedError for dtypes that no array has, such as quantised ones.
    """
    if info.dtype not in DTYPES:
        raise UnsupportedError(
            f"a result of dtype {info.dtype} cannot be given: no array has this dtype. Convert it "
            "in the program (stablehlo.uniform_dequantize for a quantised one)"
        )
    return jax.core.ShapedArray(info.dims, numpy_dtype(info.dtype))


def is_array(value: Any) -> bool:
    """Whether ``value`` is a concrete jax array."""
    return isinstance(value, xc.ArrayImpl)


def is_tracer(value: Any) -> bool:
    """Whether ``value`` is being traced by a JAX transformation."""
    return isinstance(value, jax.core.Tracer)


def device_put(value: np.ndarray[Any, Any], device: Device | None, copy: bool = True) -> Any:
    """A numpy array on the device, dtype unchanged.

    ``copy=False``: on the CPU the memory is shared where it is aligned, so the array must not be
    written to afterwards.
    """
    semantics = xc.HostBufferSemantics
    where = sharding(device)
    own = [jax_device(device)]
    if isinstance(device, Mesh):
        own = [d for d in mesh_devices(device) if d.process_index == jax.process_index()]
    try:
        return xc.batched_device_put(
            jax.core.ShapedArray(value.shape, value.dtype),
            where,
            [value] * len(own),
            own,
            host_buffer_semantics=(
                semantics.IMMUTABLE_ONLY_DURING_CALL if copy else semantics.ZERO_COPY
            ),
            enable_x64=True,
        )
    except jax.errors.JaxRuntimeError as e:
        if "Unknown NumPy dtype" not in str(e):
            raise of_xla("place an array on the device", e) from e
        raise no_arrays_of(str(value.dtype)) from None


def no_arrays_of(dtype: str) -> CallError:
    """What to raise for arguments of a dtype that this jaxlib or XLA cannot compute with."""
    return CallError(
        f"jaxlib places no arrays of {dtype} on a device; pass the values in a wider dtype, which "
        "holds them exactly"
    )


def refuse_arguments(dtypes: Iterable[str], device: Device | None) -> None:
    """CallError for dtypes of arguments whose use ends XLA, or the process, while it compiles.

    jaxlib 0.12 places floats of 6 bits, but XLA:CPU makes invalid code of all that uses them.
    """
    if jax_device(device).platform != "cpu":
        return
    for name in dtypes:
        row = DTYPES.get(name)
        if row is not None and row.bits == 6:
            raise no_arrays_of(name)


def address(value: Any) -> int:
    """Where the memory of an array on the device is; 0 where that cannot be said."""
    try:
        return value.unsafe_buffer_pointer()
    except Exception:  # jaxlib names no class for it
        return 0


def to_large_pages(arrays: Iterable[Any]) -> None:
    """Ask for large pages for arrays in the host's memory: see the allocator."""
    allocator.to_large_pages(filter(None, map(_span, arrays)))


def _span(value: Any) -> allocator.Span | None:
    """Where an array is in the host's memory, and its bytes; None if not there, or in parts."""
    if not is_array(value) or any(d.platform != "cpu" for d in value.devices()):
        return None
    at = address(value)
    return (at, value.nbytes) if at else None


def dlpack(value: Any) -> Any:
    """An array on the CPU as a DLPack capsule; jaxlib's own way takes a tenth of the time."""
    return value.__dlpack__() if _capsule is None else _capsule(value)


def on_device(value: Any, device: Device | None) -> Any:
    """A jax array on ``device``, moved if it is elsewhere; the first time a warning says so."""
    if isinstance(device, Mesh):
        return moved(value, device)
    target = jax_device(device)
    if value.devices() == {target}:
        return value
    if target not in _moved_to:
        _moved_to.add(target)
        log.warning(
            "an argument lies on %s and is moved to %s, where the function runs, at each call; "
            "place it there with jax.device_put. This is said once",
            ", ".join(sorted(map(str, value.devices()))),
            target,
        )
    return moved(value, device)


def moved(value: Any, device: Device | None) -> Any:
    """A jax array on ``device``; on a mesh, one that is spread over it stays as it is."""
    if isinstance(device, Mesh):
        if value.sharding.device_set == set(mesh_devices(device)):
            return value
        return reshard(value, sharding(device))
    target = jax_device(device)
    if value.devices() == {target}:
        return value
    with jax.enable_x64(True):
        return jax.device_put(value, target)


def reshard(value: Any, where: Any) -> Any:
    """A jax array with another sharding; the array itself where it has it."""
    if value.sharding.is_equivalent_to(where, value.ndim):
        return value
    with jax.enable_x64(True):
        return jax.device_put(value, where)


# JAX's dispatch raises a ValueError for this status of XLA's.
_STATUS: Final = "INVALID_ARGUMENT: "


def is_status(error: ValueError) -> bool:
    """Whether an error that JAX's dispatch raises is what a program says while it runs."""
    return type(error) is ValueError and str(error).startswith(_STATUS)


def of_xla(doing: str, error: Exception) -> XlaError:
    """What XLA says, as an error of ours."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [
        "no reason given"
    ]
    return XlaError(f"XLA cannot {doing} this: {' '.join(lines)[:1000]}")


def value_info(value: Any) -> TensorStructInfo:
    """Struct info of an array, concrete or traced."""
    return TensorStructInfo.make(tuple(value.shape), dtype_name(value.dtype))


def block(values: Sequence[Any]) -> None:
    """Wait until arrays are computed."""
    for value in values:
        if type(value) is ARRAY:
            value.block_until_ready()
        else:
            jax.block_until_ready(value)
