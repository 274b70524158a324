"""FoldBatchNorm: batch normalisation of inference becomes a scale and a shift of weights.

After a convolution with constant weights the scale goes into these. All of it is arithmetic on
weights alone, which ``lift_weights`` computes once at load::

    batch_norm(conv(x, w)) = conv(x, w * s) + (beta - mean * s),  s = gamma / sqrt(var + eps)
    batch_norm(conv(x, w) + b) = conv(x, w * s) + (beta - (mean - b) * s)
"""

from __future__ import annotations

from relax2xla.analysis.unused import remove_all_unused
from relax2xla.dpl.make import is_op, is_tuple_get_item, wildcard
from relax2xla.dpl.rules import Match, rewrite, rule
from relax2xla.ir import (
    Call,
    Expr,
    Function,
    IRModule,
    Op,
    ShapeExpr,
    StructInfo,
    TensorStructInfo,
    Tuple,
    Var,
    const,
)
from relax2xla.ir.op import call_attrs
from relax2xla.ir.op import is_op as is_call
from relax2xla.ir.struct_info import dims_of
from relax2xla.ir.traits import Convolution
from relax2xla.op.shared.layouts import is_packed
from relax2xla.tir import Dim
from relax2xla.transform.core import FunctionPass, PassContext, register


@register(opt_level=1)
class FoldBatchNorm(FunctionPass):
    """Fold ``nn.batch_norm`` with ``training=False`` into the convolution before it, or into one
    multiplication and addition. Results change by rounding only.

    ``into_weights``: where there is a convolution with constant weights; else a multiplication of
    its result, which XLA joins with what follows, is all. That is for weights that come with each
    call, as arguments always do.
    """

    def __init__(self, into_weights: bool = True) -> None:
        self.into_weights = into_weights

    def transform_function(self, func: Function, mod: IRModule, context: PassContext) -> Function:
        return rewrite(func, [_folded if self.into_weights else _scaled_behind], inside=False)[0]


@register()
class FoldBatchnormToConv2D(FunctionPass):
    """Fold the first result of an ``nn.batch_norm`` into the ``nn.conv2d`` before it, where the
    weights of both are constants.

    For inference: the moving statistics are used, whatever ``training`` says. Functions with the
    attribute ``Primitive`` stay. Results change by rounding only. FoldBatchNorm, which ``build``
    runs, does more: any convolution, and batch norms without one or with weights of any kind.
    """

    def transform_function(self, func: Function, mod: IRModule, context: PassContext) -> Function:
        if func.attrs.get("Primitive"):
            return func
        new, modified = rewrite(func, [_first_folded])
        return remove_all_unused(new) if modified else func


_data = wildcard()
_batch_norm = is_op("relax.nn.batch_norm")(_data, varg_default_wildcard=True)


@rule(_batch_norm)
def _folded(m: Match) -> Expr | None:
    """The tuple of three that ``batch_norm`` gives, without it."""
    if not _foldable(m.call):
        return None
    before = m.bound(m[_data])
    if m.uses(m[_data]) != 1 or not isinstance(before, Call):
        return _scaled_and_shifted(m, m.call, None)
    if _is_before(before, m.call) and m.from_constants(before.args[1]):
        m.drop(m[_data])
        return _scaled_and_shifted(m, m.call, before)
    if is_call(before, "relax.add"):
        for inner, bias in (before.args, before.args[::-1]):
            conv = m.bound(inner)
            if not isinstance(conv, Call) or not _is_before(conv, m.call) or m.uses(inner) != 1:
                continue
            constant = m.from_constants(bias) and m.from_constants(conv.args[1])
            if constant and _is_vector_along(bias, m.call):
                m.drop(m[_data])
                m.drop(inner)
                return _scaled_and_shifted(m, m.call, conv, bias)
    return _scaled_and_shifted(m, m.call, None)


@rule(_batch_norm)
def _scaled_behind(m: Match) -> Expr | None:
    """The same without a look at what is before it."""
    return _scaled_and_shifted(m, m.call, None) if _foldable(m.call) else None


@rule(is_tuple_get_item(_batch_norm, 0))
def _first_folded(m: Match) -> Expr | None:
    """The normalised data, without ``batch_norm``."""
    bn = m.called(_batch_norm)
    conv = m.bound(m[_data])
    if not _is_known(bn) or not isinstance(conv, Call) or not is_call(conv, "relax.nn.conv2d"):
        return None
    if not all(map(m.from_constants, (conv.args[1], *bn.args[1:]))):
        return None
    if m.uses(m[_data]) != 1 or _channel_axis(conv) != _axis(bn):
        return None
    return _scaled_and_shifted(m, bn, conv).fields[0]


def _is_before(call: Call, bn: Call) -> bool:
    """Whether a call is a convolution whose channels a batch norm normalises."""
    return _is_convolution(call) and _channel_axis(call) == _axis(bn)


def _is_vector_along(bias: Expr, bn: Call) -> bool:
    """Whether what is added before a batch norm has one number for each of its channels."""
    info, moments = bias.struct_info_, bn.args[4].struct_info_
    if not isinstance(info, TensorStructInfo) or not isinstance(moments, TensorStructInfo):
        return False
    data = bn.args[0].struct_info
    rank = data.ndim if isinstance(data, TensorStructInfo) else 0
    if info.dims is None or moments.dims is None or not 0 < len(info.dims) <= rank:
        return False
    wanted: list[Dim] = [1] * rank
    wanted[_axis(bn)] = moments.dims[0]
    same = (info.dtype, info.vdevice) == (moments.dtype, moments.vdevice)
    return same and [1] * (rank - len(info.dims)) + list(info.dims) == wanted


def _is_convolution(call: Call) -> bool:
    found = call.op.trait(Convolution) if isinstance(call.op, Op) else None
    if found is None or found.transposed:
        return False
    attrs = call_attrs(call)
    return not is_packed(attrs["data_layout"], attrs["kernel_layout"], attrs["out_layout"])


def _foldable(value: Call) -> bool:
    """Whether a batch norm is one of inference of which enough is known."""
    return _is_known(value) and not call_attrs(value)["training"]


def _is_known(bn: Call) -> bool:
    """Whether rank and number of channels are known."""
    info, moments = bn.args[0].struct_info, bn.args[4].struct_info
    known = isinstance(info, TensorStructInfo) and info.ndim >= 0
    return known and dims_of(moments) is not None


def _scaled_and_shifted(m: Match, bn: Call, conv: Call | None, bias: Expr | None = None) -> Tuple:
    """The results of the batch norm; ``conv``: the convolution before it, which goes, too.

    ``bias``: what is added between them
    """
    fold = _Bindings(m)
    attrs = call_attrs(bn)
    data, gamma, beta, mean, variance = bn.args
    info, moments = data.struct_info, variance.struct_info
    assert isinstance(info, TensorStructInfo)
    assert isinstance(moments, TensorStructInfo)
    alike = all(v.struct_info == moments for v in (gamma, beta, mean))
    vector = moments if alike else None
    axis = _axis(bn)
    eps = const(attrs["epsilon"], moments.dtype)
    scale: Expr = fold(
        "rsqrt", "relax.rsqrt", vector, fold("eps", "relax.add", vector, variance, eps)
    )
    if attrs["scale"]:
        scale = fold("scale", "relax.multiply", vector, gamma, scale)
    centre = mean
    if bias is not None:
        assert moments.shape is not None
        flat = fold("bias", "relax.reshape", vector, bias, moments.shape)
        centre = fold("centre", "relax.subtract", vector, mean, flat)
    shift: Expr = fold("mean", "relax.multiply", vector, centre, scale)
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
        scaled: Expr = m.bind(
            "conv", Call(conv.op, args, conv.attrs, span=conv.span, struct_info=known)
        )
    else:
        same = _scaled(info, moments, axis)
        scaled = fold("scaled", "relax.multiply", same, data, fold.along(scale, axis, info.ndim))
    same = _scaled(scaled.struct_info, moments, axis)
    result = fold("out", "relax.add", same, scaled, fold.along(shift, axis, info.ndim))
    return Tuple([result, mean, variance])


def _scaled(info: StructInfo, vector: TensorStructInfo, axis: int) -> StructInfo | None:
    """Struct info of a tensor times ``vector`` along ``axis``, where it is plainly the tensor's."""
    if not isinstance(info, TensorStructInfo) or info.dims is None or vector.dims is None:
        return None
    fits = (info.dims[axis], info.dtype) == (vector.dims[0], vector.dtype)
    return info if fits and info.vdevice == vector.vdevice else None


class _Bindings:
    """Calls of operators, each with a variable of its own."""

    def __init__(self, m: Match) -> None:
        self.bind = m.bind

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
