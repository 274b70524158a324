"""BindSymbolicVars: numbers or expressions in the place of symbolic variables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from relax2xla import tir
from relax2xla.errors import TVMError
from relax2xla.ir import GlobalVar, IRModule
from relax2xla.ir.bind import bind_symbolic_vars, symbolic_vars_of
from relax2xla.tir import Dim
from relax2xla.transform.core import Pass, PassContext, register


@register()
class BindSymbolicVars(Pass):
    """Put sizes in the place of symbolic variables of functions, in all that they hold.

    ``binding_map``: what takes the place of a variable, which is named, or given itself.
    ``func_name``: the only function to change; all where it is None. TVMError for a variable that
    none of the functions has, and for a name that one function has twice.
    """

    def __init__(
        self, binding_map: Mapping[str | tir.Var, Dim], func_name: str | None = None
    ) -> None:
        self.binding_map = dict(binding_map)
        self.func_name = func_name

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        new: dict[GlobalVar, Any] = dict(mod.functions)
        chosen = None if self.func_name is None else mod.get_global_var(self.func_name)
        unused = set(self.binding_map)
        for gvar, func in mod.relax_functions().items():
            if chosen is not None and gvar is not chosen:
                continue
            known = symbolic_vars_of(func)
            keys = {*known, *(v.name for v in known)}
            here = {k: v for k, v in self.binding_map.items() if k in keys}
            unused.difference_update(here)
            if here:
                new[gvar] = bind_symbolic_vars(func, here)
        if unused:
            where = f"the function {self.func_name!r}" if self.func_name else "no function"
            raise TVMError(
                f"{where} has {'not ' if self.func_name else ''}the symbolic variables "
                f"{', '.join(sorted(map(str, unused)))}"
            )
        return mod.replace(new)
