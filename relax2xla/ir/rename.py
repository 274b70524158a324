"""Other names for the functions of a module."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from relax2xla import tir
from relax2xla.errors import TVMError
from relax2xla.ir import late, lattice
from relax2xla.ir.expr import Expr, Function, GlobalVar
from relax2xla.ir.module import IRModule
from relax2xla.ir.rewrite import rewrite_function
from relax2xla.tir import PrimFunc
from relax2xla.tir.stmt_functor import ir_transform

_SYMBOL: Final = "global_symbol"


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
        else _kernel(func, {f"@{g.name_hint}": f"@{n}" for g, n in names.items()})
        for gvar, func in mod.items()
    }
    return mod.replace(functions)


@late.replace_global_vars.given
def replace_global_vars(
    mod: IRModule, replacements: Mapping[str | GlobalVar, str | GlobalVar]
) -> IRModule:
    """``mod`` with functions, and their symbols, under other names, wherever they are named.

    KeyError for a function that ``mod`` does not have, TVMError where two would have one name.
    """
    names = {
        k if isinstance(k, GlobalVar) else mod.get_global_var(k): v
        if isinstance(v, str)
        else v.name_hint
        for k, v in replacements.items()
    }
    taken = {g.name_hint for g in mod.functions if g not in names} & set(names.values())
    if taken:
        raise TVMError(f"the module has a function {', '.join(sorted(taken))} already")
    renamed = rename_functions(mod, names)
    if renamed is mod:
        return mod
    return renamed.replace(
        {
            g: f.with_attr(_SYMBOL, g.name_hint)
            if f.attrs.get(_SYMBOL) not in (None, g.name_hint) and g not in mod.functions
            else f
            for g, f in renamed.items()
        }
    )


def _kernel(func: Any, names: Mapping[str, str]) -> Any:
    """A loop-level function that calls others by their new names."""
    if not isinstance(func, PrimFunc):
        return func

    def call(node: Any) -> Any:
        if isinstance(node, tir.Call) and names.get(node.op, node.op) != node.op:
            return tir.Call(node.dtype, names[node.op], node.args)
        return None

    body = ir_transform(func.body, None, call)
    return func if body is func.body else func.with_body(body)


def _consistent(old: Function, new: Function) -> Function:
    """``new`` with the result that its body has, where that is never the one declared."""
    if new.body is old.body:
        return new
    try:
        lattice.unify(new.ret_struct_info, new.body.struct_info, {})
    except lattice.Mismatch:
        return Function(new.params, new.body, None, new.is_pure, new.attrs, new.span)
    return new
