"""IRModule: named functions, with attributes and global information."""

from __future__ import annotations

import importlib
from collections.abc import ItemsView, Iterator, KeysView, Mapping, Sequence, ValuesView
from typing import Any, Final

from relax2xla.errors import TVMError
from relax2xla.ir import late
from relax2xla.ir.base import EMPTY_ATTRS, Attrs, Node, Scriptable
from relax2xla.ir.expr import Expr, Function, GlobalVar
from relax2xla.ir.kernel_info import kernel_info
from relax2xla.tir import PrimFunc, Text

BaseFunc = Any  # Function | PrimFunc | ExternFunc
Functions = (
    Mapping[GlobalVar, BaseFunc] | Mapping[str, BaseFunc] | Mapping[GlobalVar | str, BaseFunc]
)


# Attributes of a module that say where it comes from, as spans say it of expressions.
PLACES: Final = ("location", "prelude_locations")


class IRModule(Node, Scriptable):
    """Functions by GlobalVar, in order. ``mod["main"]`` looks up by name.

    Adding a function updates the struct info of its GlobalVar. Passes give new modules; the one
    that a user holds changes only through its own ``mod[...] = f`` and ``update_func``.
    """

    __slots__ = ("__weakref__", "_by_name", "attrs", "functions", "global_infos")
    functions: dict[GlobalVar, BaseFunc]
    attrs: Attrs
    global_infos: dict[str, tuple[Any, ...]]

    def __init__(
        self,
        functions: Functions | None = None,
        attrs: Mapping[str, Any] | None = None,
        global_infos: Mapping[str, Any] | None = None,
    ) -> None:
        self.functions = {}
        self._by_name: dict[str, GlobalVar] = {}
        self.attrs = attrs if isinstance(attrs, Attrs) else Attrs(attrs) if attrs else EMPTY_ATTRS
        self.global_infos = {k: tuple(v) for k, v in (global_infos or {}).items()}
        for name, func in (functions or {}).items():
            self[name] = func

    @staticmethod
    def from_expr(expr: Function | PrimFunc) -> IRModule:
        """A module of one function, under its ``global_symbol`` or the name "main"."""
        symbol = expr.attrs.get("global_symbol", "main")
        return IRModule({str(symbol): expr})

    def __getitem__(self, name: str | GlobalVar) -> Any:
        return self.functions[self.get_global_var(name) if isinstance(name, str) else name]

    def __setitem__(self, name: str | GlobalVar, func: BaseFunc) -> None:
        if isinstance(name, str):
            gvar = self._by_name.get(name) or GlobalVar(name)
        else:
            gvar = name
            known = self._by_name.get(gvar.name_hint)
            if known is not None and known is not gvar:
                raise TVMError(f"the module already has another function named {gvar.name_hint!r}")
        self._by_name[gvar.name_hint] = gvar
        self.functions[gvar] = func
        if isinstance(func, Expr) and func.struct_info_ is not None:
            gvar.struct_info_ = func.struct_info_
        elif isinstance(func, PrimFunc) and not isinstance(func.body, Text):
            gvar.struct_info_ = kernel_info(func)

    def __delitem__(self, name: str | GlobalVar) -> None:
        gvar = self.get_global_var(name) if isinstance(name, str) else name
        del self.functions[gvar]
        del self._by_name[gvar.name_hint]

    def __contains__(self, name: str | GlobalVar) -> bool:
        return name in self._by_name if isinstance(name, str) else name in self.functions

    def __iter__(self) -> Iterator[GlobalVar]:
        return iter(self.functions)

    def __len__(self) -> int:
        return len(self.functions)

    def keys(self) -> KeysView[GlobalVar]:
        """GlobalVars in order."""
        return self.functions.keys()

    def values(self) -> ValuesView[BaseFunc]:
        """Functions in order."""
        return self.functions.values()

    def items(self) -> ItemsView[GlobalVar, BaseFunc]:
        """Pairs of GlobalVar and function in order."""
        return self.functions.items()

    def get_global_var(self, name: str) -> GlobalVar:
        """The GlobalVar named ``name``; KeyError with the names there are."""
        if name not in self._by_name:
            names = ", ".join(self._by_name) or "none"
            raise KeyError(f"the module has no function {name!r}; it has {names}")
        return self._by_name[name]

    def get_global_vars(self) -> list[GlobalVar]:
        """All GlobalVars in order."""
        return list(self.functions)

    def functions_items(self) -> list[tuple[GlobalVar, BaseFunc]]:
        """Pairs sorted by name, as TVM lists them."""
        return sorted(self.functions.items(), key=lambda kv: kv[0].name_hint)

    def relax_functions(self) -> dict[GlobalVar, Function]:
        """The Relax functions in order."""
        return {g: f for g, f in self.functions.items() if isinstance(f, Function)}

    def update_func(self, gvar: GlobalVar, func: BaseFunc) -> None:
        """Replace the function of ``gvar``."""
        self[gvar] = func

    def update(self, other: IRModule | Functions) -> None:
        """Add or replace functions by name."""
        for gvar, func in other.items():
            self[gvar if isinstance(gvar, str) else gvar.name_hint] = func

    def update_global_info(self, name: str, global_info: Sequence[Any]) -> None:
        """Put the list ``global_info`` (of devices, of meshes) under ``name``."""
        self.global_infos[name] = tuple(global_info)

    def replace(self, functions: Mapping[GlobalVar, BaseFunc]) -> IRModule:
        """A module with these functions and the attributes of this one."""
        return IRModule(dict(functions), self.attrs, self.global_infos)

    def with_attr(self, key: str, value: Any) -> IRModule:
        """A copy with one attribute set."""
        return self.with_attrs({key: value})

    def with_attrs(self, attrs: Mapping[str, Any]) -> IRModule:
        """A copy with these attributes set."""
        return IRModule(dict(self.functions), {**self.attrs, **attrs}, self.global_infos)

    def without_attr(self, key: str) -> IRModule:
        """A copy without the attribute ``key``."""
        rest = {k: v for k, v in self.attrs.items() if k != key}
        return IRModule(dict(self.functions), rest, self.global_infos)

    def get_attr(self, key: str) -> Any:
        """The attribute ``key`` or None."""
        return self.attrs.get(key)

    @property
    def meaning(self) -> dict[str, Any]:
        """The attributes, without those that say where the module comes from."""
        return {k: v for k, v in self.attrs.items() if k not in PLACES}

    def replace_global_vars(
        self, replacements: Mapping[str | GlobalVar, str | GlobalVar]
    ) -> IRModule:
        """A module with functions under other names; see ``relax2xla.ir.rename``."""
        return late.replace_global_vars.call(self, replacements)

    def same_as(self, other: object) -> bool:
        """Whether ``other`` is this very module."""
        return self is other

    def clone(self) -> IRModule:
        """A new module with the same functions."""
        return self.replace(self.functions)

    def __repr__(self) -> str:
        return self.script()

    __str__ = __repr__

    def _repr_html_(self) -> str:
        """What a notebook shows: each function under its signature."""
        html = importlib.import_module("relax2xla.script.html")
        relax = self.relax_functions()
        parts = [
            html.program(
                html.signature(gvar.name_hint, relax[gvar]),
                relax[gvar].script(name=gvar.name_hint),
            )
            if gvar in relax
            else html.program(gvar.name_hint, str(func))
            for gvar, func in self.items()
        ]
        return html.joined(f"IRModule of {len(parts)} function{'s' * (len(parts) != 1)}", parts)
