"""Sampling images and volumes at places that are data, and grids of such places."""

from __future__ import annotations

from relax2xla import op as R
from relax2xla.importers.shared.windows import affine_points
from relax2xla.importers.torch.engine.context import NARROW, Context, dtype_of, ndim_of
from relax2xla.importers.torch.engine.converters import aten
from relax2xla.ir import Expr

METHODS = ("bilinear", "nearest", "bicubic")
PADDINGS = ("zeros", "border", "reflection")
LAYOUTS = {4: "NCHW", 5: "NCDHW"}


@aten("affine_grid_generator", ignored="size")
def affine_grid_generator(ctx: Context, theta: Expr, align_corners: bool) -> Expr:
    return affine_points(theta, ctx.dims()[1:-1], align_corners)


@aten("grid_sampler", "grid_sampler_2d", "grid_sampler_3d")
def grid_sampler(
    ctx: Context,
    input: Expr,
    grid: Expr,
    interpolation_mode: int,
    padding_mode: int,
    align_corners: bool,
) -> Expr:
    """The last axis of ``grid`` holds places along width, height (and depth)."""
    narrow, rank = dtype_of(input), ndim_of(input)
    # Places on an image need more digits than the 8 of bfloat16.
    dtype = "float32" if narrow in NARROW else narrow
    x, places = ctx.cast(input, dtype), ctx.cast(grid, dtype)
    places = R.permute_dims(places, [0, rank - 1, *range(1, rank - 1)])
    found = R.image.grid_sample(
        x,
        places,
        METHODS[interpolation_mode],
        LAYOUTS[rank],
        PADDINGS[padding_mode],
        align_corners,
    )
    return ctx.cast(found, narrow)
