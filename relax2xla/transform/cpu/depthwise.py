"""ExpandDepthwise: depthwise convolutions as sums of shifted products.

XLA:CPU has no fast road for ``groups == channels``: a 3x3 on 96 channels of 112x112 takes 33 ms as
a convolution and 0.6 ms as nine multiplications and additions, which fuse into one loop. Channels
must be last, so that the innermost loop runs over them.
"""

from __future__ import annotations

from itertools import product

from relax2xla.ir import Call, Function, IRModule
from relax2xla.transform.core import FunctionPass, PassContext, register
from relax2xla.transform.cpu.windows import Windows, expand_convolutions, op


@register(opt_level=2, stage="static", platform="cpu")
class ExpandDepthwise(FunctionPass):
    """Expand ``nn.conv2d`` with ``groups`` equal to the channels, in NHWC and HWIO, static shapes.

    Exact up to the order of the additions.
    """

    def transform_function(self, func: Function, mod: IRModule, context: PassContext) -> Function:
        return expand_convolutions(func, _is_depthwise, _expanded)


def _is_depthwise(w: Windows) -> bool:
    height, width, per_group, channels = w.weight
    return w.attrs["groups"] == channels == w.image[3] and per_group == 1 < height * width


def _expanded(w: Windows) -> Call:
    height, width, _, channels = w.weight
    total: Call | None = None
    for i, j in product(range(height), range(width)):
        shifted, tap = w.shifted(i, j), w.bind("tap", w.taps((i, i + 1), (j, j + 1)))
        factor = w.bind("factor", op("reshape", tap, (1, 1, 1, channels)))
        product_ = op("multiply", shifted, factor)
        if total is None:
            total = product_
        else:
            total = op("add", w.bind("sum", total), w.bind("product", product_))
    assert total is not None
    return total
