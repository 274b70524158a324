"""Arrays as programs for TVM expect them: ``.numpy()``, and memory that can be written to.

What ``tvm.nd.array`` gives is numpy's memory; results of the machine are ``jax.Array``, which
:func:`give_numpy` teaches the method.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from relax2xla.dtypes import numpy_dtype
from relax2xla.ir import Constant
from relax2xla.runtime.convert import SharedArray
from relax2xla.runtime.device import Device


class HostArray(SharedArray):
    """An array in the host's memory with the methods of TVM's NDArray."""

    def numpy(self) -> np.ndarray[Any, Any]:
        """The values as a numpy array of their own."""
        return np.array(self)

    asnumpy = numpy

    def copyfrom(self, source: Any) -> HostArray:
        """Take the values of ``source``."""
        self[...] = np.asarray(source)
        return self

    def copyto(self, target: Any) -> Any:
        """Give the values to an array, or a copy for a device."""
        if isinstance(target, HostArray):
            return target.copyfrom(self)
        return array(self, target)


class _AnyArray(type):
    def __instancecheck__(cls, instance: object) -> bool:
        import jax

        return isinstance(instance, HostArray | jax.Array)


class NDArray(metaclass=_AnyArray):
    """What ``isinstance(x, tvm.nd.NDArray)`` asks for: any array of the runtime."""


Tensor = NDArray


def array(arr: Any, device: Device | None = None) -> HostArray:
    """A copy of ``arr`` (anything that numpy takes) that can be written to.

    ``device``: accepted; the machine moves arguments to where it runs.
    """
    values: Any = np.array(arr)
    if values.dtype == np.float64 and not hasattr(arr, "dtype"):
        values = values.astype(np.float32)
    return values.view(HostArray)


tensor = array


def empty(
    shape: tuple[int, ...],
    dtype: str = "float32",
    device: Device | None = None,
    mem_scope: Any = None,
) -> HostArray:
    """An array of zeros."""
    made: Any = np.zeros(shape, numpy_dtype(dtype))
    return made.view(HostArray)


def give_numpy() -> None:
    """Give jax arrays, and the values of constants, the method ``numpy()``."""
    from relax2xla.vm.pjrt.xla import ARRAY

    kind: Any = ARRAY
    if not hasattr(kind, "numpy"):
        kind.numpy = kind.asnumpy = lambda array: np.asarray(array)
    slot: Any = Constant.__dict__["data"]
    if isinstance(slot, property):
        return

    def view(constant: Any, value: Any) -> None:
        # Viewed once, when it is set: arrays are known by their identity.
        slot.__set__(constant, value if isinstance(value, HostArray) else value.view(HostArray))

    held: Any = Constant
    held.data = property(slot.__get__, view)
