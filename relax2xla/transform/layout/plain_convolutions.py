"""PlainConvolutions: transposed convolutions with steps of 1 as convolutions.

They are the gradients of convolutions by their images, and each is the convolution by the window
turned around, its channels and results exchanged: so what is done for convolutions, their layouts
and their forms, is done for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from relax2xla import op as R
from relax2xla.dpl.make import is_op, wildcard
from relax2xla.dpl.rules import Match, rewrite, rule
from relax2xla.ir import Expr, Function, IRModule
from relax2xla.ir.op import call_attrs
from relax2xla.transform.core import FunctionPass, PassContext, register
from relax2xla.transform.cpu.native_sites import tensor_of

_x, _w = wildcard(), wildcard()
# The attributes of those that are.
_PLAIN: Final[Mapping[str, Any]] = {
    "strides": (1, 1),
    "output_padding": (0, 0),
    "data_layout": "NCHW",
    "kernel_layout": "IOHW",
    "out_layout": "NCHW",
}


@register(opt_level=2, platform="cpu")
class PlainConvolutions(FunctionPass):
    """Write ``nn.conv2d_transpose`` with steps of 1 as ``nn.conv2d``, in NCHW and IOHW.

    Where the window is known and what is cut off at the borders is less than it; not of planes, of
    which each group has one. Exact up to the order of the additions.
    """

    def transform_function(self, func: Function, mod: IRModule, context: PassContext) -> Function:
        return rewrite(func, [_plain], inside=False)[0]


@rule(is_op("relax.nn.conv2d_transpose")(_x, _w))
def _plain(m: Match) -> Expr | None:
    attrs = call_attrs(m.call)
    if any(attrs[name] != value for name, value in _PLAIN.items()):
        return None
    given = tensor_of(m[_w])
    if given is None:
        return None
    channels, results, *window = given.shape
    groups = attrs["groups"]
    if groups > 1 and min(channels // groups, results) == 1:
        return None  # of planes, which has forms of its own
    dilation, cut = attrs["dilation"], attrs["padding"]
    around = [d * (k - 1) - c for d, k, c in zip(dilation * 2, window * 2, cut, strict=True)]
    if min(around) < 0:
        return None
    weight: Expr = m[_w]
    if groups > 1:
        apart = R.reshape(weight, (groups, channels // groups, results, *window))
        turned = R.permute_dims(apart, (0, 2, 1, 3, 4))
        weight = R.reshape(turned, (groups * results, channels // groups, *window))
    else:
        weight = R.permute_dims(weight, (1, 0, 2, 3))
    for axis, size in zip((2, 3), window, strict=True):
        weight = R.flip(weight, axis) if size > 1 else weight
    return R.nn.conv2d(
        m[_x],
        weight,
        padding=around,
        dilation=dilation,
        groups=groups,
        out_dtype=attrs["out_dtype"],
    )
