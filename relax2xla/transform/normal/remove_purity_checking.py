"""RemovePurityChecking: functions are pure because they say so."""

from __future__ import annotations

from relax2xla.ir import Call, Expr, Function, IRModule, Op
from relax2xla.ir.deep import nests
from relax2xla.ir.rewrite import Rewriter
from relax2xla.transform.core import FunctionPass, PassContext, register


@register()
class RemovePurityChecking(FunctionPass):
    """Set ``relax.force_pure`` on pure functions, and call what is declared pure directly.

    ``R.call_pure_packed`` and ``R.call_inplace_packed`` become calls of the packed function,
    ``R.invoke_pure_closure`` becomes ``R.invoke_closure``. Local functions are treated alike.
    Dataflow blocks may not hold such calls: run ToNonDataflow before.
    """

    def transform_function(self, func: Function, mod: IRModule, context: PassContext) -> Function:
        return _Trusting(rule=_direct).function(func)


class _Trusting(Rewriter):
    @nests
    def function(self, func: Function) -> Function:
        new = super().function(func)
        if not new.is_pure or new.attrs.get("relax.force_pure"):
            return new
        return new.with_attr("relax.force_pure", True)


_PACKED = ("relax.call_pure_packed", "relax.call_inplace_packed")


def _direct(node: Expr) -> Expr | None:
    if not isinstance(node, Call) or not isinstance(node.op, Op):
        return None
    if node.op.name in _PACKED:
        # What call_inplace_packed says of its operands is no attribute of the packed function.
        attrs = node.attrs if node.op.name == _PACKED[0] else None
        callee, *args = node.args
        info = node.struct_info_
        return Call(callee, args, attrs, node.sinfo_args, node.span, struct_info=info)
    if node.op.name == "relax.invoke_pure_closure":
        op = Op.get("relax.invoke_closure")
        return Call(op, node.args, node.attrs, node.sinfo_args, node.span)
    return None
