"""LowerRuntimeBuiltin: views of tensors as calls of the runtime's function."""

from __future__ import annotations

from relax2xla.dpl.make import is_op, wildcard
from relax2xla.dpl.rules import Match, rewrite, rule
from relax2xla.ir import (
    Call,
    DataTypeImm,
    Expr,
    ExternFunc,
    FuncStructInfo,
    Function,
    IRModule,
    PrimValue,
    ShapeExpr,
    TensorStructInfo,
    Tuple,
)
from relax2xla.tir import const
from relax2xla.transform.core import FunctionPass, PassContext, register

# As relax2xla.runtime.tensor_views has them, which is a layer above.
_CREATE_VIEW = "runtime.TVMArrayCreateView"
_VIEW_RULE = "tvm.relax.struct_info.infer_view_sinfo"


@register()
class LowerRuntimeBuiltin(FunctionPass):
    """Write ``R.memory.view`` as a call of the packed function ``runtime.TVMArrayCreateView``.

    Such a call runs on the host and looks at the memory as it is; without the pass a view is part
    of the XLA program around it. Views whose shape or dtype is left out and not known stay; so do
    other builtins, which the machine knows by themselves.
    """

    def transform_function(self, func: Function, mod: IRModule, context: PassContext) -> Function:
        return rewrite(func, [_view])[0]


_data, _shape, _dtype, _offset = wildcard(), wildcard(), wildcard(), wildcard()


@rule(is_op("relax.memory.view")(_data, _shape, _dtype, _offset))
def _view(m: Match) -> Expr | None:
    data, shape, dtype, offset = m[_data], m[_shape], m[_dtype], m[_offset]
    info = data.struct_info
    if not isinstance(info, TensorStructInfo):
        return None
    if _is_left_out(shape):
        if info.dims is None:
            return None
        shape = ShapeExpr(info.dims)
    if _is_left_out(dtype):
        if not info.dtype:
            return None
        dtype = DataTypeImm(info.dtype)
    if _is_left_out(offset):
        offset = PrimValue(const(0, "int64"))
    rule_of_result = FuncStructInfo.opaque_func(derive_func=_VIEW_RULE, purity=True)
    return Call(ExternFunc(_CREATE_VIEW, rule_of_result), [data, shape, dtype, offset])


def _is_left_out(operand: Expr) -> bool:
    return isinstance(operand, Tuple) and not operand.fields
