"""How passes know calls of loop-level functions, and functions that became one kernel."""

from __future__ import annotations

from typing import Final

#: Operators whose first argument is a loop-level function and whose second holds its operands.
CALL_TIR: Final = ("relax.call_tir", "relax.call_tir_inplace")
#: The attribute of a function whose body became one kernel, or will.
PRIMITIVE: Final = "Primitive"
