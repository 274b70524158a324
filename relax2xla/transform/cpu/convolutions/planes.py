"""ConvolvePlanes: convolutions of volumes, and depthwise ones of lines, by convolutions of planes.

XLA:CPU is fast for two axes of space alone. A 3x3x3 on 64 channels of 8x28x28 takes 26 ms as it is
and 7 ms as three of 3x3, one for each place in the depth of the window. One of 3x3, with the
channels of all slices under the window side by side, is what calls of functions in C++ are made of:
2 volumes of 8x14x14 take 2.4 ms and not 6.2. A transposed 4x4x4 with steps of 2 takes 988 ms and 4
ms. A depthwise window of 3 on 64 channels of 4,000 takes 7.5 ms, and 0.2 ms as one of planes of
height 1, which ``ExpandDepthwise`` takes apart.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from relax2xla.ir import Call, Expr, Function, IRModule, Tuple, Var, const
from relax2xla.transform.core import FunctionPass, PassContext, register
from relax2xla.transform.cpu.convolutions.windows import (
    MAX_TAPS,
    Convolution,
    op,
    rewrite_convolutions,
    slice_of,
)

# Deeper windows make programs that take long to compile.
MAX_DEPTH = 16
# Numbers of an image that has as many channels as the window is deep times as many.
MAX_JOINED = 1 << 24
_VOLUMES = (("NCDHW", "OIDHW", "NCDHW"), ("NDHWC", "DHWIO", "NDHWC"))
# Of a kernel in OIDHW, as DHWIO has them.
_KERNEL = [2, 3, 4, 1, 0]


@register(opt_level=2, stage="static", platform="cpu")
class ConvolvePlanes(FunctionPass):
    """Rewrite ``nn.conv3d``, ``nn.conv3d_transpose`` and depthwise ``nn.conv1d``, static shapes.

    In the layouts NCDHW, NDHWC and NCW. Exact up to the order of the additions.
    """

    def transform_function(self, func: Function, mod: IRModule, context: PassContext) -> Function:
        return rewrite_convolutions(func, Convolution, RULES)


def _line(c: Convolution) -> Call | None:
    (batch, channels, length), (_, per_group, window) = c.image, c.weight
    depthwise = c.attrs["groups"] == channels == c.result[1] and per_group == 1
    if c.layouts != ("NCW", "OIW", "NCW") or not depthwise or not 1 < window <= MAX_TAPS:
        return None
    image, weight = c.call.args
    last = c.bind("last", op("permute_dims", image, [0, 2, 1]))
    plane = c.bind("plane", op("reshape", last, (batch, 1, length, channels)))
    kernel = c.bind("kernel", op("permute_dims", weight, [2, 1, 0]))
    low, high = c.attrs["padding"]
    made = op(
        "nn.conv2d",
        plane,
        c.bind("kernels", op("reshape", kernel, (1, window, 1, channels))),
        strides=(1, *c.attrs["strides"]),
        padding=(0, low, 0, high),
        dilation=(1, *c.attrs["dilation"]),
        groups=channels,
        data_layout="NHWC",
        kernel_layout="HWIO",
    )
    lines = op("reshape", c.bind("convolved", made), (batch, c.result[2], channels))
    return op("permute_dims", c.bind("lines", lines), [0, 2, 1])


def _volume(c: Convolution) -> Call | None:
    """Slices of the image along the depth stand in the batch, with channels last."""
    if c.layouts not in _VOLUMES:
        return None
    last = c.layouts == _VOLUMES[1]
    image: Expr = c.call.args[0]
    kernel: Expr = c.call.args[1]
    if not last:
        image = c.bind("last", op("permute_dims", image, [0, 2, 3, 4, 1]))
        kernel = c.bind("kernels", op("permute_dims", kernel, _KERNEL))
    made = _in_depth(c, image, kernel)
    if made is None:
        return None
    shaped = op("reshape", c.bind("planes", made), _last(c.result, last))
    return shaped if last else op("permute_dims", c.bind("volume", shaped), [0, 4, 1, 2, 3])


def _last(dims: Sequence[int], last: bool) -> list[int]:
    """The sizes of an image with its channels last."""
    batch, *rest = dims
    return [batch, *rest] if last else [batch, *rest[1:], rest[0]]


def _in_depth(c: Convolution, image: Expr, kernel: Expr) -> Call | None:
    """The convolution of an image in NDHWC by a kernel in DHWIO, as planes or lines of these."""
    last = c.layouts == _VOLUMES[1]
    batch, deep, *space, channels = _last(c.image, last)
    depth, *window, each, out = c.weight if last else [c.weight[a] for a in _KERNEL]
    front, top, left, back, bottom, right = c.attrs["padding"]
    (step, *strides), (apart, *dilation) = c.attrs["strides"], c.attrs["dilation"]
    slices, groups = _last(c.result, last)[1], c.attrs["groups"]
    around = (top, left, bottom, right)

    def plane(x: Expr, k: Expr, **attrs: Any) -> Call:
        given = {"strides": strides, "padding": around, "dilation": dilation, "groups": groups}
        layouts = {"data_layout": "NHWC", "kernel_layout": "HWIO"}
        return op("nn.conv2d", x, k, **{**given, **layouts, **attrs})

    if [*window, *strides] == [1] * 4 and not any(around) and depth > 1:
        # What has no extent in the plane has one of a plane of depth by pixels.
        flat = c.bind("flat", op("reshape", image, (batch, deep, math.prod(space), channels)))
        return plane(
            flat,
            c.bind("kernel", op("reshape", kernel, (depth, 1, each, out))),
            strides=(step, 1),
            padding=(front, 0, back, 0),
            dilation=(apart, 1),
        )
    if depth > MAX_DEPTH:
        return None
    if front or back:
        image = c.bind("pad", op("nn.pad", image, [0, 0, front, back, *[0] * 6]))

    def under(at: int, *shape: int) -> Var:
        """The slices under a place in the depth of the window."""
        first, end = at * apart, at * apart + (slices - 1) * step + 1
        made = c.bind("under", slice_of(image, [1], [first], [end], [step]))
        return c.bind("slices", op("reshape", made, shape))

    planes = (batch * slices, *space)
    joined = depth * channels * math.prod(planes)
    if depth == 1 or (each > 1 and joined <= MAX_JOINED):
        if depth == 1:
            rows = under(0, *planes, channels)
        else:
            # Each group has its channels of one slice behind those of the slice before.
            parts = [under(at, batch, slices, *space, groups, each) for at in range(depth)]
            rows = c.bind("joined", op("concat", Tuple(parts), axis=-1))
            rows = c.bind("rows", op("reshape", rows, (*planes, depth * channels)))
            kernel = c.bind("turned", op("permute_dims", kernel, [1, 2, 0, 3, 4]))
        return plane(rows, c.bind("kernel", op("reshape", kernel, (*window, depth * each, out))))
    total: Call | None = None
    for at in range(depth):
        tap = c.bind("tap", slice_of(kernel, [0], [at], [at + 1], [1]))
        made = plane(under(at, *planes, channels), c.bind("kernel", op("squeeze", tap, [0])))
        total = _added(c, total, made)
    return total


def _transposed(c: Convolution) -> Call | None:
    """The slices that each place in the depth of the window gives, put where they belong."""
    if c.layouts != ("NCDHW", "IODHW", "NCDHW") or c.weight[2] > MAX_DEPTH:
        return None
    batch, channels, many, *space = c.image
    front, top, left, _, bottom, right = c.attrs["padding"]
    (step, *strides), (apart, *dilation) = c.attrs["strides"], c.attrs["dilation"]
    depth = c.result[2]
    sliced = c.bind("sliced", op("permute_dims", c.call.args[0], [0, 2, 1, 3, 4]))
    planes = c.bind("planes", op("reshape", sliced, (batch * many, channels, *space)))
    zero = const(0, c.dtype)
    total: Call | None = None
    for at in range(c.weight[2]):
        tap = c.bind("tap", slice_of(c.call.args[1], [2], [at], [at + 1], [1]))
        made = op(
            "nn.conv2d_transpose",
            planes,
            c.bind("kernel", op("squeeze", tap, [2])),
            strides=strides,
            padding=(top, left, bottom, right),
            output_padding=c.attrs["output_padding"][1:],
            dilation=dilation,
            groups=c.attrs["groups"],
        )
        shape = (batch, many, c.result[1], *c.result[3:])
        part = c.bind("part", op("reshape", c.bind("convolved", made), shape))
        low = at * apart - front
        placed = op(
            "stablehlo.pad",
            part,
            zero,
            edge_padding_low=(0, low, 0, 0, 0),
            edge_padding_high=(0, depth - low - ((many - 1) * step + 1), 0, 0, 0),
            interior_padding=(0, step - 1, 0, 0, 0),
        )
        total = _added(c, total, placed)
    assert total is not None
    return op("permute_dims", c.bind("sum", total), [0, 2, 1, 3, 4])


def _added(c: Convolution, total: Call | None, more: Call) -> Call:
    return more if total is None else op("add", c.bind("sum", total), c.bind("more", more))


RULES = {
    "relax.nn.conv1d": _line,
    "relax.nn.conv3d": _volume,
    "relax.nn.conv3d_transpose": _transposed,
}
