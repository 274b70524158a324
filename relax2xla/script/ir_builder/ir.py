"""``I`` for IRBuilder: modules, and what they hold beside the bodies of functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from relax2xla import tir
from relax2xla.errors import BuilderError
from relax2xla.ir.base import DummyGlobalInfo, VDevice
from relax2xla.ir.expr import ExternFunc, Function, GlobalVar
from relax2xla.ir.module import BaseFunc, IRModule
from relax2xla.script.ir_builder.base import IRBuilderFrame, want
from relax2xla.script.ir_names import vdevice as vdevice


class IRModuleFrame(IRBuilderFrame):
    """A module under construction.

    ``functions`` by GlobalVar, ``global_vars`` by name; ``attrs``; ``global_infos``.
    """

    def __init__(self) -> None:
        super().__init__()
        self.functions: dict[GlobalVar, BaseFunc] = {}
        self.global_vars: dict[str, GlobalVar] = {}
        self.defined: set[str] = set()
        self.attrs: dict[str, Any] = {}
        self.global_infos: dict[str, tuple[Any, ...]] = {}

    def declare(self, name: str, signature: BaseFunc) -> GlobalVar:
        """The GlobalVar of a function to be defined later."""
        if name in self.global_vars:
            raise BuilderError(f"the module has a function {name!r} already")
        gvar = GlobalVar(name, getattr(signature, "struct_info_", None))
        self.global_vars[name] = gvar
        self.functions[gvar] = signature
        return gvar

    def define(self, name: str, func: BaseFunc) -> None:
        """Give a declared function its body; once."""
        gvar = self.global_vars.get(name)
        if gvar is None:
            raise BuilderError(f"the function {name!r} is not declared; use decl_function first")
        if name in self.defined:
            raise BuilderError(f"the function {name!r} is defined twice")
        self.defined.add(name)
        self.functions[gvar] = func
        gvar.struct_info_ = getattr(func, "struct_info_", None)

    def exit(self) -> None:
        self.builder.finish(IRModule(self.functions, self.attrs, self.global_infos))


def ir_module() -> IRModuleFrame:
    """The frame of a module, for ``with``."""
    return IRModuleFrame()


def current_ir_module() -> IRModuleFrame:
    """The module under construction."""
    return want(IRModuleFrame, "current_ir_module", "I.ir_module()")


def decl_function(func_name: str, func_signature: BaseFunc) -> GlobalVar:
    """Declare a function, so that others can call it; gives its GlobalVar.

    ``func_signature`` stands in the module until :func:`def_function`, or ``R.function()`` with
    this name, gives another (``Function.create_empty`` makes one without a body). Raises
    ValueError where it is no function.
    """
    if not isinstance(func_signature, Function | ExternFunc | tir.PrimFunc):
        raise ValueError(
            "decl_function takes a Function, ExternFunc or PrimFunc; "
            f"got {type(func_signature).__name__}"
        )
    return want(IRModuleFrame, "decl_function", "I.ir_module()").declare(func_name, func_signature)


def def_function(func_name: str, func: BaseFunc) -> None:
    """Define the function that :func:`decl_function` has declared."""
    want(IRModuleFrame, "def_function", "I.ir_module()").define(func_name, func)


def module_attrs(attrs: Mapping[str, Any], allow_overwrite: bool = False) -> None:
    """Give the module its attributes; once, unless ``allow_overwrite``."""
    frame = want(IRModuleFrame, "module_attrs", "I.ir_module()")
    if frame.attrs and not allow_overwrite:
        raise BuilderError(f"the module has attributes already: {', '.join(frame.attrs)}")
    frame.attrs = dict(attrs)


def module_get_attrs() -> dict[str, Any]:
    """The attributes of the module under construction."""
    return dict(want(IRModuleFrame, "module_get_attrs", "I.ir_module()").attrs)


def module_get_attr(attr_key: str) -> Any:
    """One attribute of the module under construction, or None."""
    return want(IRModuleFrame, "module_get_attr", "I.ir_module()").attrs.get(attr_key)


def module_set_attr(attr_key: str, attr_value: Any, allow_overwrite: bool = False) -> None:
    """Set one attribute; None removes it. It must be new unless ``allow_overwrite``."""
    attrs = want(IRModuleFrame, "module_set_attr", "I.ir_module()").attrs
    if attr_key in attrs and not allow_overwrite:
        raise BuilderError(f"the module has the attribute {attr_key!r} already")
    if attr_value is None:
        attrs.pop(attr_key, None)
    else:
        attrs[attr_key] = attr_value


def module_global_infos(global_infos: Mapping[str, Sequence[Any]]) -> None:
    """Give the module its global infos: lists of devices and meshes by name; once."""
    frame = want(IRModuleFrame, "module_global_infos", "I.ir_module()")
    if frame.global_infos:
        raise BuilderError(f"the module has global infos already: {', '.join(frame.global_infos)}")
    frame.global_infos = {name: tuple(infos) for name, infos in global_infos.items()}


def dummy_global_info() -> DummyGlobalInfo:
    """A global info without content."""
    return DummyGlobalInfo()


def lookup_vdevice(target_kind: str | None = None, device_index: int = -1) -> VDevice:
    """A virtual device of the module under construction.

    ``device_index`` counts those of ``target_kind``, or all where that is None or "vdevice"; -1 is
    the first.
    Raises BuilderError where there is none.
    """
    frame = want(IRModuleFrame, "lookup_vdevice", "I.ir_module()")
    devices = [d for d in frame.global_infos.get("vdevice", ()) if isinstance(d, VDevice)]
    fit = [d for d in devices if target_kind in (None, "vdevice", d.kind)]
    if not -1 <= device_index < len(fit):
        known = ", ".join(map(str, devices)) or "none"
        raise BuilderError(f"there is no {target_kind}:{device_index}; the module has {known}")
    return fit[max(device_index, 0)]
