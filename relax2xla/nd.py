"""Arrays and devices under the names of ``tvm.nd``; an array of the runtime is a ``jax.Array``."""

from __future__ import annotations

from typing import Any

import numpy as np

from relax2xla.dtypes import numpy_dtype
from relax2xla.runtime.device import Device as Device
from relax2xla.runtime.device import cpu as cpu
from relax2xla.runtime.device import cuda as cuda
from relax2xla.runtime.device import device as device
from relax2xla.runtime.device import gpu as gpu
from relax2xla.runtime.device import rocm as rocm


def array(arr: Any, device: Device | None = None) -> Any:
    """``arr`` (anything that numpy takes) as a ``jax.Array`` on ``device`` (default: the CPU).

    result: the dtype of ``arr``, which 64-bit types keep whatever JAX's x64 flag says; its own
    copy of the values
    """
    from relax2xla.vm.pjrt.xla import device_put

    return device_put(np.array(arr), device or cpu())


def empty(shape: tuple[int, ...], dtype: str = "float32", device: Device | None = None) -> Any:
    """An array of ``shape`` and ``dtype`` whose values are zeros."""
    return array(np.zeros(shape, numpy_dtype(dtype)), device)
