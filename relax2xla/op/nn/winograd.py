"""Winograd's minimal filtering F(2x2, 3x3): a 3x3 convolution with 16 instead of 36 products.

Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks" (2015): each 2x2 tile of the
result is ``A^T ((G g G^T) * (B^T d B)) A`` for a 4x4 tile ``d`` of the data, and the products over
channels are 16 matrix products. The kernel's part, ``G g G^T``, depends on weights alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np

from relax2xla.errors import OpError
from relax2xla.ir.expr import Constant, Expr
from relax2xla.ir.make import const
from relax2xla.ir.op import Kind, Op, op
from relax2xla.ir.struct_info import StructInfo
from relax2xla.ir.traits import Contraction
from relax2xla.op.shared.checks import common_dtype, fold, same_dim, tensor, want_tensor
from relax2xla.op.shared.exports import composed
from relax2xla.op.shared.lowering import (
    concatenate,
    dot_general,
    dtype_of,
    hlo,
    pad,
    reshape,
    scalar,
    shape_of,
    take_slice,
)
from relax2xla.op.shared.spatial import as_padding

Padding2 = Annotated[Any, Kind(False, lambda value: as_padding(value, 2))]
_KERNEL = np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]])


@composed
def winograd_weight(weight: Expr) -> Expr:
    """``G g G^T`` of a kernel (3, 3, I, O), as (4, 4, O, I): what winograd_conv2d takes."""
    g: Constant = const(_KERNEL, weight.struct_info.dtype)  # pyright: ignore[reportAttributeAccessIssue]
    return Op.get("relax.einsum")((g, g, weight), subscripts="ay,bx,yxio->aboi")


@op("relax.nn.winograd_conv2d", Contraction())
def winograd_conv2d(data: Expr, weight: Expr, padding: Padding2 = (0, 0, 0, 0)) -> StructInfo:
    """3x3 convolution of stride 1 with a kernel that ``winograd_weight`` has transformed.

    data:    (N, H, W, I), float32 or float64
    weight:  (4, 4, O, I), dtype of ``data``
    padding: before and after each spatial axis, as of ``nn.conv2d``
    result:  (N, H + padding - 2, W + padding - 2, O); equal to ``nn.conv2d`` up to rounding (about
             1e-6 of the largest value in float32)
    Raises ``OpError`` for other ranks, dtypes and channel counts, and data smaller than the window.
    """
    x = want_tensor(data, "data", ("float32", "float64"), 4)
    w = want_tensor(weight, "weight", ("float32", "float64"), 4)
    dtype = common_dtype((x, w), ("data", "weight"))
    if x.dims is None or w.dims is None:
        return tensor(None, dtype, 4, x)
    if w.dims[:2] != (4, 4):
        raise OpError(f"`weight` must be (4, 4, O, I), from winograd_weight; got {w}")
    if not same_dim(x.dims[3], w.dims[3]):
        raise OpError(f"`data` has {x.dims[3]} channels, but `weight` takes {w.dims[3]}")
    top, left, bottom, right = padding
    height, width = fold(x.dims[1] + (top + bottom - 2)), fold(x.dims[2] + (left + right - 2))
    for size in (height, width):
        if isinstance(size, int) and size < 1:
            raise OpError(f"a window of 3 does not fit in `data` {x} with padding {padding}")
    return tensor((x.dims[0], height, width, w.dims[2]), dtype, like=x)


def _input(r: Sequence[Expr]) -> list[Expr]:
    """``B^T`` on four values."""
    return [
        hlo("subtract", r[0], r[2]),
        hlo("add", r[1], r[2]),
        hlo("subtract", r[2], r[1]),
        hlo("subtract", r[1], r[3]),
    ]


def _output(r: Sequence[Expr]) -> list[Expr]:
    """``A^T`` on four values."""
    return [
        hlo("add", hlo("add", r[0], r[1]), r[2]),
        hlo("subtract", hlo("subtract", r[1], r[2]), r[3]),
    ]


def _columns(rows: Sequence[Sequence[Expr]]) -> list[list[Expr]]:
    return [list(column) for column in zip(*rows, strict=True)]


@winograd_conv2d.legalize
def _(data: Expr, weight: Expr, padding: Padding2 = (0, 0, 0, 0)) -> Expr:
    n, height, width, channels = shape_of(data)
    outputs = shape_of(weight)[2]
    top, left, bottom, right = padding
    rows, columns = height + top + bottom - 2, width + left + right - 2
    # Tiles of 2x2 results; an odd size computes one row or column too many.
    high, wide = (rows + 1) // 2, (columns + 1) // 2
    low = (0, top, left, 0)
    up = (0, 2 * high + 2 - height - top, 2 * wide + 2 - width - left, 0)
    x = pad(data, low, up, scalar(0, dtype_of(data)))
    d = [
        [
            take_slice(
                x,
                (0, i, j, 0),
                (n, i + 2 * high - 1, j + 2 * wide - 1, channels),
                (1, 2, 2, 1),
            )
            for j in range(4)
        ]
        for i in range(4)
    ]
    tiles = [_input(row) for row in _columns([_input(column) for column in _columns(d)])]
    flat = (1, n * high * wide, channels)
    stacked = concatenate([reshape(t, flat) for row in tiles for t in row], 0)
    matrices = reshape(weight, (16, outputs, channels))
    products = dot_general(stacked, matrices, ((2,), (2,)), ((0,), (0,)))
    m = [
        [
            reshape(
                take_slice(products, (4 * i + j, 0, 0), (4 * i + j + 1, n * high * wide, outputs)),
                (n, high, 1, wide, 1, outputs),
            )
            for j in range(4)
        ]
        for i in range(4)
    ]
    y = [_output(row) for row in _columns([_output(column) for column in _columns(m)])]
    whole = concatenate([concatenate(row, 4) for row in y], 2)
    result = reshape(whole, (n, 2 * high, 2 * wide, outputs))
    return take_slice(result, (0, 0, 0, 0), (n, rows, columns, outputs))
