"""AppendLoss: a loss function after a network, in one function."""

from __future__ import annotations

from collections.abc import Sequence

from relax2xla.errors import TransformError
from relax2xla.ir import (
    Binding,
    DataflowBlock,
    DataflowVar,
    Expr,
    Function,
    GlobalVar,
    IRModule,
    MatchCast,
    SeqExpr,
    StructInfo,
    TensorStructInfo,
    Tuple,
    Var,
    VarBinding,
)
from relax2xla.ir.copy import copy_with_new_vars
from relax2xla.ir.equal import structural_equal
from relax2xla.ir.lattice import result_info
from relax2xla.ir.rewrite import Rewriter
from relax2xla.ir.struct_info import show
from relax2xla.te.gradients import register_te_gradient as register_te_gradient
from relax2xla.transform.core import Pass, PassContext, PassInfo
from relax2xla.transform.params.bind_params import selected


class AppendLoss(Pass):
    """Add ``NAME_loss`` to a module: the function ``NAME``, and a loss of its first results.

    func_name: the function, one dataflow block whose result is a variable or a tuple of them.
    loss_function: one dataflow block; it takes ``num_backbone_outputs`` results of the function and
        then what else it needs, and gives a tensor of rank 0.
    new_func_name: the name of what is added, if it is not ``NAME_loss``.

    The new function takes the function's parameters and then the others of the loss; it gives the
    loss and the function's other results. TransformError for functions of another form.
    """

    info = PassInfo("AppendLoss")

    def __init__(
        self,
        func_name: str,
        loss_function: Function,
        num_backbone_outputs: int = 1,
        new_func_name: str | None = None,
    ) -> None:
        self.func_name, self.loss_function = func_name, loss_function
        self.num_backbone_outputs = num_backbone_outputs
        self.new_func_name = new_func_name or f"{func_name}_loss"

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        (found,) = selected(mod, self.func_name, self.info.name).values()
        func, loss = (
            copy_with_new_vars(found),
            copy_with_new_vars(self.loss_function, symbolic=False),
        )
        made = _joined(func, loss, self.num_backbone_outputs)
        made = made.with_attr("global_symbol", self.new_func_name)
        known = self.new_func_name in mod
        gvar = mod.get_global_var(self.new_func_name) if known else GlobalVar(self.new_func_name)
        return mod.replace({**dict(mod.items()), gvar: made})


def _joined(func: Function, loss: Function, count: int) -> Function:
    """``func`` and then ``loss`` of its first ``count`` results."""
    body, last = _block(func, "the network"), _block(loss, "the loss function")
    result = loss.body.body
    info = result.struct_info
    if not isinstance(result, Var) or not isinstance(info, TensorStructInfo) or info.ndim != 0:
        raise TransformError(
            f"AppendLoss: the loss function must give a variable that holds a tensor of rank 0; "
            f"it gives {result!r}, {show(info)}"
        )
    outputs = _variables(func.body.body)
    for what, have in (
        ("results of the network", outputs),
        ("parameters of the loss", loss.params),
    ):
        if len(have) < count:
            raise TransformError(
                f"AppendLoss: num_backbone_outputs is {count}, and there are {len(have)} {what}"
            )
    rewriter = Rewriter()
    for i, (out, param) in enumerate(zip(outputs[:count], loss.params, strict=False)):
        _want_equal(out.struct_info, param.struct_info, i)
        if out not in outputs[count:] and out not in func.params:
            # Nothing outside of the block reads it any more.
            rewriter.env.setdefault(out, DataflowVar(out.name_hint, out.struct_info, out.span))
        rewriter.env[param] = rewriter.env.get(out, out)
    bindings: list[Binding] = []
    for b in [*body.bindings, *last.bindings]:
        inner = rewriter.env.get(b.var)
        new = rewriter.binding(b)
        bindings.append(new if inner is None else _bound_to(new, inner))
        if inner is not None:
            rewriter.env[b.var] = inner
    value: Expr = rewriter.expr(result)
    if outputs[count:]:
        value = Tuple([value, *outputs[count:]])
    params = [*func.params, *loss.params[count:]]
    seq = SeqExpr([DataflowBlock(bindings, body.span)], value)
    return Function(
        params, seq, result_info(params, value.struct_info), func.is_pure, func.attrs, func.span
    )


def _bound_to(b: Binding, var: Expr) -> Binding:
    """The same binding of another variable."""
    assert isinstance(var, Var)
    if isinstance(b, MatchCast):
        return MatchCast(var, b.value, b.struct_info, b.span)
    return VarBinding(var, b.value, b.span)


def _block(func: Function, what: str) -> DataflowBlock:
    blocks = func.body.blocks
    if len(blocks) != 1 or not isinstance(blocks[0], DataflowBlock):
        raise TransformError(f"AppendLoss: {what} must be one dataflow block; it has {len(blocks)}")
    return blocks[0]


def _variables(result: Expr) -> Sequence[Var]:
    """The result of a network as variables."""
    found = list(result.fields) if isinstance(result, Tuple) else [result]
    variables = [v for v in found if isinstance(v, Var)]
    if len(variables) != len(found):
        raise TransformError(
            f"AppendLoss: the network must give a variable or a tuple of them; it gives {result!r}"
        )
    return variables


def _want_equal(out: StructInfo, param: StructInfo, index: int) -> None:
    if not structural_equal(out, param):
        raise TransformError(
            f"AppendLoss: result {index} of the network is {show(out)}, and the loss function "
            f"takes {show(param)}"
        )
