"""DecomposeOpsForInference, DecomposeOpsForTraining: composite operators as simpler ones.

What a decomposition computes is what the docstring of the operator says, in the operand's dtype;
the lowering of the operator itself computes in a wider one, so results differ by rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from relax2xla import op
from relax2xla.expr_functor import PyExprMutator, mutator
from relax2xla.ir import (
    Call,
    Expr,
    Function,
    GlobalVar,
    IRModule,
    Op,
    ShapeExpr,
    ShapeStructInfo,
    TensorStructInfo,
    Tuple,
    TupleGetItem,
    const,
)
from relax2xla.ir.op import call_attrs
from relax2xla.tir import Var as SymbolicVar
from relax2xla.transform.core import Pass, PassContext, register
from relax2xla.transform.params.bind_params import selected


class _Decompose(Pass):
    training: bool

    def __init__(self, func_name: str | None = None) -> None:
        self.func_name = func_name

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        new: dict[GlobalVar, Function] = {}
        for gvar, func in selected(mod, self.func_name, self.info.name).items():
            made = _Decomposer(self.training).visit_expr(func)
            assert isinstance(made, Function)
            new[gvar] = made
        return mod.replace({**dict(mod.items()), **new})


@register()
class DecomposeOpsForInference(_Decompose):
    """Write ``nn.batch_norm`` (with the moving statistics, whatever ``training`` says) and
    ``tensor_to_shape`` (a packed call and a cast to new symbolic dimensions) in simpler operators.

    ``func_name``: the function to work on, None for all; TransformError if the module has none of
    this name. Calls on operands of unknown rank or dtype stay as they are.
    """

    training = False


@register()
class DecomposeOpsForTraining(_Decompose):
    """As DecomposeOpsForInference, but ``nn.batch_norm`` uses and moves the statistics of its
    batch, and ``nn.layer_norm`` is decomposed, too.
    """

    training = True


@mutator
class _Decomposer(PyExprMutator):
    def __init__(self, training: bool) -> None:
        super().__init__()
        self.training = training

    def visit_call_(self, op: Call) -> Expr:
        made = self.visit_expr_post_order(op)
        if not isinstance(made, Call) or not isinstance(made.op, Op):
            return made
        rule = _RULES.get(made.op.name)
        return made if rule is None else rule(self, made)


def _batch_norm(self: _Decomposer, call: Call) -> Expr:
    data, gamma, beta, mean, variance = call.args
    info = _known(data)
    if info is None or any(_known(a) is None for a in (mean, variance)):
        return call
    attrs = call_attrs(call)
    axis = attrs["axis"] % info.ndim
    others = [a for a in range(info.ndim) if a != axis]
    if not self.training:
        out = _scaled(attrs, data, mean, variance, gamma, beta, others)
        return Tuple([out, mean, variance])
    momentum = attrs["momentum"]
    emit = self.builder_.emit
    now, spread = emit(op.mean(data, others)), emit(op.variance(data, others))
    # As in TVM: what inference gives with these statistics, of which the first field goes on.
    inner = emit(Tuple([_scaled(attrs, data, now, spread, gamma, beta, others), now, spread]))
    out = emit(TupleGetItem(inner, 0))
    moved: list[Expr] = []
    for old, new in ((mean, now), (variance, spread)):
        kept = op.multiply(_scalar(1.0 - momentum, old), old)
        moved.append(op.add(kept, op.multiply(_scalar(momentum, new), new)))
    return Tuple([out, *moved])


def _layer_norm(self: _Decomposer, call: Call) -> Expr:
    data, gamma, beta = call.args
    info = _known(data)
    if info is None or not self.training:
        return call
    attrs = call_attrs(call)
    axes = [a % info.ndim for a in attrs["axes"]]
    # The parameters lie along ``axes`` in the order that these are given in.
    if axes != sorted(axes):
        order = sorted(range(len(axes)), key=axes.__getitem__)
        gamma, beta = op.permute_dims(gamma, order), op.permute_dims(beta, order)
    mean = op.mean(data, attrs["axes"], keepdims=True)
    variance = op.variance(data, attrs["axes"], keepdims=True)
    # Axes before the first that the parameters have need none: broadcasting adds them.
    first = min(axes, default=info.ndim)
    others = [a - first for a in range(first, info.ndim) if a not in axes]
    return _scaled(attrs, data, mean, variance, gamma, beta, others, kept=True)


def _scaled(
    attrs: Any,
    data: Expr,
    mean: Expr,
    variance: Expr,
    gamma: Expr,
    beta: Expr,
    others: Sequence[int],
    kept: bool = False,
) -> Expr:
    """``(data - mean) / sqrt(variance + epsilon) * gamma + beta``.

    ``others``: the axes that the parameters lack; the statistics lack them, too, unless they are
    ``kept``.
    """
    if not kept:
        mean, variance = op.expand_dims(mean, others), op.expand_dims(variance, others)
    deviation = op.sqrt(op.add(variance, _scalar(attrs["epsilon"], variance)))
    out = op.divide(op.subtract(data, mean), deviation)
    if attrs["scale"]:
        out = op.multiply(out, op.expand_dims(gamma, others) if others else gamma)
    if attrs["center"]:
        out = op.add(out, op.expand_dims(beta, others) if others else beta)
    return out


def _tensor_to_shape(self: _Decomposer, call: Call) -> Expr:
    info = call.struct_info
    if not isinstance(info, ShapeStructInfo) or info.ndim == -1:
        return call
    packed = op.call_pure_packed(
        "vm.builtin.tensor_to_shape", call.args[0], sinfo_args=ShapeStructInfo(ndim=info.ndim)
    )
    dims = [SymbolicVar("x") for _ in range(info.ndim)]
    self.builder_.match_cast(self.builder_.emit(packed), ShapeStructInfo(dims))
    return ShapeExpr(dims)


_RULES: dict[str, Callable[[_Decomposer, Call], Expr]] = {
    "relax.nn.batch_norm": _batch_norm,
    "relax.nn.layer_norm": _layer_norm,
    "relax.tensor_to_shape": _tensor_to_shape,
}


def _known(value: Expr) -> TensorStructInfo | None:
    """The struct info of a tensor of known rank and dtype."""
    info = value.struct_info
    if isinstance(info, TensorStructInfo) and info.ndim >= 0 and info.dtype:
        return info
    return None


def _scalar(value: float, like: Expr) -> Expr:
    info = like.struct_info
    assert isinstance(info, TensorStructInfo)
    return const(value, info.dtype)
