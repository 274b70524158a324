"""What a function says of its result is checked where its body says less.

Callers rely on the declared struct info, and a value from outside (an ``R.Object``, the result of a
packed function) need not have it.
"""

from __future__ import annotations

from typing import Final

from relax2xla.ir import (
    BindingBlock,
    Function,
    IRModule,
    MatchCast,
    ObjectStructInfo,
    SeqExpr,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
    Var,
)

# The name that messages give the value.
RETURNED: Final = "return_value"


def with_checked_returns(mod: IRModule) -> IRModule:
    """``mod``, whose functions check a result that is less known than they declare."""
    functions = {g: _checked(f) if isinstance(f, Function) else f for g, f in mod.items()}
    unchanged = all(f is mod[g] for g, f in functions.items())
    return mod if unchanged else mod.replace(functions)


def _checked(func: Function) -> Function:
    body, declared = func.body, func.ret_struct_info
    if not _is_vaguer(body.struct_info, declared):
        return func
    var = Var(RETURNED, declared)
    check = BindingBlock([MatchCast(var, body.body, declared)])
    whole = SeqExpr([*body.blocks, check], var)
    return Function(func.params, whole, declared, func.is_pure, func.attrs, func.span)


def _is_vaguer(known: StructInfo, declared: StructInfo) -> bool:
    """Whether a kind, a rank, a dtype or a shape is declared that is not known of the value."""
    match known, declared:
        case ObjectStructInfo(), _:
            return not isinstance(declared, ObjectStructInfo)
        case TensorStructInfo(), TensorStructInfo():
            pairs = ((known.shape, declared.shape), (known.dtype, declared.dtype))
            return any(a is None and b is not None for a, b in pairs) or (
                known.ndim == -1 and declared.ndim != -1
            )
        case TupleStructInfo(), TupleStructInfo():
            return any(map(_is_vaguer, known.fields, declared.fields))
        case _:
            return False
