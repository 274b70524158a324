"""Winograd's minimal filtering F(2x2, 3x3): a 3x3 convolution with 16 instead of 36 products.

Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks" (2015): each 2x2 tile of the
result is ``A^T ((G g G^T) * (B^T d B)) A`` for a 4x4 tile ``d`` of the data, and the products over
channels are 16 matrix products. The kernel's part, ``G g G^T``, depends on weights alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from relax2xla.errors import OpError
from relax2xla.ir.expr import Expr, Tuple
from relax2xla.ir.make import const
from relax2xla.ir.op import Op, op
from relax2xla.ir.op_param import Kind
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


@composed
def winograd_weight(weight: Expr) -> Expr:
    """``G g G^T`` of a kernel (3, 3, I, O), as (4, 4, I, O), columns first: for winograd_conv2d."""
    # Sums and not products with G, which XLA:CPU computes without vectors: this runs at load.
    columns_first = Op.get("relax.permute_dims")(weight, [1, 0, 2, 3])
    return _of_kernel(_of_kernel(columns_first, 0), 1)


def _of_kernel(g: Expr, axis: int) -> Expr:
    """``G`` on the three values along ``axis``: g0, (g0 + g1 + g2) / 2, (g0 - g1 + g2) / 2, g2."""
    add, multiply, subtract = (Op.get(f"relax.{n}") for n in ("add", "multiply", "subtract"))
    half = const(0.5, g.struct_info.dtype)  # pyright: ignore[reportAttributeAccessIssue]

    def at(i: int) -> Expr:
        return Op.get("relax.strided_slice")(g, axes=[axis], begin=[i], end=[i + 1])

    ends, middle = multiply(add(at(0), at(2)), half), multiply(at(1), half)
    parts = [at(0), add(ends, middle), subtract(ends, middle), at(2)]
    return Op.get("relax.concat")(Tuple(parts), axis=axis)


@op("relax.nn.winograd_conv2d", Contraction())
def winograd_conv2d(data: Expr, weight: Expr, padding: Padding2 = (0, 0, 0, 0)) -> StructInfo:
    """3x3 convolution of stride 1 with a kernel that ``winograd_weight`` has transformed.

    data:    (N, H, W, I), float32 or float64
    weight:  (4, 4, I, O), dtype of ``data``
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
        raise OpError(f"`weight` must be (4, 4, I, O), from winograd_weight; got {w}")
    if not same_dim(x.dims[3], w.dims[2]):
        raise OpError(f"`data` has {x.dims[3]} channels, but `weight` takes {w.dims[2]}")
    top, left, bottom, right = padding
    height, width = fold(x.dims[1] + (top + bottom - 2)), fold(x.dims[2] + (left + right - 2))
    for size in (height, width):
        if isinstance(size, int) and size < 1:
            raise OpError(f"a window of 3 does not fit in `data` {x} with padding {padding}")
    return tensor((x.dims[0], height, width, w.dims[3]), dtype, like=x)


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


def _stacked(values: Sequence[Expr], axis: int) -> Expr:
    """The values side by side along a new axis."""
    shape = shape_of(values[0])
    one = [*shape[:axis], 1, *shape[axis:]]
    return concatenate([reshape(v, one) for v in values], axis)


def _every_second(x: Expr, axis: int, tiles: int) -> list[Expr]:
    """By place in a tile of four that overlaps the next by two, what lies there of all tiles.

    ``axis`` has ``2 * tiles + 2`` places.
    """
    shape = list(shape_of(x))
    pairs = reshape(x, [*shape[:axis], tiles + 1, 2, *shape[axis + 1 :]])
    found: list[Expr] = []
    for at in range(4):
        low = [0] * (len(shape) + 1)
        high = [*shape[:axis], tiles, 1, *shape[axis + 1 :]]
        low[axis], low[axis + 1] = at // 2, at % 2
        high[axis], high[axis + 1] = at // 2 + tiles, at % 2 + 1
        part = take_slice(pairs, low, high)
        found.append(reshape(part, [*shape[:axis], tiles, *shape[axis + 1 :]]))
    return found


@winograd_conv2d.legalize
def _(data: Expr, weight: Expr, padding: Padding2 = (0, 0, 0, 0)) -> Expr:
    # Rows and columns one after the other: both at once would be loops over 16 values, which take
    # twice as long to compile and run no faster.
    n, height, width, channels = shape_of(data)
    outputs = shape_of(weight)[3]
    top, left, bottom, right = padding
    rows, columns = height + top + bottom - 2, width + left + right - 2
    # Tiles of 2x2 results; an odd size computes one row or column too many.
    high, wide = (rows + 1) // 2, (columns + 1) // 2
    low = (0, top, left, 0)
    up = (0, 2 * high + 2 - height - top, 2 * wide + 2 - width - left, 0)
    x = pad(data, low, up, scalar(0, dtype_of(data)))
    x = _stacked(_input(_every_second(x, 1, high)), 0)
    x = _stacked(_input(_every_second(x, 3, wide)), 0)
    matrices = reshape(weight, (16, channels, outputs))
    stacked = reshape(x, (16, n * high * wide, channels))
    products = dot_general(stacked, matrices, ((2,), (1,)), ((0,), (0,)))
    whole = reshape(products, (4, 4, n, high, wide, outputs))
    y = _stacked(_output(_parts(whole)), 4)
    result = reshape(_stacked(_output(_parts(y)), 2), (n, 2 * high, 2 * wide, outputs))
    return take_slice(result, (0, 0, 0, 0), (n, rows, columns, outputs))


def _parts(x: Expr) -> list[Expr]:
    """What lies at each place of the first axis, which disappears."""
    first, *rest = shape_of(x)
    assert isinstance(first, int)
    zeros = [0] * len(rest)
    return [reshape(take_slice(x, (i, *zeros), (i + 1, *rest)), rest) for i in range(first)]
