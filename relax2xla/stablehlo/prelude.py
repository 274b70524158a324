"""Symbols of a module that are no functions, such as Shardy's meshes.

Operations refer to them by name, so they belong to every module that is made of functions of the
one that was read. They are kept as text, in the module's attribute ``prelude``: each is its text
or, where functions stand before it, the number of these and its text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from relax2xla.errors import EmitError
from relax2xla.ir.expr import GlobalVar
from relax2xla.ir.module import IRModule
from relax2xla.stablehlo.mlir import first_line, ir

ATTRIBUTE: Final = "prelude"
SYMBOL_OPS: Final = frozenset({"sdy.mesh"})


def derived(mod: IRModule, functions: Mapping[GlobalVar, Any]) -> IRModule:
    """A module of ``functions``, made of those of ``mod``, with all that they may refer to.

    What else ``mod`` says of itself (its name, its layouts) is not true of such a part.
    """
    symbols = [text for _, text in symbols_of(mod)]
    return IRModule(dict(functions), {ATTRIBUTE: symbols} if symbols else None)


def symbols_of(mod: IRModule) -> list[tuple[int, str]]:
    """The symbols of ``mod``: how many functions stand before each, and its text."""
    held = mod.attrs.get(ATTRIBUTE, ())
    return [(0, s) if isinstance(s, str) else (int(s[0]), str(s[1])) for s in held]


def read_symbol(op: Any, before: int) -> str | tuple[int, str]:
    """A symbol that stands behind ``before`` functions, as the attribute holds it."""
    text = str(op.get_asm(enable_debug_info=True, use_local_scope=True))
    text = text.removesuffix(" loc(unknown)")
    return (before, text) if before else text


def write_symbol(text: str, point: ir.InsertionPoint) -> None:
    """Put a symbol at ``point``. Raises EmitError for text that is none."""
    try:
        # Without a location of its own, the text would get its place in itself.
        op = ir.Operation.parse(text if text.endswith(")") else f"{text} loc(unknown)").operation
    except (ir.MLIRError, ValueError) as e:
        raise EmitError(f"the module's attribute {ATTRIBUTE}: {first_line(e)}") from e
    if op.name not in SYMBOL_OPS:
        known = ", ".join(sorted(SYMBOL_OPS))
        raise EmitError(f"the module's attribute {ATTRIBUTE} holds {op.name}; it may hold {known}")
    point.insert(op)
