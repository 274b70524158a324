"""KernelsAsGiven: kernels of convolutions that come with each call are read as they lie.

XLA:CPU wants kernels in HWIO. The default pipeline transposes those of torch and ONNX once, at
load, but a function of JAX gets its weights with each call, and transposing a large kernel takes
longer than gathering the windows of a small image. One core with AVX-512, 3x3 windows, times beside
those of the convolution with its transposition: 7x7 with 256 channels 0.60, 512 0.65, 1024 0.26;
14x14 to 7x7 with 512 0.62. On 10x10 with 512 it gains no more than 0.14, with 256 channels less.
"""

from __future__ import annotations

import math

from relax2xla.dpl.make import is_op, wildcard
from relax2xla.dpl.rules import Match, rewrite, rule
from relax2xla.ir import Expr, Function, IRModule
from relax2xla.ir.op import call_attrs
from relax2xla.transform.core import FunctionPass, PassContext, register
from relax2xla.transform.cpu.convolutions.windows import (
    CONV,
    LAYOUTS,
    MAX_TAPS,
    Windows,
    is_known,
    op,
)

# A window's kernel is worth it from so many elements on, and for this many channels a pixel.
MIN_WEIGHT = 1 << 14
CHANNELS_A_PIXEL = 4
# From OIHW to HWIO.
_TRANSPOSED = (2, 3, 1, 0)


@register(opt_level=2, platform="cpu")
class KernelsAsGiven(FunctionPass):
    """Gather the windows of ``nn.conv2d`` whose kernel is transposed from OIHW, and whose result
    has few pixels; the product reads the kernel as it lies.

    For static shapes, in NHWC. It is for weights that come with each call. Exact up to the order
    of the additions.
    """

    def transform_function(self, func: Function, mod: IRModule, context: PassContext) -> Function:
        return rewrite(func, [_gathered], inside=False)[0]


_kernel = wildcard()
_transposed = is_op("relax.permute_dims")(_kernel)


@rule(is_op(CONV)(wildcard(), _transposed))
def _gathered(m: Match) -> Expr | None:
    axes = call_attrs(m.called(_transposed))["axes"]
    if tuple(axes or ()) != _TRANSPOSED or not is_known(m.call):
        return None
    w = Windows(m.call, m.var, m.bind)
    if w.layouts != LAYOUTS or not _suits(w):
        return None
    height, width, inner, outer = w.weight
    shape = (*w.result[:-1], inner, 1)
    taps = [
        m.bind("tap", op("reshape", w.shifted(i, j), shape))
        for i in range(height)
        for j in range(width)
    ]
    # The taps come last, as they do in the kernel.
    pixels, length = math.prod(w.result[:-1]), inner * height * width
    gathered = m.bind("windows", op("concat", taps, axis=4))
    left = m.bind("windows", op("reshape", gathered, (pixels, length)))
    right = m.bind("weight", op("reshape", m[_kernel], (outer, length)))
    product = m.bind("product", op("einsum", (left, right), subscripts="pi,oi->po"))
    return op("reshape", product, w.result)


def _suits(w: Windows) -> bool:
    height, width, inner, outer = w.weight
    if w.attrs["groups"] != 1 or not 1 < height * width <= MAX_TAPS:
        return False
    few = CHANNELS_A_PIXEL * math.prod(w.result[:-1]) <= outer
    return few and height * width * inner * outer >= MIN_WEIGHT
