"""Devices as programs for TVM expect them: whether they exist, and the number of their kind."""

from __future__ import annotations

from typing import Any

from relax2xla.errors import DeviceError
from relax2xla.runtime.device import DLPACK, Device


def exists(device: Device) -> bool:
    """Whether this process has the device."""
    from relax2xla.vm.pjrt.xla import jax_device

    try:
        jax_device(device)
    except DeviceError:
        return False
    return True


def give_existence() -> None:
    """Give devices ``exist`` and ``device_type`` (TVM 0.25: ``dlpack_device_type``) from now on."""
    kind: Any = Device
    kind.exist = property(exists, doc="Whether this process has the device.")
    number = property(lambda device: DLPACK[device.platform], doc="The number of dlpack.h.")
    kind.device_type = kind.dlpack_device_type = number
