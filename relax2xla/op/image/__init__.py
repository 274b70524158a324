"""Operators of images: ``relax.image.*``."""

from __future__ import annotations

from .grid import affine_grid as affine_grid
from .grid import grid_sample as grid_sample
from .patches import col2im as col2im
from .resample import resample as resample
from .resize import decode as decode
from .resize import resize2d as resize2d
from .resize import resize3d as resize3d
