"""Modules in files: names that text can have, and texts whose metadata stay arrays beside it."""

from __future__ import annotations

import keyword
from typing import Any

from relax2xla.ir.expr import Function, GlobalVar
from relax2xla.ir.module import IRModule
from relax2xla.ir.rename import rename_functions
from relax2xla.ir.source_names import identifier
from relax2xla.script.printer import _Printer  # pyright: ignore[reportPrivateUsage]


def with_names_of_text(mod: IRModule) -> IRModule:
    """``mod`` with functions whose names are identifiers; itself where all are.

    Attributes that name a function by another name find it by its symbol.
    """
    odd = [g for g in mod.functions if not _is_identifier(g.name_hint)]
    if not odd:
        return mod
    taken = {g.name_hint for g in mod.functions}
    names: dict[GlobalVar, str] = {}
    for gvar in odd:
        names[gvar] = made = identifier(gvar.name_hint, taken, prefix="function")
        taken.add(made)
    renamed = rename_functions(mod, names)
    old = {name: gvar.name_hint for gvar, name in names.items()}
    return renamed.replace(
        {
            g: f.with_attr("sym_name", old[g.name_hint])
            if isinstance(f, Function) and g.name_hint in old and "sym_name" not in f.attrs
            else f
            for g, f in renamed.functions.items()
        }
    )


def _is_identifier(name: str) -> bool:
    return name.isidentifier() and not keyword.iskeyword(name)


def script_tables(node: Any) -> tuple[str, dict[str, list[Any]]]:
    """The text of ``node`` without its metadata section, and the tables that this would hold.

    ``from_source(text, {"metadata": tables})`` gives the node back, with the same arrays.
    """
    printer = _Printer(show_sources=True)
    text = printer.text(node)
    return text, printer.tables
