"""AttachGlobalSymbol: every function is public."""

from __future__ import annotations

from typing import Any

from relax2xla.errors import TransformError
from relax2xla.ir import Function, GlobalVar, IRModule
from relax2xla.ir.rename import rename_functions
from relax2xla.tir import PrimFunc
from relax2xla.transform.core import Pass, PassContext, register


@register()
class AttachGlobalSymbol(Pass):
    """Make every function public, under its own name (the attribute ``global_symbol``).

    Loop-level functions get the module's attribute ``system_lib_prefix`` before their name, if it
    has one. TransformError where a prefixed name is another function's.
    """

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        prefix = str(mod.attrs.get("system_lib_prefix", ""))
        functions: dict[GlobalVar, Any] = {}
        names: dict[GlobalVar, str] = {}
        for gvar, func in mod.items():
            if not isinstance(func, Function | PrimFunc):
                functions[gvar] = func
                continue
            name = gvar.name_hint if isinstance(func, Function) else prefix + gvar.name_hint
            same = func.attrs.get("global_symbol") == name
            functions[gvar] = func if same else func.with_attr("global_symbol", name)
            if not same and name != gvar.name_hint:
                if name in mod:
                    raise TransformError(
                        f"{gvar.name_hint!r} is to be named {name!r}, which is the name of another "
                        "function; rename one of them"
                    )
                names[gvar] = name
        return rename_functions(mod.replace(functions), names)
