"""``tvm.tir.build`` (a loop-level function, built alone), and functions of scalars: ``tir.exp``."""

from __future__ import annotations

from typing import Any

from relax2xla.script.prim_func.values import FUNCTIONS
from relax2xla.tvm.executables import build as build


def __getattr__(name: str) -> Any:
    """A function of scalars, as ``T`` of TVMScript has it."""
    found = FUNCTIONS.get(name)
    if found is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return found
