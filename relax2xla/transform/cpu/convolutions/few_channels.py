"""ExpandFewChannels: convolutions of images with few channels as sums of outer products.

XLA:CPU gives convolutions to YNNPACK, which is slow where the inner dimension (taps of the window
by channels of the image) and the channels of the result are both small, above all with steps: the
3x3 on three channels that a network begins with takes 0.47 ms for 16 channels of 112x112 and 0.63
ms for 32 on one core with AVX-512. As a sum of 27 products, a number of the image by a row of the
weight each, it is one loop over the channels of the result of 0.14 and 0.25 ms.
"""

from __future__ import annotations

import math
from itertools import product
from typing import Final

from relax2xla import processor
from relax2xla.ir import Expr, Function, IRModule
from relax2xla.transform.core import Pass, PassContext, register
from relax2xla.transform.cpu.apart import Apart, each_apart
from relax2xla.transform.cpu.convolutions.windows import Windows, expand_convolutions, op

# The products of a sum, and the channels of a result, up to which it is faster: with steps of 2 and
# more, and without.
_PRODUCTS: Final = 27
_CHANNELS_WITH_STEPS: Final = 32
_CHANNELS: Final = 16
# Smaller convolutions take microseconds in any form.
_LEAST: Final = 50_000


@register(opt_level=2, stage="static", platform="cpu")
class ExpandFewChannels(Pass):
    """Expand ``nn.conv2d`` of few channels to few channels, in NHWC and HWIO, static shapes.

    On processors with AVX-512, where it was measured. Exact up to the order of the additions.
    """

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        if "avx512f" not in processor.features():
            return mod
        return each_apart(mod, "few_channels", _expand)


def _expand(func: Function, apart: Apart) -> Function:
    # What follows, activations and padding, takes longer with so many products in its loop.
    return expand_convolutions(func, _suits, lambda w: w.apart(apart, _expanded))


def _suits(w: Windows) -> bool:
    height, width, channels, made = w.weight
    steps = min(w.attrs["strides"]) > 1
    if w.attrs["groups"] != 1 or made > (_CHANNELS_WITH_STEPS if steps else _CHANNELS):
        return False
    products = height * width * channels
    return products <= _PRODUCTS and products * math.prod(w.result) >= _LEAST


def _expanded(w: Windows) -> Expr:
    height, width, channels, made = w.weight
    total: Expr | None = None
    for i, j, at in product(range(height), range(width), range(channels)):
        pixels = w.shifted(i, j, at)
        row = op("reshape", w.bind("row", w.taps((i, i + 1), (j, j + 1), at)), (1, 1, 1, made))
        outer = op("multiply", pixels, w.bind("row", row))
        if total is None:
            total = outer
        else:
            total = op("add", w.bind("sum", total), w.bind("outer", outer))
    assert total is not None
    return total
