"""Gradients of what slides windows over space, convolutions, pools and pads, in torch's operators.

XLA has fast forms of few of them on the CPU. Where there is a choice the form here is the one that
was measured to be fast: products and sums of shifted parts, and a scatter only for windows at
irregular places.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any

import torch
from torch import Tensor

ATEN: Any = torch.ops.aten
# Larger windows, and more terms in the sums of all places, make programs that take long to compile.
MAX_TAPS = 49
MAX_TERMS = 512
# Deeper windows of volumes are not taken as planes of more channels.
MAX_DEPTH = 16
# Numbers of the image of these planes.
MAX_JOINED = 1 << 25
# More copies of an edge are added up by a sum of their own.
MAX_COPIES = 4
# Channels from which the transposition that makes them last pays.
MANY_CHANNELS = 16
# Longer rows are not gathered from.
MAX_ROW = 64


def _each(values: Sequence[Any], rank: int) -> list[Any]:
    """Parameters of a window, one for each spatial axis."""
    return list(values) * rank if len(values) == 1 else list(values)


def _strides(stride: Sequence[Any], kernel: Sequence[Any]) -> list[Any]:
    """Of a pool: without a stride windows lie side by side."""
    return _each(stride, len(kernel)) if stride else list(kernel)


def _taps(kernel: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """The places in a window."""
    return product(*map(range, kernel))


def _spread(x: Tensor, step: int, axis: int) -> Tensor:
    """``step - 1`` zeros between any two elements along ``axis``."""
    if step == 1:
        return x
    after = [0, 0] * (x.ndim - 1 - axis)
    wide = ATEN.constant_pad_nd(x.unsqueeze(axis + 1), [*after, 0, step - 1]).flatten(
        axis, axis + 1
    )
    return wide.narrow(axis, 0, wide.shape[axis] - (step - 1))


def _edges(pairs: Sequence[tuple[Any, Any]]) -> list[Any]:
    """What ``constant_pad_nd`` takes: pairs of low and high, the last axis first."""
    return [v for pair in reversed(pairs) for v in pair]


# -- convolution ---------------------------------------------------------------------------------
def convolution_backward(
    grad: Tensor,
    x: Tensor,
    weight: Tensor,
    bias_sizes: Sequence[int] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """By the input, the weight and the bias; None where ``output_mask`` does not ask for it."""
    rank = x.ndim - 2
    window = (_each(stride, rank), _each(padding, rank), _each(dilation, rank))
    to_input = to_weight = to_bias = None
    one, other = (grad, x) if transposed else (x, grad)
    # Those of planes, and of lines by their weight, have forms of their own that are as fast.
    by_rows = rank == 3 or (rank == 1 and transposed)
    if by_rows and _side_by_side(weight, window, groups):
        to_other, made = _gradients_beside(one, other, weight)
        to_input = to_other if output_mask[0] and transposed else None
        to_weight = made if output_mask[1] else None
    if output_mask[0] and to_input is None:
        to_input = _input_gradient(grad, x, weight, window, transposed, groups)
    if output_mask[1] and to_weight is None:
        to_weight = _weight_gradient(one, other, weight, window, groups)
    if output_mask[2]:
        to_bias = grad.sum([0, *range(2, grad.ndim)])
    return to_input, to_weight, to_bias


# Passes look for this gradient as one operation (transform/cpu/weight_gradients.py); torch has no
# operator for it that is not taken apart.
_LIBRARY = torch.library.Library("relax2xla_gradients", "DEF")
_LIBRARY.define(
    "weight(Tensor x, Tensor grad, Tensor weight, int[] stride, int[] padding, int[] dilation, "
    "int groups) -> Tensor"
)


def _weight(
    x: Tensor,
    grad: Tensor,
    weight: Tensor,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    groups: int,
) -> Tensor:
    window = (stride, padding, dilation, False, [0, 0], groups, [False, True, False])
    return ATEN.convolution_backward(grad, x, weight, None, *window)[1]


_LIBRARY.impl("weight", _weight, "CompositeExplicitAutograd")


def _is_one(x: Tensor, grad: Tensor, weight: Tensor, dilation: Sequence[int], groups: int) -> bool:
    """Whether the gradient of the weight is that operator: over planes, of known sizes."""
    if x.ndim != 4 or not _is_known(x, grad):
        return False
    if groups == x.shape[1] == grad.shape[1] > 1:
        return all(d == 1 for d in dilation) and 1 < math.prod(weight.shape[2:]) <= MAX_TAPS
    return True


def _is_known(x: Tensor, grad: Tensor) -> bool:
    """Whether an image is of float32, and its sizes and those of its gradient are known."""
    sizes = (s for v in (x, grad) for s in v.shape)
    return x.dtype == torch.float32 and all(isinstance(s, int) for s in sizes)


def _input_gradient(
    grad: Tensor,
    x: Tensor,
    weight: Tensor,
    window: Sequence[Any],
    transposed: bool,
    groups: int,
) -> Tensor:
    """A convolution of the other direction.

    For groups, and for three axes without steps, one of the same direction, of the gradient with
    zeros in between, by the kernel turned around.
    """
    rank, zeros = x.ndim - 2, [0] * (x.ndim - 2)
    stride, padding, dilation = window
    if transposed:
        return ATEN.convolution(grad, weight, None, *window, False, zeros, groups)
    spans = [d * (k - 1) for d, k in zip(dilation, weight.shape[2:], strict=True)]
    missing = [
        size - ((many - 1) * s - 2 * p + span + 1)
        for size, many, s, p, span in zip(
            x.shape[2:], grad.shape[2:], stride, padding, spans, strict=True
        )
    ]
    if groups == 1 and (rank != 3 or max(stride) > 1):
        return ATEN.convolution(grad, weight, None, *window, True, missing, groups)
    for axis, step in enumerate(stride, 2):
        grad = _spread(grad, step, axis)
    # As padding what it can: XLA runs that faster than a pad of its own.
    around = [max(g - p, 0) for g, p in zip(spans, padding, strict=True)]
    edges = [
        (g - p - a, g - p + m - a)
        for g, p, m, a in zip(spans, padding, missing, around, strict=True)
    ]
    grad = ATEN.constant_pad_nd(grad, _edges(edges))
    turned = weight.flip(list(range(2, 2 + rank)))
    if groups > 1:
        turned = turned.unflatten(0, (groups, -1)).transpose(1, 2).flatten(0, 1)
    else:
        turned = turned.transpose(0, 1)
    window = ([1] * rank, around, dilation, False, zeros, groups)
    return ATEN.convolution(grad, turned, None, *window)


def _weight_gradient(
    x: Tensor, grad: Tensor, weight: Tensor, window: Sequence[Any], groups: int
) -> Tensor:
    """As one operator, of planes, or in others."""
    if _is_one(x, grad, weight, window[2], groups):
        one: Any = torch.ops.relax2xla_gradients.weight
        return one(x, grad, weight, *window, groups)
    made = _in_depth(x, grad, weight, window, groups) if x.ndim == 5 else None
    return _by_places(x, grad, weight, window, groups) if made is None else made


def _in_depth(
    x: Tensor, grad: Tensor, weight: Tensor, window: Sequence[Any], groups: int
) -> Tensor | None:
    """Of the weight of volumes as that of planes, with the channels of all slices under the window.

    Or as that of each slice of the window where those beside each other would take much memory.
    None where that of the planes is no operator of its own, or where a window is deep.
    """
    (many, each, depth, *plane), slices = weight.shape, grad.shape[2]
    if not _is_known(x, grad) or depth > MAX_DEPTH:
        return None
    (step, *strides), (ahead, *padding), (apart, *dilation) = window
    around = (strides, padding, dilation)
    # Channels last, as a function in C++ reads them, and as what the forward graph saves lies.
    x, grad = (v.movedim(1, -1) for v in (x, grad))
    x = ATEN.constant_pad_nd(x, _edges([(ahead, ahead), *[(0, 0)] * 3]))
    under = [_under(x, (at,), (slices,), (step,), (apart,), 1) for at in range(depth)]
    grad = _as_planes(grad)
    if sum(v.numel() for v in under) > MAX_JOINED:
        pairs = zip(map(_as_planes, under), weight.unbind(2), strict=True)
        made = [_weight_gradient(v, grad, tap, around, groups) for v, tap in pairs]
        return torch.stack(made, 2)
    # Each group has its channels of one slice behind those of the slice before.
    rows = torch.cat([v.unflatten(-1, (groups, each)) for v in under], -1).flatten(-2)
    rows = _as_planes(rows)
    joined = weight.transpose(1, 2).reshape(many, depth * each, *plane)
    if not _is_one(rows, grad, joined, dilation, groups):
        return None
    made = _weight_gradient(rows, grad, joined, around, groups)
    return made.unflatten(1, (depth, each)).transpose(1, 2)


def _as_planes(x: Tensor) -> Tensor:
    """The slices of volumes with channels last, in the batch of planes with channels first."""
    return x.flatten(0, 1).movedim(-1, 1)


def _by_places(
    x: Tensor, grad: Tensor, weight: Tensor, window: Sequence[Any], groups: int
) -> Tensor:
    """A sum of products for each place in the window; or a convolution, in which batch and channels
    change places, and so do stride and dilation. Of the two that which XLA runs faster on the CPU.
    """
    rank, kernel, (stride, padding, dilation) = x.ndim - 2, weight.shape[2:], window
    n, spatial, steps = x.shape[0], x.shape[2:], grad.shape[2:]
    depthwise, taps = groups == x.shape[1] == grad.shape[1] > 1, math.prod(kernel)
    if taps == 1 or ((rank == 3 or depthwise) and taps <= MAX_TAPS):
        x = ATEN.constant_pad_nd(x, _edges([(p, p) for p in padding]))
        if depthwise and all(step == 1 for step in stride):
            x, grad = (v.movedim(1, -1) for v in (x, grad))
            at = [_under(x, tap, steps, stride, dilation, 1) for tap in _taps(kernel)]
            sums = [_products_by_channel(v, grad, MAX_TERMS // taps) for v in at]
            return torch.stack(sums, -1).reshape(weight.shape)
        sums = [
            _products(_under(x, tap, steps, stride, dilation, 2), grad, groups)
            for tap in _taps(kernel)
        ]
        return torch.stack(sums, -1).reshape(weight.shape)
    x = x.reshape(n, groups, -1, *spatial).permute(2, 1, 0, *range(3, 3 + rank))
    x = x.reshape(x.shape[0], groups * n, *spatial)
    grad = grad.transpose(0, 1)
    made = ATEN.convolution(
        x, grad.reshape(-1, n, *steps), None, dilation, padding, stride, False, [0] * rank, groups
    ).transpose(0, 1)
    # Rows of the input that the last step did not reach.
    for axis in range(2, 2 + rank):
        made = made.narrow(axis, 0, weight.shape[axis])
    return made


def _side_by_side(weight: Tensor, window: Sequence[Any], groups: int) -> bool:
    """Whether windows of several places neither overlap nor have places in between."""
    kernel, (stride, padding, dilation) = list(weight.shape[2:]), window
    plain = not any(padding) and all(d == 1 for d in dilation) and groups == 1
    return plain and list(stride) == kernel and math.prod(kernel) > 1


def _gradients_beside(one: Tensor, other: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Of a convolution whose windows lie side by side in ``one``: by ``other`` and by the weight.

    They are products of a matrix with a row for what lies in each window: with channels last where
    these are many, which moves vectors.
    """
    (many, channels, *kernel), steps = weight.shape, other.shape[2:]
    for axis, (k, n) in enumerate(zip(kernel, steps, strict=True)):
        at = 2 + 2 * axis
        one = one.narrow(at, 0, n * k).unflatten(at, (n, k))
    places, taps = range(2, one.ndim, 2), range(3, one.ndim, 2)
    last = channels >= MANY_CHANNELS
    rows = one.permute(0, *places, *((*taps, 1) if last else (1, *taps)))
    rows = rows.reshape(one.shape[0] * math.prod(steps), channels * math.prod(kernel))
    matrix = (weight.movedim(1, -1) if last else weight).flatten(1)
    to_other = (matrix @ rows.t()).reshape(many, other.shape[0], *steps).transpose(0, 1)
    made = other.transpose(0, 1).flatten(1) @ rows
    if last:
        return to_other, made.reshape(many, *kernel, channels).movedim(-1, 1)
    return to_other, made.reshape(weight.shape)


def _under(
    x: Tensor,
    tap: Sequence[int],
    steps: Sequence[Any],
    stride: Sequence[int],
    dilation: Sequence[int],
    first: int,
) -> Tensor:
    """What lies under one place of the window, at each of its steps over the padded ``x``.

    ``first``: of the axes of space.
    """
    for axis, (at, many, s, d) in enumerate(zip(tap, steps, stride, dilation, strict=True), first):
        x = ATEN.slice.Tensor(x, axis, at * d, at * d + (many - 1) * s + 1, s)
    return x


def _products(x: Tensor, grad: Tensor, groups: int) -> Tensor:
    """Of each channel of ``grad`` with each of ``x`` in its group, summed over batch and space."""
    if groups == x.shape[1] == grad.shape[1]:
        return (x * grad).sum([0, *range(2, x.ndim)])
    x, grad = (v.unflatten(1, (groups, -1)).flatten(3) for v in (x, grad))
    return torch.einsum("ngop,ngcp->goc", grad, x)


def _products_by_channel(x: Tensor, grad: Tensor, most: int) -> Tensor:
    """Of each channel, the last axis, summed over batch and space.

    The products of images, and of bands of their rows, ``most`` at the most, are added up before
    the sum: it then reads what stays in the fastest cache.
    """
    images = _parts(x.shape[0], most)
    bands = _parts(x.shape[1], most // images)
    shares = (
        [part for image in v.chunk(images) for part in image.chunk(bands, 1)] for v in (x, grad)
    )
    added = functools.reduce(operator.add, (a * b for a, b in zip(*shares, strict=True)))
    return added.sum(list(range(x.ndim - 1)))


def _parts(size: Any, most: int) -> int:
    """Into how many equal parts an axis goes, ``most`` at the most; 1 for an unknown size."""
    if not isinstance(size, int):
        return 1
    return max((n for n in range(1, min(size, most) + 1) if size % n == 0), default=1)


# -- pooling -------------------------------------------------------------------------------------
def max_pool_backward(
    rank: int,
    grad: Tensor,
    x: Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
    indices: Tensor,
) -> Tensor:
    """Of a pool with windows at regular places, over ``rank`` axes: for each place in the window
    the gradients of windows whose largest element it is.
    """
    kernel = _each(kernel_size, rank)
    if math.prod(kernel) > MAX_TAPS:
        return adaptive_max_pool_backward(rank, grad, x, indices)
    strides = _strides(stride, kernel)
    pads, apart = _each(padding, rank), _each(dilation, rank)
    spatial, steps = x.shape[-rank:], grad.shape[-rank:]
    first = torch.zeros([], dtype=torch.int64, device=x.device)
    for size, many, s in zip(spatial, steps, strides, strict=True):
        first = (first * size).unsqueeze(-1) + torch.arange(many, device=x.device) * s
    made = torch.zeros_like(x)
    for tap in _taps(kernel):
        offsets = [i * d - p for i, d, p in zip(tap, apart, pads, strict=True)]
        offset: Any = 0
        for size, at in zip(spatial, offsets, strict=True):
            offset = offset * size + at
        part = torch.where(indices == first + offset, grad, 0)
        for axis, step in enumerate(strides, x.ndim - rank):
            part = _spread(part, step, axis)
        edges = [
            (low, size - ((many - 1) * s + 1) - low)
            for size, many, s, low in zip(spatial, steps, strides, offsets, strict=True)
        ]
        made = made + ATEN.constant_pad_nd(part, _edges(edges))
    return made


def adaptive_max_pool_backward(rank: int, grad: Tensor, x: Tensor, indices: Tensor) -> Tensor:
    """Of a pool that says where its elements came from: each gradient goes there."""
    lead = x.shape[:-rank]
    count = 1
    for size in x.shape[-rank:]:
        count = count * size
    flat = torch.zeros([*lead, count], dtype=x.dtype, device=x.device)
    made = flat.scatter_add(-1, indices.flatten(-rank), grad.flatten(-rank))
    return made.reshape(x.shape)


def avg_pool_backward(
    rank: int,
    grad: Tensor,
    x: Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Tensor:
    """Of a pool with windows at regular places, over ``rank`` axes: a transposed convolution with
    equal weights of what each window gives to an element.
    """
    kernel, pads = _each(kernel_size, rank), _each(padding, rank)
    strides = _strides(stride, kernel)
    lead, spatial, steps = x.shape[:-rank], x.shape[-rank:], grad.shape[-rank:]
    window = tuple(zip(spatial, steps, kernel, strides, pads, strict=True))
    divisor = divisor_override or math.prod(kernel)
    if divisor_override is None and (ceil_mode or (any(pads) and not count_include_pad)):
        # Windows at the edges have fewer elements.
        divisor = 1
        counts = torch.ones([], dtype=grad.dtype, device=grad.device)
        for size, many, k, s, p in window:
            start = torch.arange(many, device=grad.device) * s - p
            end = (start + k).clamp(max=size + p)
            if not count_include_pad:
                start, end = start.clamp(min=0), end.clamp(max=size)
            counts = counts.unsqueeze(-1) * (end - start).to(grad.dtype)
        grad = grad / counts
    weight = torch.full([1, 1, *kernel], 1 / divisor, dtype=grad.dtype, device=grad.device)
    flat, zero, one = grad.reshape(-1, 1, *steps), [0] * rank, [1] * rank
    made = ATEN.convolution(flat, weight, None, strides, zero, one, True, zero, 1)
    # Without the padding, and with what no window reaches.
    edges = [(-p, size + p - ((many - 1) * s + k)) for size, many, k, s, p in window]
    made = ATEN.constant_pad_nd(made, _edges(edges))
    return made.reshape(*lead, *spatial)


def adaptive_avg_pool_backward(rank: int, grad: Tensor, x: Tensor) -> Tensor:
    """Of a pool that shares each of the last ``rank`` axes out: each element has its share of the
    windows that cover it, one axis after the other.
    """
    for axis in range(-1, -rank - 1, -1):
        size, count = x.shape[axis], grad.shape[axis]
        window = torch.arange(count, device=x.device).unsqueeze(-1)
        start, end = window * size // count, -(-(window + 1) * size // count)
        at = torch.arange(size, device=x.device)
        covers = (at >= start) & (at < end)
        share = grad.movedim(axis, -1).unsqueeze(-1) / (end - start).to(grad.dtype)
        grad = torch.where(covers, share, 0).sum(-2).movedim(-1, axis)
    return grad


# -- padding -------------------------------------------------------------------------------------
def _replicated(grad: Tensor, axis: int, size: int, low: int, high: int) -> Tensor:
    """The elements at the edges have the gradients of their copies too."""
    if max(low, high) > MAX_COPIES:
        if size == 1:
            return grad.sum(axis, keepdim=True)
        first = grad.narrow(axis, 0, low + 1).sum(axis, keepdim=True)
        last = grad.narrow(axis, low + size - 1, high + 1).sum(axis, keepdim=True)
        return torch.cat([first, grad.narrow(axis, low + 1, size - 2), last], axis)
    made = grad.narrow(axis, low, size)
    at = _places(grad, axis, size)
    for many, start, edge in ((low, 0, 0), (high, low + size, size - 1)):
        if many:
            copies = [grad.narrow(axis, start + i, 1) for i in range(many)]
            made = made + torch.where(at == edge, functools.reduce(operator.add, copies), 0)
    return made


def _reflected(grad: Tensor, axis: int, size: int, low: int, high: int) -> Tensor:
    """What is mirrored has the gradients of its images too."""
    made = grad.narrow(axis, low, size)
    if not low and not high:
        return made
    short = isinstance(size, int) and (axis < grad.ndim - 1 or size <= MAX_ROW)
    if short and low + high < size - 1:  # nothing has two images
        at = _places(grad, axis, size)
        image = torch.where(at <= low, low - at, 2 * (size - 1) + low - at)
        mirrored = (at > 0) & (at < size - 1) & (image < grad.shape[axis])
        images = grad.index_select(axis, torch.where(mirrored, image, 0).flatten())
        return made + torch.where(mirrored, images, 0)
    for many, start, before in ((low, 0, 1), (high, low + size, size - 1 - high)):
        if many:
            mirrored = grad.narrow(axis, start, many).flip(axis)
            edges = [0, 0] * (grad.ndim - 1 - axis) + [before, size - before - many]
            made = made + ATEN.constant_pad_nd(mirrored, edges)
    return made


def _places(x: Tensor, axis: int, size: int) -> Tensor:
    """The places along an axis of ``size``, to be compared beside ``x``."""
    at = torch.arange(size, dtype=torch.int32, device=x.device)
    return at.reshape([-1] + [1] * (x.ndim - 1 - axis))


Along = Callable[[Tensor, int, int, int, int], Tensor]


def pad_backward(along: Along, grad: Tensor, x: Tensor, padding: Sequence[int]) -> Tensor:
    """Of a pad that copies, one axis after the other.

    ``along``: of the gradient along an axis, the size of the input there, and how much was added
    below and above.
    """
    # The last axis last: its form for long rows would be computed once more for each gather.
    for i in reversed(range(len(padding) // 2)):
        low, high = padding[2 * i : 2 * i + 2]
        # What negative padding has cut off gets 0.
        cut = [0] * (2 * i) + [max(-low, 0), max(-high, 0)]
        grad = ATEN.constant_pad_nd(grad, cut)
        grad = along(grad, x.ndim - 1 - i, x.shape[-1 - i], max(low, 0), max(high, 0))
    return grad


PADS: dict[str, Along] = {"replication": _replicated, "reflection": _reflected}
