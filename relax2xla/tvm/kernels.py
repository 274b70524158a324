"""What ``tvm.tir`` has beside expressions and functions of scalars: builds, folds, T script."""

from __future__ import annotations

from typing import Any

from relax2xla.script.prim_func.values import FUNCTIONS
from relax2xla.te import comm_reducer as comm_reducer
from relax2xla.te import max as max
from relax2xla.te import min as min
from relax2xla.te import sum as sum
from relax2xla.tir.intrinsic import RULES
from relax2xla.tvm.executables import build as build

# Builtins under T that are tir's, too, with the same parameters; others are in relax2xla.tir.
_BUILTINS = {*RULES, "reinterpret", "likely", "type_annotation"}


def __getattr__(name: str) -> Any:
    if name in _BUILTINS:
        return FUNCTIONS[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_BUILTINS})
