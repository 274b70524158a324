"""Symbols of a module that are no functions, such as Shardy's meshes.

Operations refer to them by name, so they belong to every module that is made of functions of the
one that was read. They are kept as text, in the module's attribute ``prelude``: each is its text
or, where functions stand before it, the number of these and its text. Where they come from is in an
attribute of its own, as it does not count when modules are compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from relax2xla.errors import EmitError
from relax2xla.ir.expr import GlobalVar
from relax2xla.ir.module import IRModule
from relax2xla.stablehlo.mlir import first_line, ir

ATTRIBUTE: Final = "prelude"
LOCATIONS: Final = "prelude_locations"
SYMBOL_OPS: Final = frozenset({"sdy.mesh"})


def derived(mod: IRModule, functions: Mapping[GlobalVar, Any]) -> IRModule:
    """A module of ``functions``, made of those of ``mod``, with all that they may refer to.

    What else ``mod`` says of itself (its name, its layouts) is not true of such a part.
    """
    symbols = [s.text for s in symbols_of(mod)]
    return IRModule(dict(functions), {ATTRIBUTE: symbols} if symbols else None)


@dataclass(frozen=True, slots=True)
class Symbol:
    """A symbol: how many functions stand before it, its text, its location ("" for unknown)."""

    before: int
    text: str
    location: str = ""


def symbols_of(mod: IRModule) -> list[Symbol]:
    """The symbols of ``mod`` in order."""
    held = mod.attrs.get(ATTRIBUTE, ())
    where = [*map(str, mod.attrs.get(LOCATIONS, ())), *[""] * len(held)]
    return [
        Symbol(0, s, loc) if isinstance(s, str) else Symbol(int(s[0]), str(s[1]), loc)
        for s, loc in zip(held, where, strict=False)
    ]


def read_symbol(op: Any, before: int) -> Symbol:
    """The symbol that ``op`` is, behind ``before`` functions."""
    text = str(op.get_asm(use_local_scope=True))
    known = not isinstance(op.location, ir.UnknownLoc)
    return Symbol(before, text, str(op.location) if known else "")


def attributes(symbols: Sequence[Symbol]) -> dict[str, Any]:
    """The attributes of a module that has ``symbols``."""
    if not symbols:
        return {}
    made: dict[str, Any] = {
        ATTRIBUTE: [(s.before, s.text) if s.before else s.text for s in symbols]
    }
    if any(s.location for s in symbols):
        made[LOCATIONS] = [s.location for s in symbols]
    return made


def write_symbol(symbol: Symbol, point: ir.InsertionPoint) -> None:
    """Put a symbol at ``point``. Raises EmitError for text that is none."""
    try:
        # Without a location of its own, the text would get its place in itself.
        op = ir.Operation.parse(f"{symbol.text} {symbol.location or 'loc(unknown)'}").operation
    except (ir.MLIRError, ValueError) as e:
        raise EmitError(f"the module's attribute {ATTRIBUTE}: {first_line(e)}") from e
    if op.name not in SYMBOL_OPS:
        known = ", ".join(sorted(SYMBOL_OPS))
        raise EmitError(f"the module's attribute {ATTRIBUTE} holds {op.name}; it may hold {known}")
    point.insert(op)
