"""PlainConvolutions: transposed convolutions as convolutions with steps of 1, or as products.

They are the gradients of convolutions by their images, and layers of decoders. With steps of 1 each
is the convolution by the window turned around, its channels and results exchanged: so what is done
for convolutions, their layouts and their forms, is done for them. With steps it is several, or one
product (:mod:`relax2xla.transform.layout.transposed`).

Of those with steps XLA:CPU has a form for planes without groups, which takes most of its time for
the weight where there are few pixels. One core with AVX-512, steps of 2:

* 512 channels, weights given: 3x3 on 8 images of 4x4 10.3 ms and 5.1;
* a decoder's 4x4, 256 channels to 128, 32x32: 8.2 and 6.5; 512 to 256, 8x8: 8.1 and 1.7;
* 2x2, 64 channels to 32, 56x56: 1.06 and 0.79; volumes of 8x14x14 by 2x2x2: 1.3 and 0.85;
* 3x3, 64 channels in 4 groups, 28x28: 1.54 and 0.34.
"""

from __future__ import annotations

import math
from typing import Final

from relax2xla import op as R
from relax2xla.dpl.make import is_op, wildcard
from relax2xla.dpl.rules import Match, rewrite, rule
from relax2xla.ir import Call, Expr, Function, IRModule
from relax2xla.ir.op import call_attrs
from relax2xla.op.shared.spatial import SPATIAL
from relax2xla.transform.core import FunctionPass, PassContext, register
from relax2xla.transform.core.values import tensor_of
from relax2xla.transform.layout.propagation import dims_of
from relax2xla.transform.layout.transposed import (
    CONVOLUTIONS,
    Transposed,
    transposed,
    turned_around,
)

_x, _w = wildcard(), wildcard()
# More convolutions, and more blocks that are added, make programs that take long to compile.
_MOST: Final = 16
# Channels of the result up to which blocks are faster than phases, each a convolution: 0.9 of the
# time where there are 16, 0.64 where there are 8; 1.2 where there are 32.
_FEW: Final = 16
# Pixels for each channel from which phases are faster where weights are given, and turned in each
# call: 1.16 of the time of blocks where there are 1.5, 0.92 where there are 6, 0.6 where there are
# 50. And up to which blocks are, with steps of 1: 0.85 where there are 0.1, 1.2 where there are 1.
_MANY_PIXELS: Final = 5
_FEW_PIXELS: Final = 0.25


@register(opt_level=2, platform="cpu")
class PlainConvolutions(FunctionPass):
    """Write transposed convolutions as convolutions with steps of 1, in NCHW and IOHW or alike.

    Those with steps of 1, where the window is known and what is cut off at the borders is less than
    it. Those with steps where all sizes but the batch are known, without dilation. Not of planes,
    of which each group has one. Exact up to the order of the additions.
    """

    def transform_function(self, func: Function, mod: IRModule, context: PassContext) -> Function:
        return rewrite(func, [_planes, _lines, _volumes], inside=False)[0]


@rule(is_op("relax.nn.conv2d_transpose")(_x, _w))
def _planes(m: Match) -> Expr | None:
    return _of_planes(m, m.call)


@rule(is_op("relax.nn.conv1d_transpose")(_x, _w))
def _lines(m: Match) -> Expr | None:
    """As planes of one row."""
    attrs = call_attrs(m.call)
    image, weight, result = (dims_of(v) for v in (m[_x], m[_w], m.call))
    layouts = (attrs["data_layout"], attrs["kernel_layout"], attrs["out_layout"])
    if image is None or weight is None or result is None or layouts != ("NCW", "IOW", "NCW"):
        return None
    (low, high), (step,), (more,), (apart,) = (
        attrs[name] for name in ("padding", "strides", "output_padding", "dilation")
    )
    call = R.nn.conv2d_transpose(
        m.bind("plane", R.reshape(m[_x], (*image[:2], 1, image[2]))),
        m.bind("window", R.reshape(m[_w], (*weight[:2], 1, weight[2]))),
        strides=(1, step),
        padding=(0, low, 0, high),
        output_padding=(0, more),
        dilation=(1, apart),
        groups=attrs["groups"],
        out_dtype=attrs["out_dtype"],
    )
    made = _of_planes(m, call)
    return None if made is None else R.reshape(made, result)


@rule(is_op("relax.nn.conv3d_transpose")(_x, _w))
def _volumes(m: Match) -> Expr | None:
    """Those whose blocks do not overlap as such, others as phases, each a convolution."""
    found = transposed(m.call, m.bind)
    if found is None or max(found.strides) == 1:
        return _plain(m.call)
    if found.groups == 1 and max(found.blocks) == 1:
        return found.by_blocks()
    return found.by_phases() if math.prod(found.strides) <= _MOST else None


def _of_planes(m: Match, call: Call) -> Expr | None:
    weight, groups = tensor_of(call.args[1]), call_attrs(call)["groups"]
    if weight is None:
        return None
    if groups > 1 and min(weight.shape[0] // groups, weight.shape[1]) == 1:
        return None  # of planes, which has forms of its own
    found = transposed(call, m.bind)
    made = None if found is None else _measured(found, m.from_constants(m[_w]))
    return made or _plain(call)


def _measured(t: Transposed, constant: bool) -> Expr | None:
    """The form that takes less time than others; None where it is none of these."""
    overlap, one = max(t.blocks) > 1, t.groups == 1 and math.prod(t.blocks) <= _MOST
    if max(t.strides) == 1:
        few = not constant and t.pixels <= _FEW_PIXELS * t.channels
        return t.by_blocks() if few and overlap and one else None
    many = constant or t.pixels >= _MANY_PIXELS * t.channels
    several = t.groups > 1 or (overlap and many and t.results > _FEW)
    made = t.by_phases() if several and math.prod(t.strides) <= _MOST else None
    return made or (t.by_blocks() if one else None)


def _plain(call: Call) -> Expr | None:
    """As one convolution, with steps of 1 and where what is cut off is less than the window."""
    attrs, weight = call_attrs(call), tensor_of(call.args[1])
    if weight is None:
        return None
    rank = len(weight.shape) - 2
    layout = tuple(attrs[name] for name in ("data_layout", "kernel_layout", "out_layout"))
    data = f"NC{SPATIAL[rank]}"
    if layout != (data, f"IO{SPATIAL[rank]}", data):
        return None
    if max(*attrs["strides"]) > 1 or any(attrs["output_padding"]):
        return None
    dilation, cut = attrs["dilation"], attrs["padding"]
    window = weight.shape[2:] * 2
    around = [d * (k - 1) - c for d, k, c in zip(dilation * 2, window, cut, strict=True)]
    if min(around) < 0:
        return None
    return CONVOLUTIONS[rank](
        call.args[0],
        turned_around(call.args[1], attrs["groups"]),
        padding=around,
        dilation=dilation,
        groups=attrs["groups"],
        out_dtype=attrs["out_dtype"],
    )
