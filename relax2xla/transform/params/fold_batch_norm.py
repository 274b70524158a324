"""FoldBatchNorm: batch normalisation of inference becomes a scale and a shift of weights.

After a convolution the scale goes into the convolution's weights. All of it is arithmetic on
weights alone, which ``lift_weights`` computes once at load::

    batch_norm(conv(x, w)) = conv(x, w * s) + (beta - mean * s),  s = gamma / sqrt(var + eps)
"""

from __future__ import annotations

from collections import Counter

from relax2xla.ir import (
    Binding,
    BindingBlock,
    Call,
    Expr,
    Function,
    IRModule,
    Op,
    SeqExpr,
    ShapeExpr,
    StructInfo,
    TensorStructInfo,
    Tuple,
    Var,
    VarBinding,
    const,
)
from relax2xla.ir.op import call_attrs, is_op
from relax2xla.ir.rewrite import bindings_of, post_order_deep
from relax2xla.ir.struct_info import dims_of
from relax2xla.ir.traits import Convolution
from relax2xla.tir import Dim
from relax2xla.transform.core import FunctionPass, PassContext, register


@register(opt_level=1)
class FoldBatchNorm(FunctionPass):
    """Fold ``nn.batch_norm`` with ``training=False`` into the convolution before it, or into one
    multiplication and addition. Results change by rounding only.
    """

    def transform_function(self, func: Function, mod: IRModule, context: PassContext) -> Function:
        return _fold(func)


def _fold(func: Function) -> Function:
    if not any(isinstance(b, VarBinding) and _foldable(b.value) for b in bindings_of(func.body)):
        return func
    uses = _use_counts(func)
    convs: dict[Expr, Call] = {}
    merged: set[Expr] = set()
    made: list[tuple[BindingBlock, list[Binding]]] = []
    for block in func.body.blocks:
        out: list[Binding] = []
        for b in block.bindings:
            value = b.value if isinstance(b, VarBinding) else None
            if isinstance(value, Call) and _foldable(value):
                data = value.args[0]
                conv = convs.get(data) if uses[data] == 1 else None
                if conv is not None and _channel_axis(conv) == _axis(value):
                    merged.add(data)
                else:
                    conv = None
                out.extend(_folded(b.var, value, conv))
                continue
            if isinstance(value, Call) and _is_convolution(value):
                convs[b.var] = value
            out.append(b)
        made.append((block, out))
    blocks = [
        type(block)([b for b in out if b.var not in merged], block.span) for block, out in made
    ]
    return func.replace(body=SeqExpr(blocks, func.body.body, func.body.span))


def _foldable(value: Expr) -> bool:
    """Whether ``value`` is a batch norm of inference of which enough is known."""
    if not isinstance(value, Call) or not is_op(value, "relax.nn.batch_norm"):
        return False
    info, moments = value.args[0].struct_info, value.args[4].struct_info
    known = isinstance(info, TensorStructInfo) and info.ndim >= 0
    return known and dims_of(moments) is not None and not call_attrs(value)["training"]


def _use_counts(func: Function) -> Counter[Expr]:
    """How many values read each variable, those that hold it deep inside too, and the result."""
    roots = [*(b.value for b in bindings_of(func.body)), func.body.body]
    return Counter(n for r in roots for n in post_order_deep(r) if isinstance(n, Var))


def _is_convolution(call: Call) -> bool:
    found = call.op.trait(Convolution) if isinstance(call.op, Op) else None
    return found is not None and not found.transposed


def _folded(var: Var, bn: Call, conv: Call | None) -> list[Binding]:
    """Bindings that make ``var`` the result of ``bn`` (a tuple of three) without it.

    ``conv``: the convolution before it, whose place they take, too.
    """
    attrs = call_attrs(bn)
    data, gamma, beta, mean, variance = bn.args
    info, moments = data.struct_info, variance.struct_info
    assert isinstance(info, TensorStructInfo)
    assert isinstance(moments, TensorStructInfo)
    alike = all(v.struct_info == moments for v in (gamma, beta, mean))
    vector = moments if alike else None
    axis = _axis(bn)
    fold = _Bindings(var)
    eps = const(attrs["epsilon"], moments.dtype)
    scale: Expr = fold(
        "rsqrt", "relax.rsqrt", vector, fold("eps", "relax.add", vector, variance, eps)
    )
    if attrs["scale"]:
        scale = fold("scale", "relax.multiply", vector, gamma, scale)
    shift: Expr = fold("mean", "relax.multiply", vector, mean, scale)
    if attrs["center"]:
        shift = fold("shift", "relax.subtract", vector, beta, shift)
    else:
        shift = fold("shift", "relax.negative", vector, shift)
    if conv is not None:
        layout: str = call_attrs(conv)["kernel_layout"]
        outputs = layout.index("O")
        kernel = conv.args[1]
        same = _scaled(kernel.struct_info, moments, outputs)
        along = fold.along(scale, outputs, len(layout))
        weight = fold("weight", "relax.multiply", same, kernel, along)
        args, known = [conv.args[0], weight], None if same is None else info
        scaled: Expr = fold.bind(
            "conv", Call(conv.op, args, conv.attrs, span=conv.span, struct_info=known)
        )
    else:
        same = _scaled(info, moments, axis)
        scaled = fold("scaled", "relax.multiply", same, data, fold.along(scale, axis, info.ndim))
    same = _scaled(scaled.struct_info, moments, axis)
    result = fold("out", "relax.add", same, scaled, fold.along(shift, axis, info.ndim))
    return [*fold.made, VarBinding(var, Tuple([result, mean, variance]), var.span)]


def _scaled(info: StructInfo, vector: TensorStructInfo, axis: int) -> StructInfo | None:
    """Struct info of a tensor times ``vector`` along ``axis``, where it is plainly the tensor's."""
    if not isinstance(info, TensorStructInfo) or info.dims is None or vector.dims is None:
        return None
    fits = (info.dims[axis], info.dtype) == (vector.dims[0], vector.dtype)
    return info if fits and info.vdevice == vector.vdevice else None


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

    def __call__(self, name: str, operator: str, info: StructInfo | None, *operands: Expr) -> Var:
        """A new variable for a call of an operator, whose struct info may be known."""
        return self.bind(name, Call(Op.get(operator), operands, struct_info=info))

    def along(self, vector: Expr, axis: int, ndim: int) -> Var:
        """A vector as a tensor of rank ``ndim`` along ``axis``."""
        info = vector.struct_info
        assert isinstance(info, TensorStructInfo)
        assert info.dims is not None
        shape: list[Dim] = [1] * ndim
        shape[axis] = info.dims[0]
        known = TensorStructInfo.make(tuple(shape), info.dtype, info.vdevice)
        return self("vec", "relax.reshape", known, vector, ShapeExpr(shape))


def _axis(bn: Call) -> int:
    info = bn.args[0].struct_info
    assert isinstance(info, TensorStructInfo)
    return call_attrs(bn)["axis"] % info.ndim


def _channel_axis(conv: Call) -> int:
    attrs = call_attrs(conv)
    return (attrs.get("out_layout") or attrs["data_layout"]).index("C")
