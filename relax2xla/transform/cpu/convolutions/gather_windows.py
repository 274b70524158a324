"""GatherWindows: convolutions of images smaller than their window, as products of matrices.

Where a window has more pixels than the image (3x3 on 2x2, at the end of a ResNet whose input was
64x64), XLA:CPU takes the image for the window and runs a loop without vectors: 77 ms for 512
channels, where gathering the windows and one product of matrices take 3 ms. Rows and columns of the
window that only ever lie on padding are left out.
"""

from __future__ import annotations

import math

from relax2xla.ir import Call, Function, IRModule
from relax2xla.transform.core import FunctionPass, PassContext, register
from relax2xla.transform.cpu.convolutions.windows import Windows, expand_convolutions, op

# Smaller matrices are not worth the copies.
MIN_WEIGHT = 1 << 14


@register(opt_level=2, stage="static", platform="cpu")
class GatherWindows(FunctionPass):
    """Expand ``nn.conv2d`` with a window of more pixels than the image, in NHWC and HWIO.

    For static shapes and ``groups=1``. Exact up to the order of the additions.
    """

    def transform_function(self, func: Function, mod: IRModule, context: PassContext) -> Function:
        return expand_convolutions(func, _suits, _gathered)


def _suits(w: Windows) -> bool:
    height, width, channels, _ = w.weight
    small = w.image[1] * w.image[2] < height * width
    ungrouped = w.attrs["groups"] == 1 and channels == w.image[3]
    return small and ungrouped and math.prod(w.weight) >= MIN_WEIGHT and all(_useful(w))


def _useful(w: Windows) -> list[range]:
    """By axis, the taps from the first to the last under which there is ever a pixel."""
    found: list[range] = []
    for axis in (0, 1):
        stride, step = w.attrs["strides"][axis], w.attrs["dilation"][axis]
        begin, size, outputs = w.attrs["padding"][axis], w.image[1 + axis], w.result[1 + axis]
        taps = [
            tap
            for tap in range(w.weight[axis])
            if any(0 <= at * stride + tap * step - begin < size for at in range(outputs))
        ]
        found.append(range(taps[0], taps[-1] + 1) if taps else range(0))
    return found


def _gathered(w: Windows) -> Call:
    rows, columns = _useful(w)
    shifted = [w.shifted(i, j) for i in rows for j in columns]
    pixels = w.bind("pixels", op("concat", shifted, axis=3)) if shifted[1:] else shifted[0]
    taps = w.call.args[1]
    if (len(rows), len(columns)) != (w.weight[0], w.weight[1]):
        taps = w.bind("taps", w.taps((rows[0], rows[-1] + 1), (columns[0], columns[-1] + 1)))
    *places, channels = w.result
    inner = len(shifted) * w.weight[2]
    left = w.bind("windows", op("reshape", pixels, (math.prod(places), inner)))
    right = w.bind("weight", op("reshape", taps, (inner, channels)))
    return op("reshape", w.bind("product", op("matmul", left, right)), w.result)
