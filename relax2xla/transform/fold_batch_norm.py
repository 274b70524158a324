"""FoldBatchNorm: batch normalisation of inference becomes a scale and a shift of weights.

After a convolution the scale goes into the convolution's weights. All of it is arithmetic on
weights alone, which ``lift_weights`` computes once at load::

    batch_norm(conv(x, w)) = conv(x, w * s) + (beta - mean * s),  s = gamma / sqrt(var + eps)
"""

from __future__ import annotations

from collections import Counter

from relax2xla.ir import (
    Binding,
    Call,
    Expr,
    Function,
    IRModule,
    MatchCast,
    Op,
    SeqExpr,
    TensorStructInfo,
    Tuple,
    Var,
    VarBinding,
    const,
)
from relax2xla.ir.op import call_attrs, is_op
from relax2xla.ir.rewrite import bindings_of, post_order
from relax2xla.transform._pass import Pass, PassContext, PassInfo

CONVOLUTIONS = ("relax.nn.conv1d", "relax.nn.conv2d", "relax.nn.conv3d")


class FoldBatchNorm(Pass):
    """Fold ``nn.batch_norm`` with ``training=False`` into the convolution before it, or into one
    multiplication and addition. Results change by rounding only.
    """

    def __init__(self) -> None:
        super().__init__(PassInfo("FoldBatchNorm", opt_level=1), self._run)

    def _run(self, mod: IRModule, context: PassContext) -> IRModule:
        new = {g: _fold(f) if isinstance(f, Function) else f for g, f in mod.items()}
        return mod.replace(new)


def _fold(func: Function) -> Function:
    if not any(
        isinstance(b, VarBinding) and is_op(b.value, "relax.nn.batch_norm")
        for b in bindings_of(func.body)
    ):
        return func
    uses = _use_counts(func)
    convs: dict[Expr, Call] = {}
    blocks = []
    for block in func.body.blocks:
        out: list[Binding] = []
        for b in block.bindings:
            value = b.value if isinstance(b, VarBinding) else None
            if isinstance(value, Call) and is_op(value, "relax.nn.batch_norm"):
                out.extend(_folded(b.var, value, convs, uses))
                continue
            if isinstance(value, Call) and any(is_op(value, c) for c in CONVOLUTIONS):
                convs[b.var] = value
            out.append(b)
        blocks.append(type(block)(out, block.span))
    return func.replace(body=SeqExpr(blocks, func.body.body, func.body.span))


def _use_counts(func: Function) -> Counter[Expr]:
    counts: Counter[Expr] = Counter()
    for b in bindings_of(func.body):
        if isinstance(b, VarBinding | MatchCast):
            counts.update(n for n in _operands(b.value) if isinstance(n, Var))
    counts.update(n for n in _operands(func.body.body) if isinstance(n, Var))
    return counts


def _operands(value: Expr) -> list[Expr]:
    return list(post_order(value))


def _folded(var: Var, bn: Call, convs: dict[Expr, Call], uses: Counter[Expr]) -> list[Binding]:
    """Bindings that make ``var`` the result of ``bn`` (a tuple of three) without it."""
    attrs = call_attrs(bn)
    data, gamma, beta, mean, variance = bn.args
    info = data.struct_info
    if attrs["training"] or not isinstance(info, TensorStructInfo) or info.ndim < 0:
        return [VarBinding(var, bn)]
    out: list[Binding] = []

    def bind(name: str, value: Call) -> Var:
        made = type(var)(f"{var.name_hint}_{name}", value.struct_info, var.span)
        out.append(VarBinding(made, value, var.span))
        return made

    def op(name: str, *operands: Expr, **kw: object) -> Call:
        return Op.get(name)(*operands, **kw)

    dtype = variance.struct_info.dtype  # type: ignore[attr-defined]
    eps = const(attrs["epsilon"], dtype)
    scale: Expr = bind("rsqrt", op("relax.rsqrt", bind("eps", op("relax.add", variance, eps))))
    if attrs["scale"]:
        scale = bind("scale", op("relax.multiply", gamma, scale))
    shift: Expr = bind("mean", op("relax.multiply", mean, scale))
    if attrs["center"]:
        shift = bind("shift", op("relax.subtract", beta, shift))
    else:
        shift = bind("shift", op("relax.negative", shift))
    axis = attrs["axis"] % info.ndim
    conv = convs.get(data)
    if conv is not None and uses[data] == 1 and _channel_axis(conv) == axis:
        layout = call_attrs(conv)["kernel_layout"]
        weight = conv.args[1]
        scale = _along(op, bind, scale, layout.index("O"), len(layout))
        weight = bind("weight", op("relax.multiply", weight, scale))
        scaled: Expr = bind(
            "conv", Call(conv.op, [conv.args[0], weight], conv.attrs, span=conv.span)
        )
    else:
        scaled = bind(
            "scaled", op("relax.multiply", data, _along(op, bind, scale, axis, info.ndim))
        )
    result = bind("out", op("relax.add", scaled, _along(op, bind, shift, axis, info.ndim)))
    out.append(VarBinding(var, Tuple([result, mean, variance]), var.span))
    return out


def _channel_axis(conv: Call) -> int:
    attrs = call_attrs(conv)
    return (attrs.get("out_layout") or attrs["data_layout"]).index("C")


def _along(op: object, bind: object, value: Expr, axis: int, ndim: int) -> Expr:
    """A vector as a tensor of rank ``ndim`` along ``axis``."""
    shape = [1] * ndim
    shape[axis] = value.struct_info.dims[0]  # type: ignore[attr-defined]
    return bind("vec", op("relax.reshape", value, shape))  # type: ignore[operator]
