"""Users' values as host arrays: numpy, torch and Python numbers, without copies where possible.

jax arrays pass through untouched; nothing here imports jax or torch (a value's class says whose it
is). No dtype ever changes: what does not fit a parameter is an error of the caller's to see.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Sequence
from typing import Any, cast

import ml_dtypes
import numpy as np

from relax2xla.dtypes import numpy_dtype
from relax2xla.errors import CallError
from relax2xla.late import Late

# Python values that take the dtype of the parameter that they meet.
NUMBERS = (bool, int, float, complex, list, tuple)


class SharedArray(np.ndarray[Any, Any]):
    """Memory of the caller's that packed functions get themselves, so that they may write to it.

    A result that took its place (``call_tir_inplace``) is written to it, and is this array. Else,
    and for XLA programs, it is an array as any other: copied.
    """


#: Memory of ours, as the packed functions that are to write to it see it.
written_to = Late()


@written_to.given
def _as_it_is(made: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return made


def is_torch(value: Any) -> bool:
    """Whether ``value`` is a torch tensor."""
    return type(value).__module__.partition(".")[0] == "torch" and hasattr(value, "detach")


def torch_to_numpy(value: Any) -> np.ndarray[Any, Any]:
    """A torch tensor as numpy: the same memory for dense CPU tensors, else one copy."""
    value = value.detach()
    if value.device.type == "meta":
        raise CallError("expected a torch tensor with data; got one on the device meta")
    if str(value.layout) != "torch.strided":
        raise CallError(
            f"expected a dense torch tensor; got one of layout {value.layout}; use .to_dense()"
        )
    if value.is_quantized:
        raise CallError(
            f"expected a dense torch tensor; got one of dtype {value.dtype}; use .int_repr(), or "
            ".dequantize()"
        )
    if value.device.type != "cpu":
        value = value.cpu()
    value = value.resolve_conj().resolve_neg()
    name = str(value.dtype).removeprefix("torch.")
    if name == "bfloat16" or name.startswith("float8"):
        torch_int = {1: "uint8", 2: "int16"}[value.element_size()]
        raw = value.contiguous().view(getattr(__import__("torch"), torch_int)).numpy()
        return raw.view(np.dtype(getattr(ml_dtypes, name)))
    return value.numpy()


def to_host(value: Any, dtype: str = "") -> np.ndarray[Any, Any]:
    """``value`` as a numpy array; Python numbers and lists take ``dtype`` if they fit it exactly.

    Raises CallError for what is no array.
    """
    if isinstance(value, np.ndarray):
        return _native(value)
    if is_torch(value):
        return torch_to_numpy(value)
    if isinstance(value, NUMBERS) and dtype:
        return _literal(value, dtype)
    if hasattr(value, "__array__"):
        return _native(np.asarray(value))
    if hasattr(value, "__dlpack__"):
        return np.from_dlpack(cast("Any", value))
    raise CallError(
        f"expected an array (numpy, jax or torch) or a number; got {type(value).__name__}"
    )


def aligned_zeros(shape: Sequence[int], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """``numpy.zeros`` at an address that 64 divides, as vector instructions of kernels need it."""
    nbytes = math.prod(shape) * dtype.itemsize
    memory = np.zeros(nbytes + 64, np.uint8)
    start = -memory.ctypes.data % 64
    return memory[start : start + nbytes].view(dtype).reshape(shape)


def _native(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """``array`` in this machine's byte order: jaxlib takes the bytes as they are."""
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def _literal(value: Any, dtype: str) -> np.ndarray[Any, Any]:
    target = numpy_dtype(dtype)
    text = reprlib.repr(value)
    try:
        plain = np.asarray(value)
    except ValueError as e:
        raise CallError(f"{text} does not fit {dtype}: {e}") from None
    kind = plain.dtype.kind
    if (kind in "fc" and target.kind in "iub") or (kind == "c" and target.kind != "c"):
        raise CallError(f"{text} does not fit {dtype} exactly")
    try:
        with np.errstate(over="ignore"):
            made = plain.astype(target) if kind == "f" else np.asarray(value, target)
    except (ValueError, TypeError, OverflowError) as e:
        raise CallError(f"{text} does not fit {dtype}: {e}") from None
    unequal = kind in "iu" and not np.array_equal(made, plain)
    overflown = kind == "f" and bool((np.isinf(made) & ~np.isinf(plain)).any())
    if unequal or overflown:
        raise CallError(f"{text} does not fit {dtype} exactly")
    return made
