"""Patterns as programs write them, under the names of ``tvm.relax.dpl``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from relax2xla.dpl.pattern import (
    AttrPattern,
    CallPattern,
    ConstantPattern,
    DataflowVarPattern,
    DataTypePattern,
    DFPattern,
    ExprPattern,
    ExternFuncPattern,
    GlobalVarPattern,
    NotPattern,
    PrimArrPattern,
    TupleGetItemPattern,
    TuplePattern,
    UnorderedTuplePattern,
    VarPattern,
    WildcardPattern,
)
from relax2xla.ir.expr import Expr, ShapeExpr
from relax2xla.ir.op import Op
from relax2xla.tir import Dim


def wildcard() -> WildcardPattern:
    """Anything."""
    return WildcardPattern()


def is_op(op_name: str) -> ExprPattern:
    """The operator of this name; call it for a call of it. TVMError if there is none."""
    return ExprPattern(Op.get(op_name))


def is_expr(expr: Expr) -> ExprPattern:
    """An expression that is structurally equal to ``expr``."""
    return ExprPattern(expr)


def is_const() -> ConstantPattern:
    """A constant."""
    return ConstantPattern()


def is_var(name: str = "") -> VarPattern:
    """A variable, of this name if one is given."""
    return VarPattern(name)


def is_dfv(name: str = "") -> DataflowVarPattern:
    """A DataflowVar, of this name if one is given."""
    return DataflowVarPattern(name)


def is_gv(name: str = "") -> GlobalVarPattern:
    """A GlobalVar, whose name holds ``name``."""
    return GlobalVarPattern(name)


def is_tuple(
    fields: Sequence[DFPattern], unordered: bool = False
) -> TuplePattern | UnorderedTuplePattern:
    """A tuple of these fields, ``unordered`` in any order; ValueError if they are no sequence."""
    if not isinstance(fields, list | tuple):
        raise ValueError("is_tuple takes a list or tuple of patterns")
    return UnorderedTuplePattern(fields) if unordered else TuplePattern(fields)


def is_tuple_get_item(tuple_value: DFPattern, index: int | None = None) -> TupleGetItemPattern:
    """Field ``index`` (None: any) of a tuple."""
    return TupleGetItemPattern(tuple_value, index)


def is_shape(shape: Sequence[Dim]) -> PrimArrPattern:
    """A shape as an operand; of a tensor's shape see ``has_shape``."""
    if not isinstance(shape, list | tuple | ShapeExpr):
        raise ValueError("is_shape takes a list or tuple of dimensions")
    return PrimArrPattern(shape)


def has_dtype(dtype: str, pattern: DFPattern | None = None) -> DataTypePattern:
    """``pattern`` (anything), of a tensor of this dtype."""
    return DataTypePattern(pattern or wildcard(), dtype)


def has_attr(attrs: Mapping[str, Any], pattern: DFPattern | None = None) -> AttrPattern:
    """``pattern`` (anything), of a call or function with these attributes."""
    return AttrPattern(pattern or wildcard(), attrs)


def reject(pattern: DFPattern) -> NotPattern:
    """What ``pattern`` does not match."""
    return NotPattern(pattern)


Args = Sequence[DFPattern] | DFPattern | None


def is_call_tir(
    func_name: str, args: Args = None, tir_vars: DFPattern | None = None
) -> CallPattern:
    """``R.call_tir`` of the function of this name; ``args`` None: of any arguments."""
    more = () if tir_vars is None else (tir_vars,)
    callee = is_op("relax.call_tir")
    return callee(GlobalVarPattern(func_name), _tuple(args), *more, add_constraint=False)


def is_call_dps_packed(func_name: str, args: Args = None) -> CallPattern:
    """``R.call_dps_packed`` of the function of this name; ``args`` None: of any arguments."""
    callee = is_op("relax.call_dps_packed")
    return callee(ExternFuncPattern(func_name), _tuple(args), add_constraint=False)


def is_call_packed(func_name: str, args: Sequence[DFPattern] | None = None) -> CallPattern:
    """A call of the packed function of this name; ``args`` None: of any arguments."""
    callee = ExternFuncPattern(func_name)
    if args is None:
        return callee(varg_default_wildcard=True, add_constraint=False)
    return callee(*args)


def _tuple(args: Args) -> DFPattern:
    if args is None:
        return wildcard()
    return args if isinstance(args, DFPattern) else TuplePattern(args)
