"""Packed functions that TVM's virtual machine brings, under their names (``vm.builtin.*``).

The registry looks here for names that nobody registered, so that saved programs find them, too.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from relax2xla.errors import DeviceError, RunError
from relax2xla.runtime.device import DLPACK, Device
from relax2xla.runtime.registry import get_global_func


class AttentionKVCache:
    """A growing array of entries in the memory of the host; one thread at a time."""

    def __init__(self, data: Any, shape: Sequence[int], fill_count: int) -> None:
        shape, given = tuple(int(n) for n in shape), np.asarray(data)
        if not shape or not given.ndim or given.shape[1:] != shape[1:]:
            raise RunError(
                f"a cache of the shape {shape} begins with entries of {shape[1:]}; got "
                f"{given.dtype} of the shape {given.shape}"
            )
        if not 0 <= fill_count <= min(shape[0], len(given)):
            raise RunError(f"{fill_count} of {len(given)} entries in a cache of {shape[0]}")
        self._data: npt.NDArray[Any] = np.zeros(shape, given.dtype)
        self._data[:fill_count] = given[:fill_count]
        self.fill_count = int(fill_count)

    def append(self, value: Any) -> None:
        """Add the elements of ``value``, whole entries of them."""
        new, unit = np.asarray(value), self._data.shape[1:]
        if new.dtype != self._data.dtype:
            raise RunError(f"the cache is of {self._data.dtype}, and what is added {new.dtype}")
        if unit and (new.size % max(1, int(np.prod(unit))) or new.shape[-1:] != unit[-1:]):
            raise RunError(f"a value of {new.shape} is no whole number of entries of {unit}")
        new = new.reshape(-1, *unit)
        needed = self.fill_count + len(new)
        if needed > len(self._data):
            grown = np.zeros((max(needed, 2 * len(self._data)), *unit), self._data.dtype)
            grown[: self.fill_count] = self._data[: self.fill_count]
            self._data = grown
        self._data[self.fill_count : needed] = new
        self.fill_count = needed

    def view(self, shape: Sequence[int]) -> npt.NDArray[Any]:
        """A copy of the last ``shape[0]`` entries; RunError where ``shape`` cannot be had."""
        count, *unit = (int(n) for n in shape)
        if tuple(unit) != self._data.shape[1:] or not 0 <= count <= self.fill_count:
            raise RunError(
                f"a view of {tuple(shape)} of a cache with {self.fill_count} entries of "
                f"{self._data.shape[1:]}"
            )
        return self._data[self.fill_count - count : self.fill_count].copy()

    def popn(self, count: int) -> None:
        """Forget the last ``count`` entries."""
        if not 0 <= count <= self.fill_count:
            raise RunError(f"cannot take {count} of {self.fill_count} entries away")
        self.fill_count -= int(count)


def _cache(given: Any, name: str) -> AttentionKVCache:
    """``given``; RunError where it is no cache."""
    if not isinstance(given, AttentionKVCache):
        raise RunError(
            f"vm.builtin.attention_kv_cache_{name}: the first argument must be what "
            f"attention_kv_cache_create gave; got {type(given).__name__}"
        )
    return given


def _append(cache: AttentionKVCache, value: Any) -> AttentionKVCache:
    _cache(cache, "append").append(value)
    return cache


def _view(cache: AttentionKVCache, shape: Sequence[int]) -> npt.NDArray[Any]:
    return _cache(cache, "view").view(shape)


def _popn(caches: Sequence[AttentionKVCache], count: int) -> None:
    for cache in caches:
        cache.popn(count)


def _clear(caches: Sequence[AttentionKVCache]) -> None:
    for cache in caches:
        cache.popn(cache.fill_count)


def _invoke_debug_func(effect: Any, name: str, line_info: str, *args: Any) -> Any:
    function = get_global_func(name)
    assert function is not None
    function(line_info, *args)
    return effect


def _debug_print(line_info: str, value: Any) -> None:
    array = np.asarray(value)
    sys.stdout.write(
        f"{line_info}: shape = {array.shape}, dtype = {array.dtype}, data =\n{array}\n"
    )


def _reshape(value: Any, shape: Sequence[int]) -> Any:
    """The elements of ``value``, where they are, in another shape."""
    array = value if hasattr(value, "reshape") else np.asarray(value)
    return array.reshape(tuple(shape))


def _copy(value: Any) -> npt.NDArray[Any]:
    """The elements of ``value`` in memory of their own."""
    return np.array(value)


def _to_device(value: Any, device_type: int, device_id: int) -> Any:
    """An array on a device, which dlpack.h's number of its kind and its index name."""
    from relax2xla.vm.pjrt.xla import device_put

    # Numbers that a program holds as tensors are numbers, too.
    device_type, device_id = int(device_type), int(device_id)
    platform = next((name for name, kind in DLPACK.items() if kind == device_type), None)
    if platform is None:
        known = ", ".join(f"{kind} for {name}" for name, kind in DLPACK.items())
        raise DeviceError(f"vm.builtin.to_device knows no kind {device_type} of device; {known}")
    return device_put(np.asarray(value), Device(platform, device_id))


def _multinomial_from_uniform(prob: Any, uniform: Any) -> npt.NDArray[Any]:
    """An index a row of ``prob``: the first whose probability and those before exceed ``uniform``.

    ``prob`` is (rows, n), ``uniform`` (rows, 1); the result is int64, (rows, 1). Where rounding
    leaves the sum below the number, it is the last index that is possible.
    """
    table, limits = np.asarray(prob, "float64"), np.asarray(uniform, "float64")
    if table.ndim != 2 or limits.shape != (len(table), 1):
        raise RunError(
            "multinomial_from_uniform takes (rows, n) and (rows, 1); "
            f"got {table.shape} and {limits.shape}"
        )
    over = np.cumsum(table, 1) > limits
    last = table.shape[1] - 1 - np.argmax(table[:, ::-1] > 0, 1)
    return np.where(over.any(1), np.minimum(np.argmax(over, 1), last), last)[:, None]


BUILTINS: Final[dict[str, Callable[..., Any]]] = {
    f"vm.builtin.{name}": function
    for name, function in {
        "attention_kv_cache_create": AttentionKVCache,
        "attention_kv_cache_append": _append,
        "attention_kv_cache_view": _view,
        "attention_kv_cache_array_popn": _popn,
        "attention_kv_cache_array_clear": _clear,
        "reshape": _reshape,
        "copy": _copy,
        "to_device": _to_device,
        "multinomial_from_uniform": _multinomial_from_uniform,
        "invoke_debug_func": _invoke_debug_func,
        "debug_print": _debug_print,
    }.items()
}
