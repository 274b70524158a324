"""UseWinograd: 3x3 convolutions by Winograd's minimal filtering, their kernels transformed at load.

From 64 channels on it takes 0.45 to 0.8 of the time of XLA:CPU's convolution, where products are
Eigen's and run near the limit of the core (:mod:`relax2xla.kernels.winograd`).
"""

from __future__ import annotations

from relax2xla.dpl.make import is_op, wildcard
from relax2xla.dpl.rules import Match, Rule, rewrite
from relax2xla.ir import Call, Expr, Function, IRModule, TensorStructInfo
from relax2xla.ir.op import call_attrs
from relax2xla.kernels.winograd import is_faster
from relax2xla.op.nn.winograd import winograd_conv2d, winograd_weight
from relax2xla.transform.core import FunctionPass, PassContext, register
from relax2xla.transform.layout.propagation import dims_of

MIN_CHANNELS = 32


@register(opt_level=2, platform="cpu", one_device=True)
class UseWinograd(FunctionPass):
    """Rewrite ``nn.conv2d`` with 3x3 windows of stride 1 in NHWC and HWIO, float32.

    The kernel must be known before the call: a constant, or computed from constants alone. Results
    differ from the convolution's by rounding, about 1e-6 of the largest value. ``measured``: only
    where a table of measurements says that it is faster on this processor
    (``relax2xla/kernels/winograd.py``). ``at_load``: whether kernels are transformed once, not at
    each call.
    """

    def __init__(self, measured: bool = False, at_load: bool = True) -> None:
        self.measured, self.at_load = measured, at_load

    def transform_function(self, func: Function, mod: IRModule, context: PassContext) -> Function:
        def transformed(m: Match) -> Expr | None:
            if not _suits(m.call) or not m.from_constants(m[_weight]):
                return None
            if self.measured and not _is_faster(m.call, self.at_load):
                return None
            weight = m.bind("weight", winograd_weight(m[_weight]))
            return winograd_conv2d(m[_image], weight, padding=call_attrs(m.call)["padding"])

        rule = Rule(is_op("relax.nn.conv2d")(_image, _weight), transformed)
        return rewrite(func, [rule], inside=False)[0]


_image, _weight = wildcard(), wildcard()


def _is_faster(call: Call, at_load: bool) -> bool:
    result, weight = dims_of(call), dims_of(call.args[1])
    if result is None or weight is None:
        return False
    batch, height, width, _ = result
    inner, outer = weight[2:]
    # A batch that is not known is one picture: more of them gain as much each.
    sizes = (height, width, inner, outer, batch if isinstance(batch, int) else 1)
    known = [s for s in sizes if isinstance(s, int)]
    return len(known) == len(sizes) and is_faster(*known, at_load=at_load)


def _suits(call: Call) -> bool:
    attrs = call_attrs(call)
    layouts = (attrs["data_layout"], attrs["kernel_layout"], attrs["out_layout"] or "NHWC")
    info, result = call.args[0].struct_info_, call.struct_info_
    weight = dims_of(call.args[1])
    if layouts != ("NHWC", "HWIO", "NHWC") or weight is None or tuple(weight[:2]) != (3, 3):
        return False
    if not isinstance(info, TensorStructInfo) or not isinstance(result, TensorStructInfo):
        return False
    plain = all(v == 1 for v in (*attrs["strides"], *attrs["dilation"], attrs["groups"]))
    wide = all(isinstance(d, int) and d >= MIN_CHANNELS for d in weight[2:])
    return plain and wide and info.dtype == result.dtype == "float32"
