"""Functions of scalar expressions under the names of ``tvm.te`` and ``tvm.tir``: ``te.exp(x[i])``.

They are those of ``T`` in TVMScript. A Python number beside an expression is taken in its dtype, an
int alone is an int32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from relax2xla.script.prim_func.values import FUNCTIONS
from relax2xla.tir.binary import Add, Mul, Sub

_NAMES: Final = """
abs acos acosh asin asinh atan atan2 atanh bitwise_and bitwise_not bitwise_or bitwise_xor
call_extern call_intrin call_packed call_pure_extern cast ceil clz copysign cos cosh erf exp exp10
exp2 fabs floor floordiv floormod fmod hypot if_then_else infinity
isfinite isinf isnan ldexp likely log log10 log1p log2 max_value
min_value nearbyint nextafter popcount pow power ret round rsqrt shift_left shift_right sigmoid sin
sinh sqrt tan tanh trunc tvm_storage_sync tvm_thread_allreduce tvm_thread_invariant
"""
_TABLE: Final[dict[str, Callable[..., Any]]] = {
    **{name: FUNCTIONS[name] for name in _NAMES.split()},
    "add": Add.make,
    "subtract": Sub.make,
    "multiply": Mul.make,
}
NAMES: Final = tuple(_TABLE)


def __getattr__(name: str) -> Callable[..., Any]:
    if name not in _TABLE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _TABLE[name]


def __dir__() -> list[str]:
    return sorted(NAMES)
