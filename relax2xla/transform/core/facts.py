"""Facts of modules that passes require or ensure; checked where the context says so.

Each is a question that a walk over the bindings answers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from relax2xla.ir import (
    Binding,
    Call,
    DTensorStructInfo,
    IRModule,
    Op,
)
from relax2xla.ir.rewrite import bindings_deep
from relax2xla.ir.struct_info import flatten_info
from relax2xla.stablehlo.table import TABLE


@dataclass(frozen=True, slots=True)
class Fact:
    """A property of a module: ``wrong`` says of one binding what breaks it, if anything does."""

    name: str
    meaning: str
    wrong: Callable[[Binding], str | None]

    def broken(self, mod: IRModule) -> str | None:
        """What breaks it, with the function and the binding; None where the fact holds."""
        for gvar, func in mod.relax_functions().items():
            for b in bindings_deep(func):
                if (why := self.wrong(b)) is not None:
                    return f"{gvar.name_hint} has `{b.var.name_hint}`, {why}"
        return None


def _no_row(b: Binding) -> str | None:
    op = b.value.op if isinstance(b.value, Call) else None
    return f"a call of {op.name}" if isinstance(op, Op) and op.name not in TABLE else None


def _distributed(b: Binding) -> str | None:
    found = [] if b.var.struct_info_ is None else flatten_info(b.var.struct_info_)
    spread = any(isinstance(i, DTensorStructInfo) for i in found)
    return "a distributed tensor" if spread else None


ROWS: Final = Fact("rows", "every operator is a row of StableHLO or its dialects", _no_row)
UNDIVIDED: Final = Fact("undivided tensors", "no tensor is distributed", _distributed)
