"""Devices as programs for TVM expect them: whether they exist, their numbers, and waiting."""

from __future__ import annotations

from typing import Any

from relax2xla.errors import DeviceError
from relax2xla.runtime.device import DLPACK, PLATFORMS, Device


def exists(device: Device) -> bool:
    """Whether this process has the device."""
    from relax2xla.vm.pjrt.xla import jax_device

    try:
        jax_device(device)
    except DeviceError:
        return False
    return True


def enabled(target: str) -> bool:
    """Whether programs run on what ``target`` names: "llvm", "cuda", "cuda -arch=sm_80".

    False, too, for what XLA has no platform for (``opencl``).
    """
    platform = PLATFORMS.get(target.partition(" ")[0])
    return platform is not None and exists(Device(platform))


def _wait(device: Device, stream: Any = None) -> None:
    """Wait until everything that the process computes is there; ``stream`` means nothing to XLA."""
    import jax

    for array in jax.live_arrays():
        array.block_until_ready()


def give_existence() -> None:
    """Give devices ``exist``, ``sync`` and ``device_type`` (0.25: ``dlpack_device_type``) now."""
    kind: Any = Device
    kind.sync = _wait
    kind.exist = property(exists, doc="Whether this process has the device.")
    number = property(lambda device: DLPACK[device.platform], doc="The number of dlpack.h.")
    kind.device_type = kind.dlpack_device_type = number
