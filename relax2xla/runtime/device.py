"""Devices: ``cpu(0)``, ``cuda(0)``; names only, so that naming one loads nothing."""

from __future__ import annotations

from dataclasses import dataclass

from relax2xla.errors import DeviceError

# Names that users write for the platforms of XLA.
PLATFORMS = {
    "cpu": "cpu",
    "llvm": "cpu",
    "cuda": "cuda",
    "gpu": "gpu",
    "rocm": "rocm",
    "tpu": "tpu",
}
# The numbers of dlpack.h.
DLPACK = {"cpu": 1, "cuda": 2, "gpu": 2, "rocm": 10}


@dataclass(frozen=True, slots=True)
class Device:
    """One device of a platform of XLA, by its index in this process."""

    platform: str
    index: int = 0

    @property
    def device_id(self) -> int:
        """The index, by the name that it has in TVM."""
        return self.index

    def __str__(self) -> str:
        return f"{self.platform}:{self.index}"

    def __repr__(self) -> str:
        return f"device('{self}')"


@dataclass(frozen=True, slots=True)
class Mesh(Device):
    """Several devices of one platform that run one program together.

    ``ids``: JAX's numbers of the devices, in the order in which programs number them;
    ``axes``: names and sizes of the mesh's axes. ``build(mod, mesh=...)`` makes it.
    """

    ids: tuple[int, ...] = ()
    axes: tuple[tuple[str, int], ...] = ()

    def __str__(self) -> str:
        axes = ", ".join(f"{name}={size}" for name, size in self.axes)
        return f"{self.platform}:mesh({axes})"


def cpu(dev_id: int = 0) -> Device:
    """A CPU device."""
    return Device("cpu", dev_id)


def cuda(dev_id: int = 0) -> Device:
    """An NVIDIA GPU."""
    return Device("cuda", dev_id)


gpu = cuda


def rocm(dev_id: int = 0) -> Device:
    """An AMD GPU."""
    return Device("rocm", dev_id)


def device(text: str | Device, dev_id: int = 0) -> Device:
    """A device by its name: "cpu", "cuda", "cuda:1", or "llvm" (the name TVM gives the CPU)."""
    if isinstance(text, Device):
        return text
    name, _, index = str(text).split(" ", 1)[0].partition(":")
    if name not in PLATFORMS or (index and not index.isdecimal()):
        raise DeviceError(f"unknown device {text!r}; known: {', '.join(PLATFORMS)}, as in 'cuda:0'")
    return Device(PLATFORMS[name], int(index) if index else dev_id)
