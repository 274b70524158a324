"""Rows that draw random bits for a model, and not from a state that its author chose.

Such a row has a mark: a number that tells the draws of a program apart. Its operand is the state
that it draws from where nobody gives another; who has a key for the whole program
(``interop.draws``) makes the state of each draw of that key and this number.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from relax2xla.errors import OpError
from relax2xla.ir import Call, Expr, Op, TensorStructInfo
from relax2xla.stablehlo.rows import DISCARDABLE
from relax2xla.tir import Dim

#: How many numbers of draws there are.
DRAWS: Final = 1 << 31
_FRONTEND: Final = "mhlo.frontend_attributes"
_MARK: Final = "relax2xla.draw"
_RNG: Final = "relax.stablehlo.rng"
_BITS: Final = "relax.stablehlo.rng_bit_generator"


def drawn_bits(
    state: Expr, dims: Iterable[Dim], dtype: str, algorithm: str, number: int | None
) -> Expr:
    """``rng_bit_generator``: a tuple of the next state and bits of a shape.

    state:  (2,), uint64
    number: its mark, another one for each draw of a program, below ``DRAWS``; None: no mark
    """
    infos = TensorStructInfo((2,), "uint64"), TensorStructInfo(tuple(dims), dtype)
    mark = None if number is None else {_FRONTEND: {_MARK: str(number)}}
    return Op.get(_BITS)(state, rng_algorithm=algorithm, sinfo_args=infos, **{DISCARDABLE: mark})


def draw_number(call: Call) -> int | None:
    """The number of a draw; None for any other call."""
    if not isinstance(call.op, Op) or call.op.name != _BITS:
        return None
    frontend: Any = (call.attrs.get(DISCARDABLE) or {}).get(_FRONTEND)
    mark = frontend.get(_MARK) if isinstance(frontend, Mapping) else None
    if mark is None:
        return None
    if not str(mark).isdecimal() or int(mark) >= DRAWS:
        raise OpError(f"{call.op.describe(call)}: {_MARK} must be below {DRAWS}; got {mark!r}")
    return int(mark)


def is_draw(expr: Expr) -> bool:
    """Whether an expression draws for the model: with a mark, or of XLA's own generator."""
    if not isinstance(expr, Call) or not isinstance(expr.op, Op):
        return False
    return expr.op.name == _RNG or draw_number(expr) is not None
