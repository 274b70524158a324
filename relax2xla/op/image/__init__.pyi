# Written by python -m relax2xla.op --stubs.
"""Operators of images: ``relax.image.*``."""

from relax2xla.op.image.grid import affine_grid as affine_grid
from relax2xla.op.image.grid import grid_sample as grid_sample
from relax2xla.op.image.patches import col2im as col2im
from relax2xla.op.image.resampling import resample as resample
from relax2xla.op.image.resize import decode as decode
from relax2xla.op.image.resize import resize2d as resize2d
from relax2xla.op.image.resize import resize3d as resize3d
