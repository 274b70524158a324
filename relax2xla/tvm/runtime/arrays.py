"""Arrays as programs for TVM expect them: ``.numpy()``, and memory that can be written to.

What ``tvm.nd.array`` gives is numpy's memory; results of the machine are ``jax.Array``, which
:func:`give_numpy` teaches the method.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from relax2xla.dtypes import numpy_dtype
from relax2xla.ir import Constant
from relax2xla.runtime.convert import SharedArray, written_to
from relax2xla.runtime.device import Device


class HostArray(SharedArray):
    """An array in the host's memory with the methods of TVM's NDArray."""

    #: Where the data starts in the memory that it was made with; see :meth:`_create_view`.
    byte_offset: int = 0

    def __eq__(self, other: Any) -> Any:
        """Whether it is the same array, where the other is one of the runtime's, as in TVM."""
        return self is other if isinstance(other, NDArray) else super().__eq__(other)

    def __ne__(self, other: Any) -> Any:
        return self is not other if isinstance(other, NDArray) else super().__ne__(other)

    __hash__: Any = object.__hash__

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        """What numpy computes of it is numpy's: its values are compared, not which array it is."""
        return array[()] if return_scalar else np.asarray(array)

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
        return copied(self, target)

    def _create_view(
        self, shape: Sequence[int], dtype: Any = None, relative_byte_offset: int = 0
    ) -> HostArray:
        """The bytes from an offset on as another shape and dtype, over the same memory.

        ValueError where the array is not contiguous, or the view reaches beyond it.
        """
        if not self.flags.c_contiguous:
            raise ValueError("_create_view: only a contiguous array can be seen in another shape")
        kind = self.dtype if dtype is None else numpy_dtype(dtype)
        end = relative_byte_offset + math.prod(shape) * kind.itemsize
        if relative_byte_offset < 0 or end > self.nbytes:
            raise ValueError(
                f"_create_view: bytes {relative_byte_offset} to {end} of an array of {self.nbytes}"
            )
        flat: Any = self.reshape(-1).view(np.uint8)
        made: HostArray = flat[relative_byte_offset:end].view(kind).reshape(tuple(shape))
        made.byte_offset = self.byte_offset + relative_byte_offset
        return made


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


def over(made: np.ndarray[Any, Any]) -> HostArray:
    """An array over the memory of ``made``."""
    return made.view(HostArray)


def copied(source: Any, target: Any) -> Any:
    """``source.copyto(target)``: its values written to an array, or a copy for a device.

    ValueError where the target is neither, or is a result of the machine, which nobody writes to.
    """
    if isinstance(target, np.ndarray):
        target[...] = np.asarray(source)
        return target
    if isinstance(target, Device):
        return array(source, target)
    if isinstance(target, NDArray):
        raise ValueError(
            "copyto: the target is a result of the machine, which cannot be written to; make one "
            "with tvm.nd.empty"
        )
    raise ValueError(f"copyto: expected an array or a device; got {type(target).__name__}")


class _Capsule:
    """A capsule of DLPack as an object of the protocol, which is all that numpy takes."""

    def __init__(self, capsule: Any) -> None:
        self._capsule = capsule

    def __dlpack__(self, **_: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        """The device by the capsule itself: two integers behind the pointer to the data.

        ValueError where the capsule has been taken already.
        """
        pointer = ctypes.pythonapi.PyCapsule_GetPointer
        pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        start = pointer(self._capsule, b"dltensor") + ctypes.sizeof(ctypes.c_void_p)
        kind, number = (ctypes.c_int32 * 2).from_address(start)
        return kind, number


def from_dlpack(
    ext_tensor: Any, *, require_alignment: int = 0, require_contiguous: bool = False
) -> HostArray:
    """The array of another library, or of its capsule, over the same memory.

    ValueError where its address is not a multiple of ``require_alignment``, or its elements are not
    in row-major order though ``require_contiguous`` asks for it.
    """
    is_capsule = type(ext_tensor).__name__ == "PyCapsule"
    made: Any = np.from_dlpack(_Capsule(ext_tensor) if is_capsule else ext_tensor)
    if require_alignment and made.ctypes.data % require_alignment:
        raise ValueError(f"from_dlpack: the data is not aligned to {require_alignment} bytes")
    if require_contiguous and not made.flags.c_contiguous:
        raise ValueError("from_dlpack: the array is not contiguous")
    return over(made)


def empty(
    shape: tuple[int, ...],
    dtype: str = "float32",
    device: Device | None = None,
    mem_scope: Any = None,
) -> HostArray:
    """An array of zeros."""
    return over(np.zeros(shape, numpy_dtype(dtype)))


def give_numpy() -> None:
    """Give jax arrays, and the values of constants, the method ``numpy()``."""
    from relax2xla.vm.pjrt.xla import ARRAY

    kind: Any = ARRAY
    if not hasattr(kind, "numpy"):
        kind.numpy = kind.asnumpy = lambda array: np.asarray(array)
        kind.copyto = copied
        written_to.given(over)
    slot: Any = Constant.__dict__["data"]
    if isinstance(slot, property):
        return

    def view(constant: Any, value: Any) -> None:
        # Viewed once, when it is set: arrays are known by their identity.
        slot.__set__(constant, value if isinstance(value, HostArray) else value.view(HostArray))

    held: Any = Constant
    held.data = property(slot.__get__, view)
