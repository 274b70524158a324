"""What is said of a parameter, of a model and of a saved executable alike."""

from __future__ import annotations

from typing import Any

from relax2xla.ir import Var
from relax2xla.ir.source_names import source_name
from relax2xla.ir.struct_info import show


def parameter(p: Var) -> dict[str, Any]:
    """Its name in Relax, that of its source, and its struct info."""
    own = source_name(p) or p.name_hint
    return {"name": p.name_hint, "source_name": own, "struct_info": show(p.struct_info)}
