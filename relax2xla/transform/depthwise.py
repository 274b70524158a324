"""ExpandDepthwise: depthwise convolutions as sums of shifted products.

XLA:CPU has no fast road for ``groups == channels``: a 3x3 on 96 channels of 112x112 takes 33 ms as
a convolution and 0.6 ms as nine multiplications and additions, which fuse into one loop. Channels
must be last, so that the innermost loop runs over them.
"""

from __future__ import annotations

from itertools import product

from relax2xla.ir import (
    Binding,
    BindingBlock,
    Call,
    Expr,
    Function,
    IRModule,
    Op,
    SeqExpr,
    TensorStructInfo,
    Var,
    VarBinding,
)
from relax2xla.ir.op import call_attrs, is_op
from relax2xla.ir.rewrite import bindings_of
from relax2xla.transform._pass import Pass, PassContext, PassInfo

# Larger windows make programs that take long to compile.
MAX_TAPS = 49
CONV = "relax.nn.conv2d"


class ExpandDepthwise(Pass):
    """Expand ``nn.conv2d`` with ``groups`` equal to the channels, in NHWC and HWIO, static shapes.

    Exact up to the order of the additions.
    """

    def __init__(self) -> None:
        super().__init__(PassInfo("ExpandDepthwise", opt_level=2), self._run)

    def _run(self, mod: IRModule, context: PassContext) -> IRModule:
        return mod.replace(
            {g: expand_depthwise(f) if isinstance(f, Function) else f for g, f in mod.items()}
        )


def expand_depthwise(func: Function) -> Function:
    """``func`` with depthwise convolutions expanded; itself where it has none."""
    if not any(
        isinstance(b, VarBinding) and _is_depthwise(b.value) for b in bindings_of(func.body)
    ):
        return func
    blocks: list[BindingBlock] = []
    for block in func.body.blocks:
        out: list[Binding] = []
        for b in block.bindings:
            if isinstance(b, VarBinding) and isinstance(b.value, Call) and _is_depthwise(b.value):
                out += _expanded(b.var, b.value)
            else:
                out.append(b)
        blocks.append(type(block)(out, block.span))
    return func.replace(body=SeqExpr(blocks, func.body.body, func.body.span))


def _is_depthwise(value: Expr) -> bool:
    if not isinstance(value, Call) or not is_op(value, CONV):
        return False
    attrs = call_attrs(value)
    data, weight, result = (v.struct_info_ for v in (*value.args, value))
    if not isinstance(data, TensorStructInfo) or not isinstance(weight, TensorStructInfo):
        return False
    if data.dims is None or weight.dims is None or not isinstance(result, TensorStructInfo):
        return False
    static = all(isinstance(d, int) for d in (*data.dims, *weight.dims))
    layouts = (attrs["data_layout"], attrs["kernel_layout"], attrs["out_layout"] or "NHWC")
    if not static or layouts != ("NHWC", "HWIO", "NHWC") or result.dtype != data.dtype:
        return False
    height, width, per_group, channels = weight.dims
    taps = height * width
    depthwise = attrs["groups"] == channels == data.dims[3] and per_group == 1
    # Half-precision products would be summed in half precision.
    wide = data.dtype in ("float32", "float64")
    return depthwise and wide and isinstance(taps, int) and 1 < taps <= MAX_TAPS


def _expanded(var: Var, call: Call) -> list[Binding]:
    attrs = call_attrs(call)
    x, weight = call.args
    result = call.struct_info
    info = weight.struct_info
    assert isinstance(result, TensorStructInfo)
    assert isinstance(info, TensorStructInfo)
    _, rows, columns, channels = static_dims(result)
    height, width, _, _ = static_dims(info)
    (stride_h, stride_w), (step_h, step_w) = attrs["strides"], attrs["dilation"]
    top, left, bottom, right = attrs["padding"]
    out: list[Binding] = []

    def bind(name: str, value: Call) -> Var:
        made = type(var)(f"{var.name_hint}_{name}", value.struct_info, var.span)
        out.append(VarBinding(made, value, var.span))
        return made

    def op(name: str, *args: object, **kw: object) -> Call:
        return Op.get(f"relax.{name}")(*args, **kw)

    if any((top, left, bottom, right)):
        x = bind("pad", op("nn.pad", x, [0, 0, top, bottom, left, right, 0, 0]))
    total: Call | None = None
    for i, j in product(range(height), range(width)):
        begin = [i * step_h, j * step_w]
        end = [begin[0] + (rows - 1) * stride_h + 1, begin[1] + (columns - 1) * stride_w + 1]
        shifted = bind(
            "shifted",
            op("strided_slice", x, axes=[1, 2], begin=begin, end=end, strides=[stride_h, stride_w]),
        )
        tap = bind(
            "tap",
            op(
                "strided_slice",
                weight,
                axes=[0, 1],
                begin=[i, j],
                end=[i + 1, j + 1],
                strides=[1, 1],
            ),
        )
        factor = bind("factor", op("reshape", tap, (1, 1, 1, channels)))
        product_ = op("multiply", shifted, factor)
        if total is None:
            total = product_
        else:
            total = op("add", bind("sum", total), bind("product", product_))
    assert total is not None
    return [*out, VarBinding(var, total, var.span)]


def static_dims(info: TensorStructInfo) -> list[int]:
    """The dimensions that are known, which here are all of them."""
    return [d for d in info.dims or () if isinstance(d, int)]
