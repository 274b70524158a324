"""Arrays and devices under the names of ``tvm.nd``; an array of the runtime is a ``jax.Array``."""

from __future__ import annotations

from typing import Any

import numpy as np

from relax2xla.runtime.device import Device as Device
from relax2xla.runtime.device import cpu as cpu
from relax2xla.runtime.device import cuda as cuda
from relax2xla.runtime.device import device as device
from relax2xla.runtime.device import gpu as gpu
from relax2xla.runtime.device import rocm as rocm


def array(arr: Any, device: Device | None = None) -> Any:
    """``arr`` (anything that numpy takes) as an array that every function of the library accepts.

    result: a numpy array of the dtype of ``arr``, its own copy; on ``device`` (other than the
    host) a ``jax.Array``, whose 64-bit types stay 64-bit where JAX's x64 flag is on.
    """
    made = np.array(arr)
    if device is None or device.platform == "cpu":
        return made
    import jax

    places = jax.devices(device.platform)
    return jax.device_put(made, places[device.index])


def empty(shape: tuple[int, ...], dtype: str = "float32", device: Device | None = None) -> Any:
    """An array of ``shape`` and ``dtype`` whose values are zeros."""
    from relax2xla.dtypes import numpy_dtype

    return array(np.zeros(shape, numpy_dtype(dtype)), device)
