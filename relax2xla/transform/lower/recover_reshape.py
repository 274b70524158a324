"""RecoverReshape: calls of the runtime's function that reshapes, as the operator."""

from __future__ import annotations

from relax2xla import op
from relax2xla.dpl.make import is_op, wildcard
from relax2xla.dpl.rules import Match, rewrite, rule
from relax2xla.errors import OpError
from relax2xla.ir import (
    Expr,
    ExternFunc,
    Function,
    IRModule,
    ShapeStructInfo,
    TensorStructInfo,
)
from relax2xla.transform.core import FunctionPass, PassContext, register

_RESHAPE = "vm.builtin.reshape"


@register()
class RecoverReshape(FunctionPass):
    """Write ``call_pure_packed("vm.builtin.reshape", x, shape)`` as ``reshape(x, shape)``.

    Programs for TVM's machine call the function, as it copies nothing there. Here a packed call
    runs on the host, between XLA programs; an operator is part of the program around it. A function
    that a user registers under this name is not called then.
    """

    def transform_function(self, func: Function, mod: IRModule, context: PassContext) -> Function:
        return rewrite(func, [_reshaped])[0]


_call = is_op("relax.call_pure_packed")(wildcard(), varg_default_wildcard=True)


@rule(_call)
def _reshaped(m: Match) -> Expr | None:
    callee, *operands = m.call.args
    if not isinstance(callee, ExternFunc) or callee.global_symbol != _RESHAPE or len(operands) != 2:
        return None
    x, shape = operands
    if not isinstance(x.struct_info, TensorStructInfo):
        return None
    if not isinstance(shape.struct_info, ShapeStructInfo):
        return None
    try:
        made = op.reshape(x, shape)
    except OpError:  # the machine says where it happens
        return None
    wanted, info = m.call.struct_info, made.struct_info
    if not isinstance(wanted, TensorStructInfo) or not isinstance(info, TensorStructInfo):
        return None
    return made if (wanted.dtype, wanted.ndim) == (info.dtype, info.ndim) else None
