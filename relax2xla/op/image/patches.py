"""``relax.image.col2im``: images put together from their patches. Source: Col2Im of ONNX."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

from relax2xla import tir
from relax2xla.errors import LegalizeError, OpError
from relax2xla.ir.expr import Expr
from relax2xla.ir.op import Rule, op
from relax2xla.ir.op_param import AxesLike, IntsLike
from relax2xla.ir.traits import Opaque
from relax2xla.op.shared.checks import REAL, fold, product, tensor, want_tensor
from relax2xla.op.shared.lowering import dtype_of, hlo, pad, reshape, scalar, shape_of, take_slice

# Elements of a patch: each is an addition of the program.
PATCH_LIMIT = 4096


def _are_numbers(values: Sequence[Any]) -> bool:
    return all(isinstance(v, int) for v in values)


@op("relax.image.col2im", Opaque())
def col2im(
    data: Expr,
    image_shape: IntsLike,
    block_shape: IntsLike,
    dilations: AxesLike = None,
    pads: AxesLike = None,
    strides: AxesLike = None,
) -> Rule:
    """Sums of the patches that cover an element: each element of a patch is spread and added.

    data:   (n, channels * elements of a patch, number of patches), any number
    image_shape, block_shape: sizes of the result, and of a patch, along each axis of space
    dilations, strides: of the patches, 1 by default; pads: all before, then all behind, or none
    result: (n, channels, *image_shape), dtype of ``data``
    Raises ``OpError`` for lists of other lengths, and where the patches are not those of the image.
    Source: Col2Im of ONNX.
    """
    x = want_tensor(data, "data", REAL, ndim=3)
    rank = len(image_shape)
    for name, value, count in (
        ("block_shape", block_shape, rank),
        ("dilations", dilations, rank),
        ("strides", strides, rank),
        ("pads", pads, 2 * rank),
    ):
        if value is not None and len(value) != count:
            raise OpError(f"`{name}` must have {count} numbers; got {len(value)}")
    for name, values in (("image_shape", image_shape), ("block_shape", block_shape)):
        if any(isinstance(v, int) and v < 1 for v in values):
            raise OpError(f"`{name}` must be positive; got {tuple(values)}")

    def lower() -> Expr:
        n, wide, _ = shape_of(data)
        if not _are_numbers((*image_shape, *block_shape, n, wide)):
            raise LegalizeError("the sizes of an image and its patches must be known")
        taps = math.prod(block_shape)
        if taps > PATCH_LIMIT:
            raise OpError(f"patches of {taps} elements; at most {PATCH_LIMIT} are supported")
        full, counts = _fits(image_shape, block_shape, dilations, pads, strides)
        step, spread = strides or (1,) * rank, dilations or (1,) * rank
        channels = wide // taps
        x = reshape(data, (n, channels, taps, *counts))
        zero = scalar(0, dtype_of(data))
        total: Expr | None = None
        for k, offsets in enumerate(itertools.product(*map(range, block_shape))):
            part = take_slice(
                x, (0, 0, k, *[0] * rank), (n, channels, k + 1, *counts), (1,) * (3 + rank)
            )
            low = [o * s for o, s in zip(offsets, spread, strict=True)]
            high = [
                f - b - ((c - 1) * t + 1)
                for f, b, c, t in zip(full, low, counts, step, strict=True)
            ]
            part = pad(
                reshape(part, (n, channels, *counts)),
                (0, 0, *low),
                (0, 0, *high),
                zero,
                (0, 0, *(t - 1 for t in step)),
            )
            total = part if total is None else hlo("add", total, part)
        assert total is not None
        around = pads or (0,) * (2 * rank)
        if not any(around):
            return total
        ends = [a + i for a, i in zip(around, image_shape, strict=False)]
        return take_slice(total, (0, 0, *around[:rank]), (n, channels, *ends), (1,) * (2 + rank))

    if x.dims is None:
        return tensor(None, x.dtype, 2 + rank, x), lower
    n, wide, count = x.dims
    block = tuple(map(tir.as_dim, block_shape))
    if _are_numbers((*image_shape, *block_shape)):
        _, counts = _fits(image_shape, block_shape, dilations, pads, strides)
        taps, patches = math.prod(block_shape), math.prod(counts)
        if (isinstance(wide, int) and wide % taps) or (isinstance(count, int) and count != patches):
            raise OpError(
                f"an image of {tuple(image_shape)} has {patches} patches of {taps} elements; "
                f"`data` has {count}, of {wide} values"
            )
    channels = fold(wide // product(block))
    return tensor((n, channels, *map(tir.as_dim, image_shape)), x.dtype, like=x), lower


def _fits(
    image: Sequence[int],
    block: Sequence[int],
    dilations: Sequence[int] | None,
    pads: Sequence[int] | None,
    strides: Sequence[int] | None,
) -> tuple[list[int], list[int]]:
    """Sizes of the image with its padding, and numbers of patches along each axis."""
    rank = len(image)
    step, spread = strides or (1,) * rank, dilations or (1,) * rank
    around = pads or (0,) * (2 * rank)
    full = [image[i] + around[i] + around[rank + i] for i in range(rank)]
    counts = [
        (f - (s * (b - 1) + 1)) // t + 1
        for f, s, b, t in zip(full, spread, block, step, strict=True)
    ]
    if any(c < 0 for c in counts):
        raise OpError(f"patches of {tuple(block)} are larger than the image of {tuple(image)}")
    return full, counts
