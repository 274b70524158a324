"""Heads of functions in TVMScript: what the decorator says, parameters, declared result."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import Any

from relax2xla import ir
from relax2xla.ir.lattice import signature_info
from relax2xla.script.evaluate import Scope


@dataclass(frozen=True, slots=True)
class Flags:
    """What ``@R.function(...)`` says."""

    private: bool = False
    pure: bool = True
    check_well_formed: bool = True


@dataclass(slots=True)
class Signature:
    """A function's head, evaluated before any body so that functions can call forward."""

    node: ast.FunctionDef
    flags: Flags
    scope: Scope
    params: list[ir.Var]
    ret: ir.StructInfo | None
    attrs: dict[str, Any] = field(default_factory=dict[str, Any])
    # The result is declared as `R.Tuple`: a tuple, of what is not said.
    bare_tuple: bool = False

    def struct_info(self) -> ir.FuncStructInfo:
        """What callers know of the function before its body is parsed."""
        return signature_info(self.params, self.ret or ir.ObjectStructInfo(), self.flags.pure)
