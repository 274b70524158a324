"""Gradient: the adjoint of a function by reverse-mode differentiation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeGuard

from relax2xla.analysis.unused import remove_all_unused
from relax2xla.builder import BlockBuilder
from relax2xla.dtypes import is_float
from relax2xla.errors import TransformError
from relax2xla.ir import (
    BindingBlock,
    Call,
    DataflowBlock,
    Expr,
    Function,
    IRModule,
    SeqExpr,
    StructInfo,
    TensorStructInfo,
    Tuple,
    TupleStructInfo,
    Var,
)
from relax2xla.ir.copy import copy_with_new_vars
from relax2xla.ir.lattice import result_info
from relax2xla.ir.rewrite import bindings_deep, bindings_of, rewrite_function
from relax2xla.ir.struct_info import show
from relax2xla.op.intrinsic import call_tir_op, call_tir_with_grad_op
from relax2xla.transform.core import Pass, PassContext, register
from relax2xla.transform.grad.adjoints import Adjoints, through_jax
from relax2xla.transform.grad.checkpoints import Again, Marks, without_marks
from relax2xla.transform.grad.simplify import without_double_transposes
from relax2xla.transform.params.bind_params import selected


@register()
class Gradient(Pass):
    """Add the adjoint of the function ``func_name``: its result together with gradients.

    ``func_name_adjoint`` takes what the function takes and gives ``(result, (gradient, ...))``, one
    gradient for each variable of ``require_grads`` (None: all parameters), of that variable's kind.
    ``target_index``: which field of the result is differentiated, a variable that holds a float
    tensor of rank 0. The function is one dataflow block, and its result a variable or a tuple of
    them. ``require_grads`` names parameters or variables of the block, floats or tuples of them.

    Gradients are the expressions of ``relax2xla.op.shared.gradients``; that of a
    ``call_tir_with_grad`` is the registered function that it names. What has none there, a function
    of rows, a loop-level function or a call of another function of the module, is differentiated
    through JAX into a private function ``NAME_vjp``, for which shapes have to be known.
    ``R.grad.no_grad`` stops a gradient, ``R.grad.start_checkpoint`` and ``end_checkpoint`` mark
    what the adjoint computes again in place of keeping it. Raises TransformError for functions of
    another form, and ValueError where the module has no ``func_name``.
    """

    def __init__(
        self,
        func_name: str,
        require_grads: Sequence[Var] | Var | None = None,
        target_index: int = 0,
    ) -> None:
        self.func_name, self.target_index = func_name, target_index
        one = isinstance(require_grads, Var)
        self.require_grads = [require_grads] if one else require_grads

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        if self.func_name not in mod:
            names = ", ".join(g.name_hint for g in mod)
            raise ValueError(f"Gradient: the module has no function {self.func_name!r}: {names}")
        (old,) = selected(mod, self.func_name, self.info.name).values()
        copied = copy_with_new_vars(old)
        if len(copied.body.blocks) != 1 or not isinstance(copied.body.blocks[0], DataflowBlock):
            raise TransformError(
                f"Gradient: {self.func_name} must be one dataflow block; it has "
                f"{len(copied.body.blocks)} blocks. ConvertToDataflow makes dataflow blocks"
            )
        func, marks = without_marks(copied)
        if self.require_grads is None:
            wanted: Sequence[Var] = func.params
        else:
            wanted = _wanted(self.require_grads, old, copied, self.func_name)
        builder = BlockBuilder(mod)
        made = _adjoint(builder, func, wanted, self.target_index, marks)
        name = f"{self.func_name}_adjoint"
        made = remove_all_unused(without_double_transposes(made)).with_attr("global_symbol", name)
        if _holds_te(func.body.blocks[0]):
            made = rewrite_function(made, rule=_without_grad, leaves=False)
        builder.add_func(made, name)
        return builder.get()


def _holds_te(block: BindingBlock) -> bool:
    """Whether a value is, or has inside, a call of ``call_tir_with_grad``."""
    values = [b.value for b in block.bindings]
    if call_tir_with_grad_op in [v.op for v in values if isinstance(v, Call)]:
        return True
    # Nothing is bound in a call.
    others = [v for v in values if not isinstance(v, Call)]
    return any(_is_te(b.value) for v in others for b in bindings_deep(v))


def _is_te(value: Expr) -> TypeGuard[Call]:
    return isinstance(value, Call) and value.op is call_tir_with_grad_op


def _without_grad(node: Expr) -> Expr | None:
    """``call_tir`` for ``call_tir_with_grad``: the gradient is there."""
    if not _is_te(node):
        return None
    return Call(call_tir_op, node.args, None, node.sinfo_args, node.span)


def _adjoint(
    builder: BlockBuilder, func: Function, wanted: Sequence[Var], target_index: int, marks: Marks
) -> Function:
    """``func`` with its gradients, before anything unused is removed."""
    block, result = func.body.blocks[0], func.body.body
    target = _target(result, target_index)
    builder.begin_scope(func.params)
    with builder.dataflow():
        builder.emit_all_normalized(block.bindings)
        again = None
        if marks.kept is not None:
            again = Again(builder, {b.var: b.value for b in block.bindings}, marks.kept)
        adjoints = Adjoints(builder, again, through_jax(builder))
        adjoints.start(target)
        for b in reversed(block.bindings):
            adjoints.binding(b)
        # What was bound to a mark is the marked variable now.
        outputs = [adjoints.output(marks.origin.get(v, v)) for v in wanted]
    both = Tuple([result, Tuple(outputs)])
    body = SeqExpr(builder.end_scope(), both)
    info = result_info(func.params, both.struct_info)
    return Function(func.params, body, info, func.is_pure, func.attrs, func.span)


def _target(result: Expr, index: int) -> Var:
    """The variable to differentiate; TransformError unless it holds one float."""
    if isinstance(result, Tuple):
        if not 0 <= index < len(result.fields):
            raise TransformError(
                f"Gradient: target_index is {index}, and the function gives {len(result.fields)} "
                "values"
            )
        found = result.fields[index]
    else:
        found = result
        if index != 0:
            raise TransformError(
                f"Gradient: target_index is {index}, and the function gives one value: use 0"
            )
    if not isinstance(found, Var):
        raise TransformError(f"Gradient: the target must be a variable; it is {found!r}")
    info = found.struct_info
    if not isinstance(info, TensorStructInfo) or info.ndim != 0 or not _is_float(info):
        raise TransformError(
            f"Gradient: the target must be a float tensor of rank 0; `{found.name_hint}` is "
            f"{show(info)}. Sum it first: R.sum"
        )
    return found


def _wanted(given: Sequence[Var], old: Function, new: Function, name: str) -> list[Var]:
    """The variables of the copy that ``require_grads`` names in the original."""
    copies = dict(zip(old.params, new.params, strict=True))
    pairs = zip(bindings_of(old.body), bindings_of(new.body), strict=True)
    copies.update((a.var, b.var) for a, b in pairs)
    seen: set[Var] = set()
    for var in given:
        if var not in copies:
            raise TransformError(f"Gradient: {name} has no variable {var!r} of require_grads")
        if var in seen:
            raise TransformError(f"Gradient: `{var.name_hint}` is twice in require_grads")
        seen.add(var)
        if not _is_float(var.struct_info):
            raise TransformError(
                f"Gradient: `{var.name_hint}` of require_grads is {show(var.struct_info)}; only "
                "float tensors and tuples of them have gradients"
            )
    return [copies[var] for var in given]


def _is_float(info: StructInfo) -> bool:
    if isinstance(info, TupleStructInfo):
        return all(map(_is_float, info.fields))
    return isinstance(info, TensorStructInfo) and bool(info.dtype) and is_float(info.dtype)
