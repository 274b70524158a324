"""Other names for the functions of a module."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from relax2xla.ir import lattice
from relax2xla.ir.expr import Expr, Function, GlobalVar
from relax2xla.ir.module import IRModule
from relax2xla.ir.rewrite import rewrite_function


def rename_functions(mod: IRModule, names: Mapping[GlobalVar, str]) -> IRModule:
    """``mod`` with its functions under ``names``; itself where each has its name already.

    A function that is renamed gets a new GlobalVar, wherever it is named; others keep theirs. What
    calls one is inferred anew, so an annotation that contradicted the value of such a call goes.
    """
    renamed: dict[Expr, Expr] = {
        gvar: GlobalVar(name, gvar.struct_info_, gvar.span)
        for gvar, name in names.items()
        if name != gvar.name_hint
    }
    if not renamed:
        return mod
    functions: dict[Any, Any] = {
        renamed.get(gvar, gvar): _consistent(func, rewrite_function(func, rule=renamed.get))
        if isinstance(func, Function)
        else func
        for gvar, func in mod.items()
    }
    return mod.replace(functions)


def _consistent(old: Function, new: Function) -> Function:
    """``new`` with the result that its body has, where that is never the one declared."""
    if new.body is old.body:
        return new
    try:
        lattice.unify(new.ret_struct_info, new.body.struct_info, {})
    except lattice.Mismatch:
        return Function(new.params, new.body, None, new.is_pure, new.attrs, new.span)
    return new
