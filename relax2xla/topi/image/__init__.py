"""Functions of images over tensors of ``te``."""

from __future__ import annotations

from relax2xla.topi.image.resize import resize1d as resize1d
from relax2xla.topi.image.resize import resize2d as resize2d
from relax2xla.topi.image.resize import resize3d as resize3d
