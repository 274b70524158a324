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
from relax2xla.tir import Dim
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
    """How often each variable is read, those that leave the function once more."""
    counts: Counter[Expr] = Counter()
    for b in bindings_of(func.body):
        if isinstance(b, VarBinding | MatchCast):
            counts.update(n for n in post_order(b.value) if isinstance(n, Var))
    counts.update(n for n in post_order(func.body.body) if isinstance(n, Var))
    return counts


def _folded(var: Var, bn: Call, convs: dict[Expr, Call], uses: Counter[Expr]) -> list[Binding]:
    """Bindings that make ``var`` the result of ``bn`` (a tuple of three) without it."""
    attrs = call_attrs(bn)
    data, gamma, beta, mean, variance = bn.args
    info, moments = data.struct_info, variance.struct_info
    if not isinstance(info, TensorStructInfo) or not isinstance(moments, TensorStructInfo):
        return [VarBinding(var, bn)]
    if attrs["training"] or info.ndim < 0 or moments.dims is None:
        return [VarBinding(var, bn)]
    fold = _Bindings(var)
    channels = moments.dims[0]
    eps = const(attrs["epsilon"], moments.dtype)
    scale: Expr = fold("rsqrt", "relax.rsqrt", fold("eps", "relax.add", variance, eps))
    if attrs["scale"]:
        scale = fold("scale", "relax.multiply", gamma, scale)
    shift: Expr = fold("mean", "relax.multiply", mean, scale)
    if attrs["center"]:
        shift = fold("shift", "relax.subtract", beta, shift)
    else:
        shift = fold("shift", "relax.negative", shift)
    axis = attrs["axis"] % info.ndim
    conv = convs.get(data)
    if conv is not None and uses[data] == 1 and _channel_axis(conv) == axis:
        layout: str = call_attrs(conv)["kernel_layout"]
        along = fold.along(scale, channels, layout.index("O"), len(layout))
        weight = fold("weight", "relax.multiply", conv.args[1], along)
        again = Call(conv.op, [conv.args[0], weight], conv.attrs, span=conv.span)
        scaled: Expr = fold.bind("conv", again)
    else:
        along = fold.along(scale, channels, axis, info.ndim)
        scaled = fold("scaled", "relax.multiply", data, along)
    result = fold("out", "relax.add", scaled, fold.along(shift, channels, axis, info.ndim))
    return [*fold.made, VarBinding(var, Tuple([result, mean, variance]), var.span)]


class _Bindings:
    """Bindings that take the place of one variable's, in order."""

    def __init__(self, var: Var) -> None:
        self.var = var
        self.made: list[Binding] = []

    def bind(self, name: str, value: Call) -> Var:
        """A new variable for ``value``, named after the one it works for."""
        made = type(self.var)(f"{self.var.name_hint}_{name}", value.struct_info, self.var.span)
        self.made.append(VarBinding(made, value, self.var.span))
        return made

    def __call__(self, name: str, operator: str, *operands: Expr) -> Var:
        return self.bind(name, Op.get(operator)(*operands))

    def along(self, vector: Expr, size: Dim, axis: int, ndim: int) -> Var:
        """A vector as a tensor of rank ``ndim`` along ``axis``."""
        shape: list[Dim] = [1] * ndim
        shape[axis] = size
        return self.bind("vec", Op.get("relax.reshape")(vector, shape))


def _channel_axis(conv: Call) -> int:
    attrs = call_attrs(conv)
    return (attrs.get("out_layout") or attrs["data_layout"]).index("C")
