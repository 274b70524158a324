"""BindParams: parameters of a function become constants."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from relax2xla.errors import TransformError
from relax2xla.ir import Function, GlobalVar, IRModule, Var
from relax2xla.transform.core import Pass, PassContext, register


@register()
class BindParams(Pass):
    """Replace parameters of the function ``func_name`` by values, as ``Function.bind_params`` does.

    ``params``: values (arrays of numpy, torch or jax, constants) by parameter or by its name. The
    pass raises TransformError if the module has no function ``func_name``, and TVMError for keys
    that do not name exactly one parameter and for values that do not fit theirs.
    """

    def __init__(self, func_name: str, params: Mapping[Var | str, Any]) -> None:
        self.func_name, self.params = func_name, dict(params)

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        found = selected(mod, self.func_name, self.info.name)
        new = {gvar: func.bind_params(self.params) for gvar, func in found.items()}
        return mod.replace({**dict(mod.items()), **new})


def selected(mod: IRModule, name: str | None, what: str) -> dict[GlobalVar, Function]:
    """The Relax function ``name`` of a module, None for all; ``what`` is the pass that asks."""
    functions = mod.relax_functions()
    if name is None:
        return dict(functions)
    found = {g: f for g, f in functions.items() if g.name_hint == name}
    if not found:
        names = ", ".join(sorted(g.name_hint for g in functions)) or "none"
        raise TransformError(f"{what}: the module has no Relax function {name!r}; it has {names}")
    return found
