"""UpdateParamStructInfo: parameters of other shapes and dtypes."""

from __future__ import annotations

from collections.abc import Callable

from relax2xla.dpl.emit import refitted
from relax2xla.ir import Function, IRModule, StructInfo, Var
from relax2xla.ir.rewrite import Rewriter
from relax2xla.transform.core import FunctionPass, PassContext, register


@register(opt_level=1)
class UpdateParamStructInfo(FunctionPass):
    """Give parameters other struct infos, and everything computed from them what follows.

    ``sinfo_func``: asked of every parameter, those of local functions too; gives its new struct
    info, or None where it stays (TypeError for anything else). Raises what the inference of
    operators raises where the new ones do not fit.
    """

    def __init__(self, sinfo_func: Callable[[Var], StructInfo | None]) -> None:
        self.sinfo_func = sinfo_func

    def transform_function(self, func: Function, mod: IRModule, context: PassContext) -> Function:
        return _Updater(self.sinfo_func).function(func)


@register(opt_level=1)
class UpdateParamType(UpdateParamStructInfo):
    """UpdateParamStructInfo by its name since TVM 0.26, where a struct info is called a type."""

    def __init__(self, ty_func: Callable[[Var], StructInfo | None]) -> None:
        super().__init__(ty_func)


class _Updater(Rewriter):
    def __init__(self, sinfo_func: Callable[[Var], StructInfo | None]) -> None:
        super().__init__()
        self.sinfo_func = sinfo_func

    def function(self, func: Function) -> Function:
        params: list[Var] = []
        for p in func.params:
            info = self.sinfo_func(p)
            if info is None or info == p.struct_info_:
                params.append(p)
                continue
            if not isinstance(info, StructInfo):
                raise TypeError(
                    f"sinfo_func must give a StructInfo or None; got {type(info).__name__} for "
                    f"{p.name_hint}"
                )
            self.env[p] = new = type(p)(p.name_hint, info, p.span)
            params.append(new)
        changed = any(a is not b for a, b in zip(params, func.params, strict=True))
        new_func = super().function(func.replace(params=params) if changed else func)
        return func if new_func is func else refitted(new_func)
