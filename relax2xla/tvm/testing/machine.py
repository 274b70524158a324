"""What this machine has of what tests ask for.

A kind of target is here if JAX has a device of it. What TVM is built with (libraries of GPUs, RPC,
code generators of others) is XLA's business here, so nothing that asks for it can run.
"""

from __future__ import annotations

import functools
import platform
from typing import Final

from relax2xla import processor
from relax2xla.runtime.device import Device
from relax2xla.tvm.runtime.devices import exists
from relax2xla.vm.pjrt.xla import jax_device

_GPUS: Final = ("cuda", "rocm")
_CPUS: Final = ("llvm", "c", "cpu")


@functools.cache
def has_device(kind: str, index: int = 0) -> bool:
    """Whether there is a device of this kind and index."""
    if kind in _CPUS:
        return index == 0
    if kind not in _GPUS:
        return False
    return exists(Device(kind, index))


def has_target(target: str) -> bool:
    """Whether programs for ``target`` run on this machine; its options count nothing."""
    words = target.split()
    return bool(words) and has_device(words[0])


def has_gpus(least: int = 1) -> bool:
    """Whether there are at least so many GPUs of one maker."""
    return any(has_device(kind, least - 1) for kind in _GPUS)


@functools.cache
def compute_version() -> tuple[int, int]:
    """The compute capability of the first NVIDIA GPU; (0, 0) without one."""
    if not has_device("cuda"):
        return 0, 0
    major, _, minor = str(jax_device(Device("cuda")).compute_capability).partition(".")
    return int(major), int(minor or 0)


def is_machine(*names: str) -> bool:
    """Whether the processor is of one of these architectures."""
    return platform.machine() in names


def has_features(*names: str) -> bool:
    """Whether the processor has all of these features, by Linux's names."""
    return all(name in processor.features() for name in names)
