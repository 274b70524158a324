"""One, two or three axes of space: operators of windows by their number, paddings, and grids.

Data is (batch, channels, ...space).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from relax2xla import op as R
from relax2xla.importers.shared.tensors import dims_of, ndim_of
from relax2xla.ir import Expr
from relax2xla.tir import Dim

#: Operators of one kind by how many axes of space they have.
Family = Mapping[int, Callable[..., Expr]]

CONV: Family = {1: R.nn.conv1d, 2: R.nn.conv2d, 3: R.nn.conv3d}
CONV_TRANSPOSE: Family = {
    1: R.nn.conv1d_transpose,
    2: R.nn.conv2d_transpose,
    3: R.nn.conv3d_transpose,
}
MAX_POOL: Family = {1: R.nn.max_pool1d, 2: R.nn.max_pool2d, 3: R.nn.max_pool3d}
AVG_POOL: Family = {1: R.nn.avg_pool1d, 2: R.nn.avg_pool2d, 3: R.nn.avg_pool3d}
ADAPTIVE_AVG_POOL: Family = {
    1: R.nn.adaptive_avg_pool1d,
    2: R.nn.adaptive_avg_pool2d,
    3: R.nn.adaptive_avg_pool3d,
}


def halves(total: Sequence[int], more_behind: bool = True) -> list[int]:
    """Paddings before and then behind each axis that share ``total`` out; the odd one is behind."""
    less = [t // 2 for t in total]
    more = [t - t // 2 for t in total]
    return [*less, *more] if more_behind else [*more, *less]


def biased(x: Expr, bias: Expr | None) -> Expr:
    """``x`` with one number added to each channel."""
    if bias is None:
        return x
    return R.add(x, R.reshape(bias, (1, dims_of(bias)[0], *[1] * (ndim_of(x) - 2))))


def affine_points(maps: Expr, space: Sequence[Dim], align_corners: bool) -> Expr:
    """The points that ``maps`` make of a grid, their coordinates last: (n, *space, axes)."""
    grid = R.image.affine_grid(maps, list(space), align_corners)
    return R.permute_dims(grid, [0, *range(2, 2 + len(space)), 1])
