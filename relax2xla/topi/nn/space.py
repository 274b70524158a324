"""Blocks of pixels as channels or batches, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from relax2xla import te
from relax2xla.topi.nn.padding import pad
from relax2xla.topi.shared import size, want_one_of
from relax2xla.topi.transform import reshape, strided_slice, transpose


def _channels_first(layout: str, what: str) -> bool:
    want_one_of(layout, ("NCHW", "NHWC"), f"nn.{what}: layout")
    return layout == "NCHW"


def depth_to_space(
    data: te.Tensor, block_size: int, layout: str = "NCHW", mode: str = "DCR"
) -> te.Tensor:
    """Channels as blocks of pixels; "DCR": the block comes before the depth among channels."""
    want_one_of(mode, ("DCR", "CDR"), "nn.depth_to_space: mode")
    first, b = _channels_first(layout, "depth_to_space"), block_size
    n, c, h, w = (data.shape[x] for x in ((0, 1, 2, 3) if first else (0, 3, 1, 2)))
    c, h, w = size(c // (b * b)), size(h * b), size(w * b)

    def element(*i: Any) -> Any:
        batch, channel, y, x = i if first else (i[0], i[3], i[1], i[2])
        block = y % b * b + x % b
        at = block * c + channel if mode == "DCR" else channel * (b * b) + block
        return data(batch, at, y // b, x // b) if first else data(batch, y // b, x // b, at)

    shape = [n, c, h, w] if first else [n, h, w, c]
    return te.compute(shape, element, "depth_to_space", "injective")


def space_to_depth(data: te.Tensor, block_size: int, layout: str = "NCHW") -> te.Tensor:
    """Blocks of pixels as channels, the block before the depth."""
    first, b = _channels_first(layout, "space_to_depth"), block_size
    n, c, h, w = (data.shape[x] for x in ((0, 1, 2, 3) if first else (0, 3, 1, 2)))

    def element(*i: Any) -> Any:
        batch, channel, y, x = i if first else (i[0], i[3], i[1], i[2])
        block = channel // c
        row, column, own = y * b + block // b, x * b + block % b, channel % c
        return data(batch, own, row, column) if first else data(batch, row, column, own)

    wide, h, w = size(c * (b * b)), size(h // b), size(w // b)
    shape = [n, wide, h, w] if first else [n, h, w, wide]
    return te.compute(shape, element, "space_to_depth", "injective")


def space_to_batch_nd(
    data: te.Tensor,
    block_shape: Sequence[int],
    pad_before: Sequence[int],
    pad_after: Sequence[int],
    pad_value: float = 0.0,
) -> te.Tensor:
    """Blocks along the axes after the first as batches, after padding."""
    m = len(block_shape)
    rest = [0] * (data.ndim - 1 - m)
    x = pad(data, [0, *pad_before, *rest], [0, *pad_after, *rest], pad_value)
    parts: list[Any] = [x.shape[0]]
    for n, b in zip(x.shape[1:], block_shape, strict=False):
        parts += [size(n // b), b]
    parts += x.shape[1 + m :]
    blocks, places = [2 * n + 2 for n in range(m)], [2 * n + 1 for n in range(m)]
    moved = transpose(reshape(x, parts), [*blocks, 0, *places, *range(2 * m + 1, len(parts))])
    batch: Any = x.shape[0]
    for b in block_shape:
        batch = batch * b
    return reshape(moved, [size(batch), *(parts[p] for p in places), *x.shape[1 + m :]])


def batch_to_space_nd(
    data: te.Tensor,
    block_shape: Sequence[int],
    crop_begin_list: Sequence[int],
    crop_end_list: Sequence[int],
) -> te.Tensor:
    """Batches as blocks along the axes after the first, and then cropped."""
    m = len(block_shape)
    batch: Any = data.shape[0]
    for b in block_shape:
        batch = batch // b
    batch = size(batch)
    parts = [*block_shape, batch, *data.shape[1:]]
    order = [m]
    for n in range(m):
        order += [m + 1 + n, n]
    moved = transpose(reshape(data, parts), [*order, *range(2 * m + 1, len(parts))])
    wide = [size(n * b) for n, b in zip(data.shape[1:], block_shape, strict=False)]
    whole = reshape(moved, [batch, *wide, *data.shape[1 + m :]])
    ends = [size(n - c) for n, c in zip(wide, crop_end_list, strict=True)]
    return strided_slice(whole, list(crop_begin_list), ends, axes=list(range(1, m + 1)))
