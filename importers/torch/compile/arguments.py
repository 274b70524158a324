"""Tensors of torch on the CPU as arguments of programs, call after call.

A jax array over a tensor's memory takes 9 us to make. Training steps have their tensors where the
step before had its own, so arrays over such memory serve again (:class:`Borrowed`); what is small
and lies elsewhere each time is copied (:class:`Stages`).
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from relax2xla.importers.torch.engine.tensor_data import as_numpy
from relax2xla.runtime.device import Device
from relax2xla.vm.call.staging import shared
from relax2xla.vm.pjrt.xla import address, device_put

# Memory of torch, and the jax array that shares it.
Stage = tuple[torch.Tensor, Any]
# Where a tensor lies, and how it is read.
Place = tuple[int, torch.Size, torch.dtype]

# Bytes of an argument up to which a copy costs less than an array over torch's memory, and how many
# shapes of them a graph keeps memory for.
STAGED, STAGES = 1 << 16, 64
# Places of tensors that a graph remembers, and how often one has been where an array is made.
PLACES, OFTEN = 512, 4


class Borrowed:
    """Arrays over memory of torch, which they do not keep alive.

    An array may be read only while a tensor lies there, in a call with that tensor.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._arrays: dict[Place, Any] = {}
        # How often tensors have been at each place.
        self._seen: dict[Place, int] = {}

    def __len__(self) -> int:
        """Of how many places there are arrays."""
        return len(self._arrays)

    def find(self, value: torch.Tensor) -> Any:
        """The array over the memory of ``value``, if tensors have often been there.

        None where there is none yet, or cannot be: of what is not dense or not aligned.
        """
        if not value.is_contiguous() or value.is_neg() or value.is_complex():
            return None
        place = (value.data_ptr(), value.shape, value.dtype)
        array = self._arrays.get(place)
        if array is not None:
            return array
        seen = self._seen[place] = self._seen.get(place, 0) + 1
        if seen == OFTEN:
            array = self._over(value)
        if len(self._seen) > PLACES:
            self._seen.clear()
            self._arrays.clear()
        if array is not None:
            self._arrays[place] = array
        return array

    def _over(self, value: torch.Tensor) -> Any:
        host, at = as_numpy(value), value.data_ptr()
        if not host.size or host.ctypes.data != at:
            return None
        memory: Any = (ctypes.c_char * host.nbytes).from_address(at)
        flat = np.frombuffer(memory, host.dtype)
        array = device_put(flat.reshape(host.shape), self._device, copy=False)
        return array if address(array) == at else None


class Stages:
    """Memory on the CPU that torch writes small arguments to and XLA reads, again and again.

    The copy costs a tenth of what making an array over torch's own memory does.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._free: dict[tuple[Any, ...], list[Stage]] = {}

    def __len__(self) -> int:
        """Of how many shapes and dtypes there is memory."""
        return len(self._free)

    def take(self, value: torch.Tensor) -> Stage | None:
        """A copy of ``value``, until :meth:`give_back`; None for what is better not copied."""
        if not 0 < value.nbytes <= STAGED:
            return None
        free = self._free.get((value.dtype, value.shape), ())
        try:
            stage = free.pop() if free else self._make(value)
        except IndexError:  # another thread took the last one
            stage = self._make(value)
        if stage is not None:
            stage[0].copy_(value.detach())
        return stage

    def give_back(self, taken: Sequence[Stage]) -> None:
        """Let later calls have what none reads any more: no result of one is among them."""
        for stage in taken:
            memory = stage[0]
            self._free.setdefault((memory.dtype, memory.shape), []).append(stage)

    def _make(self, value: torch.Tensor) -> Stage | None:
        if len(self._free) >= STAGES:
            self._free.clear()
        host = as_numpy(value)
        memory, array = shared(host.shape, host.dtype, self._device)
        if address(array) != memory.ctypes.data:
            return None
        octets = torch.from_numpy(memory.reshape(-1).view(np.uint8))
        return octets.view(value.dtype).reshape(value.shape), array
