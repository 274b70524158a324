"""DeadCodeElimination: bindings and functions that nothing needs go, unless they have effects."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from relax2xla.analysis.foreign import ForeignCalls
from relax2xla.analysis.unused import remove_all_unused, remove_unused
from relax2xla.analysis.variables import all_global_vars, by_symbol, named_functions
from relax2xla.ir import Call, ExternFunc, Function, GlobalVar, IRModule
from relax2xla.ir.rewrite import post_order_deep
from relax2xla.tir import Call as TirCall
from relax2xla.tir import PrimFunc, Text, post_order
from relax2xla.tir.kernel.use import expressions
from relax2xla.tir.stmt import walk
from relax2xla.transform.core import Pass, PassContext, register


@register(opt_level=1)
class DeadCodeElimination(Pass):
    """Remove unused pure bindings of every function, and functions that none of the others reach.

    Casts (``R.match_cast``) stay: they are checks, and may define symbolic variables.
    Public functions (with ``global_symbol``), those of ``entry_functions`` (names; KeyError for one
    that the module lacks) and what they name stay; none goes where they name a function that is not
    in the module.
    ``keep_foreign``: outside dataflow blocks, calls of packed functions and closures stay, too, and
    those of functions that hold such calls. The pipelines of ``build`` ask for it: what a packed
    function does is seen outside, even where (as of ``call_dps_packed``) its caller promises that
    it is pure. TVM's pass removes these.
    """

    def __init__(
        self, entry_functions: Sequence[str] | None = None, *, keep_foreign: bool = False
    ) -> None:
        self.entry_functions = tuple(entry_functions or ())
        self.keep_foreign = keep_foreign

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        foreign = ForeignCalls(mod)

        def clean(func: Function) -> Function:
            return remove_unused(func, foreign) if self.keep_foreign else remove_all_unused(func)

        mod = self._reached(mod)
        mod = mod.replace({g: clean(f) if isinstance(f, Function) else f for g, f in mod.items()})
        # What they called may be gone now.
        return self._reached(mod)

    def _reached(self, mod: IRModule) -> IRModule:
        """``mod`` without functions that nothing can call."""
        named = [mod.get_global_var(name) for name in self.entry_functions]
        found = dict.fromkeys([*named, *(g for g, f in mod.items() if _is_public(f))])
        if len(found) == len(mod):
            return mod
        symbols = by_symbol(mod)
        todo = list(found)
        while todo:
            gvar = todo.pop()
            if gvar not in mod:
                return mod
            for callee in _named(mod[gvar], mod, symbols):
                if callee not in found:
                    found[callee] = None
                    todo.append(callee)
        kept: dict[GlobalVar, object] = {g: f for g, f in mod.items() if g in found}
        return mod if len(kept) == len(mod) else mod.replace(kept)


def _named(func: object, mod: IRModule, symbols: Mapping[str, GlobalVar]) -> list[GlobalVar]:
    """Functions that ``func`` names; of a loop-level one those that it calls, or may call."""
    if isinstance(func, Function):
        calls = (c for c in post_order_deep(func) if isinstance(c, Call))
        named = [symbols[s] for c in calls for s in named_functions(c) if s in symbols]
        return [*all_global_vars(func), *named]
    if isinstance(func, PrimFunc):
        named = (mod.get_global_var(w) for w in sorted(_words(func)) if w in mod)
        return [g for g in named if isinstance(mod[g], PrimFunc)]
    return []


def _words(func: PrimFunc) -> set[str]:
    """Names that a loop-level function may mean: of a tree its calls, of a text every word."""
    found: set[str] = set()
    for node in walk(func.body):
        if isinstance(node, Text):
            found.update(re.findall(r"\w+", node.text))
        for e in expressions(node):
            if e.children():
                calls = (c for c in post_order(e) if isinstance(c, TirCall))
                found.update(c.op[1:] for c in calls if c.op[0] == "@")
    return found


def _is_public(func: object) -> bool:
    attrs = getattr(func, "attrs", {})
    return isinstance(func, ExternFunc) or attrs.get("global_symbol") is not None
