"""What ``tvm.tir`` has beside expressions and functions of scalars: builds, folds, T script."""

from __future__ import annotations

from typing import Any

import numpy as np

from relax2xla.script.prim_func.values import FUNCTIONS
from relax2xla.te import comm_reducer as comm_reducer
from relax2xla.te import max as max
from relax2xla.te import min as min
from relax2xla.te import sum as sum
from relax2xla.tir import Broadcast, PrimExpr, element_of, lanes_of
from relax2xla.tir import const as tir_const
from relax2xla.tir.convert import as_expr
from relax2xla.tir.intrinsic import RULES
from relax2xla.tvm.runtime.executables import build as build

# Builtins under T that are tir's, too, with the same parameters; others are in relax2xla.tir.
_BUILTINS = {*RULES, "likely", "type_annotation"}
reinterpret = FUNCTIONS["reinterpret"]
all = FUNCTIONS["all"]
any = FUNCTIONS["any"]


def const(value: Any, dtype: str | None = None) -> PrimExpr:
    """A literal; without a dtype that of a numpy scalar, and int32, float32 or bool of Python's."""
    if dtype is None:
        if isinstance(value, np.generic):
            dtype, value = str(value.dtype), value.item()
        else:
            return as_expr(value)
    lanes = lanes_of(dtype)
    made = tir_const(value, element_of(dtype))
    return made if lanes == 1 else Broadcast(made, lanes)


def __getattr__(name: str) -> Any:
    if name in _BUILTINS:
        return FUNCTIONS[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_BUILTINS})
