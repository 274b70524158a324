"""ConvolvePlanes: convolutions of volumes, and depthwise ones of lines, by convolutions of planes.

XLA:CPU is fast for two axes of space alone. A 3x3x3 on 64 channels of 8x28x28 takes 26 ms as it is
and 7 ms as three of 3x3, one for each place in the depth of the window; a transposed 4x4x4 with
steps of 2 takes 988 ms and 4 ms. A depthwise window of 3 on 64 channels of 4,000 takes 7.5 ms, and
0.2 ms as one of planes of height 1, which ``ExpandDepthwise`` takes apart.
"""

from __future__ import annotations

from relax2xla.ir import Call, Expr, Function, IRModule, const
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


@register(opt_level=2, stage="static", platform="cpu")
class ConvolvePlanes(FunctionPass):
    """Rewrite ``nn.conv3d``, ``nn.conv3d_transpose`` and depthwise ``nn.conv1d``, static shapes.

    In the layouts NCDHW and NCW. Exact up to the order of the additions.
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
    if c.layouts != ("NCDHW", "OIDHW", "NCDHW") or c.weight[2] > MAX_DEPTH:
        return None
    (batch, channels, _, *space), (out, _, *window) = c.image, c.weight
    front, top, left, back, bottom, right = c.attrs["padding"]
    (step, *strides), (apart, *dilation) = c.attrs["strides"], c.attrs["dilation"]
    depth = c.result[2]
    image: Expr = c.bind("last", op("permute_dims", c.call.args[0], [0, 2, 3, 4, 1]))
    if front or back:
        image = c.bind("pad", op("nn.pad", image, [0, 0, front, back, *[0] * 6]))
    kernels = c.bind("kernels", op("permute_dims", c.call.args[1], [2, 3, 4, 1, 0]))
    # What has no extent in the plane is a product of matrices.
    ahead = [*strides, *window[1:]] == [1] * 4 and not any((top, left, bottom, right))
    product = ahead and c.attrs["groups"] == 1
    total: Call | None = None
    for at in range(window[0]):
        first = at * apart
        under = slice_of(image, [1], [first], [first + (depth - 1) * step + 1], [step])
        planes = c.bind("planes", op("reshape", c.bind("under", under), (-1, *space, channels)))
        tap = c.bind("tap", slice_of(kernels, [0], [at], [at + 1], [1]))
        if product:
            made = op("matmul", planes, c.bind("kernel", op("reshape", tap, (channels, out))))
        else:
            made = op(
                "nn.conv2d",
                planes,
                c.bind("kernel", op("squeeze", tap, [0])),
                strides=strides,
                padding=(top, left, bottom, right),
                dilation=dilation,
                groups=c.attrs["groups"],
                data_layout="NHWC",
                kernel_layout="HWIO",
            )
        total = _added(c, total, made)
    assert total is not None
    shaped = op("reshape", c.bind("sum", total), (batch, depth, *c.result[3:], out))
    return op("permute_dims", c.bind("volume", shaped), [0, 4, 1, 2, 3])


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
