"""The runtime: devices, conversion of arrays, packed functions."""

from __future__ import annotations

from relax2xla.runtime.device import Device as Device
from relax2xla.runtime.device import cpu as cpu
from relax2xla.runtime.device import cuda as cuda
from relax2xla.runtime.device import device as device
from relax2xla.runtime.device import gpu as gpu
from relax2xla.runtime.device import rocm as rocm
