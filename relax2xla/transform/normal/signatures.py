"""Private functions get other parameters and results, and their callers with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from relax2xla import tir
from relax2xla.analysis.unused import remove_all_unused
from relax2xla.analysis.variables import named_functions
from relax2xla.ir import (
    Call,
    Expr,
    Function,
    GlobalVar,
    IRModule,
    MatchCast,
    PrimValue,
    SeqExpr,
    ShapeExpr,
    StructInfo,
    Var,
)
from relax2xla.ir.lattice import definable_vars, free_symbolic_vars
from relax2xla.ir.rewrite import Rewriter, bindings_of, post_order, post_order_deep
from relax2xla.transform.normal.blocks import refined
from relax2xla.transform.normal.canonicalize import canonical
from relax2xla.transform.normal.inline import calls_and_values


def private_functions(mod: IRModule) -> dict[GlobalVar, Function]:
    """Functions whose callers are all calls that the module shows."""
    _, values = calls_and_values(mod)
    for func in mod.relax_functions().values():
        for node in post_order_deep(func):
            if isinstance(node, Call):
                values.update(named_functions(node))
    return {
        g: f
        for g, f in mod.relax_functions().items()
        if "global_symbol" not in f.attrs and g.name_hint not in values
    }


def calls_of(mod: IRModule, callees: Mapping[GlobalVar, Any]) -> Iterator[tuple[GlobalVar, Call]]:
    """Every call of one of ``callees`` in the module, with its callee."""
    for func in mod.relax_functions().values():
        for node in post_order_deep(func):
            if isinstance(node, Call) and isinstance(node.op, GlobalVar) and node.op in callees:
                yield node.op, node


def with_signatures(
    mod: IRModule,
    changed: Mapping[GlobalVar, Function],
    callers: Callable[[Mapping[GlobalVar, GlobalVar]], Rewriter],
    clean: bool = True,
) -> IRModule:
    """``mod`` with other functions, which take other arguments or give other results.

    They have new GlobalVars, since the struct info of these is another one. ``callers`` makes, of
    the new ones by the old, a rewriter of functions that call them. ``clean``: what changes is left
    without copies, else without dead code only.
    """
    renamed = {g: GlobalVar(g.name_hint, f.struct_info_, g.span) for g, f in changed.items()}
    new: dict[GlobalVar, Any] = {}
    for gvar, func in mod.items():
        made = changed.get(gvar, func)
        if isinstance(made, Function):
            made = callers(renamed).function(made)
            if made is not func:
                made = refined(remove_all_unused(canonical(made) if clean else made))
        new[renamed.get(gvar, gvar)] = made
    return mod.replace(new)


def symbols_read(func: Function) -> list[tir.Var]:
    """Symbolic variables that the body and the result of ``func`` name, but do not define."""
    found: dict[tir.Var, None] = {}
    defined: set[tir.Var] = set()
    seen: dict[int, StructInfo] = {}

    def note(info: StructInfo | None) -> None:
        if info is not None and id(info) not in seen:
            seen[id(info)] = info
            found.update(dict.fromkeys(free_symbolic_vars(info)))

    for node in post_order_deep(func.body):
        if isinstance(node, SeqExpr):
            for b in bindings_of(node):
                note(b.var.struct_info_)
                if isinstance(b, MatchCast):
                    defined.update(definable_vars(b.struct_info))
        elif isinstance(node, Function):
            defined.update(v for p in node.params for v in definable_vars(p.struct_info))
        found.update(dict.fromkeys(_symbols_of(node)))
    note(func.ret_struct_info)
    return [v for v in found if v not in defined]


def free_symbols(params: Sequence[Var], func: Function) -> list[tir.Var]:
    """Symbolic variables that ``func``, with these parameters, takes from around it."""
    defined = {v for p in params for v in definable_vars(p.struct_info)}
    named = [v for p in params for v in free_symbolic_vars(p.struct_info)]
    return [v for v in dict.fromkeys([*named, *symbols_read(func)]) if v not in defined]


def symbols_of_value(value: Expr) -> Iterator[tir.Var]:
    """Symbolic variables that a plain expression names itself."""
    for node in post_order(value):
        yield from _symbols_of(node)


def _symbols_of(node: Expr) -> Iterator[tir.Var]:
    if isinstance(node, ShapeExpr | PrimValue):
        yield from free_symbolic_vars(node.struct_info_)
    elif isinstance(node, Call):
        for info in node.sinfo_args:
            yield from free_symbolic_vars(info)
        if node.attrs:
            yield from _symbols_of_attr(node.attrs)


def _symbols_of_attr(value: object) -> Iterator[tir.Var]:
    if isinstance(value, tir.PrimExpr):
        yield from tir.free_vars(value)
    elif isinstance(value, StructInfo):
        yield from free_symbolic_vars(value)
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _symbols_of_attr(item)
    elif isinstance(value, tuple):
        for item in value:
            yield from _symbols_of_attr(item)
