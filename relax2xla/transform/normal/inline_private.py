"""InlinePrivateFunctions: what only the module itself can call becomes part of its callers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from relax2xla.analysis.unused import remove_all_unused
from relax2xla.analysis.variables import all_global_vars, detect_recursion, named_functions
from relax2xla.errors import TransformError
from relax2xla.ir import Call, Function, GlobalVar, IRModule
from relax2xla.ir.rewrite import post_order_deep
from relax2xla.transform.core import Pass, PassContext, register
from relax2xla.transform.normal.canonicalize import canonical
from relax2xla.transform.normal.inline import calls_and_values, inline_calls


@register()
class InlinePrivateFunctions(Pass):
    """Inline all calls of private functions, and remove these.

    Recursive functions stay, and so do those that are passed around as values or that attributes of
    StableHLO rows name. Callers are left without copies and dead code.
    """

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        kept = {g.name_hint for group in detect_recursion(mod) for g in group}
        kept |= calls_and_values(mod)[1] | _named_by_rows(mod)
        private = {
            g.name_hint: f
            for g, f in mod.relax_functions().items()
            if "global_symbol" not in f.attrs and g.name_hint not in kept
        }
        if not private:
            return mod
        new: dict[GlobalVar, Any] = {}
        for gvar, func in mod.items():
            if gvar.name_hint not in private:
                new[gvar] = _inlined(func, private) if isinstance(func, Function) else func
        return mod.replace(new)


def inline_functions(func: Function, function_map: Mapping[Any, Function]) -> Function:
    """See :meth:`relax2xla.ir.Function.inline_functions`."""
    callees: dict[str, Function] = {}
    for key, callee in function_map.items():
        name = key if isinstance(key, str) else key.name_hint
        if name in callees:
            raise ValueError(
                f"the functions to inline hold {name!r} twice, as a name and as a GlobalVar; give "
                "one of them"
            )
        callees[name] = callee
    _refuse_recursion(func, callees)
    return _inlined(func, callees)


def _inlined(func: Function, callees: Mapping[str, Function]) -> Function:
    _check_counts(func, callees)
    new = inline_calls(func, callees)
    return func if new is func else remove_all_unused(canonical(new))


def _check_counts(func: Function, callees: Mapping[str, Function]) -> None:
    for caller in (func, *callees.values()):
        for node in post_order_deep(caller):
            if not isinstance(node, Call) or not isinstance(node.op, GlobalVar):
                continue
            callee = callees.get(node.op.name_hint)
            if callee is not None and len(callee.params) != len(node.args):
                raise TransformError(
                    f"{node.op.name_hint} takes {len(callee.params)} arguments and is called with "
                    f"{len(node.args)}; it cannot be inlined"
                )


def _refuse_recursion(func: Function, callees: Mapping[str, Function]) -> None:
    """TransformError where a function that ``func`` calls reaches itself."""
    calls: dict[str, set[str]] = {}
    todo = [func]
    while todo:
        for gvar in all_global_vars(todo.pop()):
            name = gvar.name_hint
            if name in callees and name not in calls:
                found = {g.name_hint for g in all_global_vars(callees[name])}
                calls[name] = found & callees.keys()
                todo.append(callees[name])
    while calls:
        ends = [name for name, found in calls.items() if not found & calls.keys()]
        if not ends:
            raise TransformError(
                f"{', '.join(calls)} cannot be inlined, for their calls go round in a circle; "
                "leave one of them out"
            )
        for name in ends:
            del calls[name]


def _named_by_rows(mod: IRModule) -> set[str]:
    return {
        symbol
        for func in mod.relax_functions().values()
        for node in post_order_deep(func)
        if isinstance(node, Call)
        for symbol in named_functions(node)
    }
