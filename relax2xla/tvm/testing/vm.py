"""``tvm.relax.testing.vm``: packed functions that test programs call, and a check of closures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from relax2xla.runtime import register_func
from relax2xla.runtime.device import Device
from relax2xla.testing import assert_allclose
from relax2xla.tvm.runtime.arrays import HostArray, array


def move(src: Any) -> Any:
    """``src`` itself."""
    return src


def add(a: Any, b: Any) -> HostArray:
    """The sum of two arrays."""
    return array(np.asarray(a) + np.asarray(b))


def mul(a: Any, b: Any) -> HostArray:
    """The product of two arrays."""
    return array(np.asarray(a) * np.asarray(b))


def equal_zero(a: Any) -> HostArray:
    """Whether all elements are zeros, a bool of rank 0."""
    return array(np.all(np.asarray(a) == 0))


def subtract_one(a: Any) -> HostArray:
    """An array less one."""
    return array(np.asarray(a) - 1)


def identity_packed(a: Any, b: Any) -> None:
    """Write ``a`` into ``b``."""
    b[:] = np.asarray(a)


def tile_packed(a: Any, b: Any) -> None:
    """Write ``a``, twice beside itself, into ``b``."""
    b[:] = np.tile(np.asarray(a), (1, 2))


def add_scalar(a: Any, b: Any) -> Any:
    """The sum of two numbers."""
    return a + b


def get_device_id(device: Device) -> int:
    """The index of a device."""
    return device.device_id


def check_if_defined(obj: Any) -> bool:
    """Whether there is an object."""
    return obj is not None


_REGISTERED: Final[dict[str, Callable[..., Any]]] = {
    "move": move,
    "add": add,
    "mul": mul,
    "equal_zero": equal_zero,
    "subtract_one": subtract_one,
    "identity": identity_packed,
    "tile": tile_packed,
    "add_scalar": add_scalar,
    "get_device_id": get_device_id,
    "check_if_defined": check_if_defined,
}
for _name, _function in _REGISTERED.items():
    register_func(f"test.vm.{_name}", _function, override=True)


def check_saved_func(vm: Any, func_name: str, *inputs: Any) -> Any:
    """Call a function, and a closure of it and its inputs; AssertionError where they differ."""
    saved = f"{func_name}_saved"
    vm.save_function(func_name, saved, *inputs)
    result = vm[func_name](*inputs)
    assert_allclose(result, vm[saved](), rtol=1e-7, atol=1e-7)
    return result
