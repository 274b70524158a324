"""A rewrite written as a module: what ``pattern`` computes, its ``replacement`` does."""

from __future__ import annotations

from collections.abc import Callable

from relax2xla import tir
from relax2xla.dpl.pattern import (
    AttrPattern,
    CallPattern,
    DFPattern,
    ExprPattern,
    ExternFuncPattern,
    StructInfoPattern,
    TupleGetItemPattern,
    TuplePattern,
    WildcardPattern,
)
from relax2xla.ir.copy import copy_with_new_vars
from relax2xla.ir.equal import structural_equal
from relax2xla.ir.expr import (
    Call,
    Constant,
    DataTypeImm,
    Expr,
    ExternFunc,
    Function,
    GlobalVar,
    MatchCast,
    PrimValue,
    ShapeExpr,
    StringImm,
    Tuple,
    TupleGetItem,
    Var,
)
from relax2xla.ir.lattice import unify
from relax2xla.ir.module import BaseFunc, IRModule
from relax2xla.ir.op import Op
from relax2xla.ir.rewrite import Rewriter, bindings_of
from relax2xla.ir.struct_info import show

Replacement = Callable[[Expr, dict[DFPattern, Expr]], Expr]


def as_rule(mod: IRModule) -> tuple[DFPattern, Replacement, dict[GlobalVar, BaseFunc]]:
    """The pattern, what takes the place of a match, and the functions that this calls.

    The errors are those of ``PatternMatchingRewriter.from_module``.
    """
    pattern = _function(mod, "pattern")
    replacement = _function(mod, "replacement")
    subroutines: dict[GlobalVar, BaseFunc] = {}
    for gvar, func in mod.items():
        if gvar.name_hint in ("pattern", "replacement"):
            continue
        if getattr(func, "attrs", {}).get("global_symbol") is not None:
            raise ValueError(
                f"a rewriter makes public functions of 'pattern' and 'replacement' only, but "
                f"{gvar.name_hint!r} is publicly exposed; write @R.function(private=True)"
            )
        subroutines[gvar] = func
    if not structural_equal(pattern.struct_info_, replacement.struct_info_):
        raise ValueError(
            "'pattern' and 'replacement' must have the same signature; got "
            f"{show(pattern.struct_info_)} and {show(replacement.struct_info_)}"
        )
    holes = [WildcardPattern() for _ in pattern.params]
    return _pattern_of(pattern, holes), _replacement_of(replacement, holes), subroutines


def _function(mod: IRModule, name: str) -> Function:
    if name not in mod:
        raise KeyError(f"a rewriter needs a Relax function {name!r}; the module has none")
    func = mod[name]
    if not isinstance(func, Function):
        raise TypeError(
            f"{name!r} of a rewriter must be a Relax function; got {type(func).__name__}"
        )
    return func


def _pattern_of(func: Function, holes: list[WildcardPattern]) -> DFPattern:
    """What ``func`` computes, its parameters anything of their struct info."""
    known: dict[Var, DFPattern] = {
        p: StructInfoPattern(hole, p.struct_info)
        for p, hole in zip(func.params, holes, strict=True)
    }
    for b in bindings_of(func.body):
        made = _pattern(b.value, known)
        known[b.var] = StructInfoPattern(made, b.struct_info) if isinstance(b, MatchCast) else made
    return _pattern(func.body.body, known)


def _pattern(expr: Expr, known: dict[Var, DFPattern]) -> DFPattern:
    """The pattern of a plain expression over variables whose patterns are known."""
    match expr:
        case Var():
            return known[expr]
        case Call():
            args = [_pattern(a, known) for a in expr.args]
            made: DFPattern = CallPattern(_pattern(expr.op, known), args, False, False)
            if expr.attrs:
                made = AttrPattern(made, expr.attrs)
            if len(expr.sinfo_args) == 1:
                made = StructInfoPattern(made, expr.sinfo_args[0])
            return made
        case Tuple():
            return TuplePattern([_pattern(f, known) for f in expr.fields])
        case TupleGetItem():
            return TupleGetItemPattern(_pattern(expr.tuple_value, known), expr.index)
        case ExternFunc():
            return ExternFuncPattern(expr.global_symbol)
        case PrimValue() | ShapeExpr():
            return StructInfoPattern(WildcardPattern(), expr.struct_info)
        case Op() | Constant() | StringImm() | DataTypeImm():
            return ExprPattern(expr)
        case _:
            raise TypeError(f"a pattern cannot be made of a {type(expr).__name__}: {expr!r}")


def _replacement_of(func: Function, holes: list[WildcardPattern]) -> Replacement:
    def replaced(expr: Expr, found: dict[DFPattern, Expr]) -> Expr:
        new = copy_with_new_vars(func)
        dims: dict[tir.Var, tir.Dim] = {}
        values: dict[Var, Expr] = {}
        for param, hole in zip(new.params, holes, strict=True):
            unify(param.struct_info, found[hole].struct_info, dims)
            values[param] = found[hole]
        return Rewriter(dims, values).seq(new.body)

    return replaced
