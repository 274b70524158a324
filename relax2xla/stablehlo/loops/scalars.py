"""Operations on elements: the nodes and intrinsics of TIR as rows.

Integers divide as in TIR (towards minus infinity, or towards zero) and wrap. ``min(a, b)`` of
floats is ``a < b ? a : b`` as in TVM's code: the second operand where one is NaN. Reductions with
them (accumulate.py) have no such order, and give NaN if there is one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from relax2xla import tir
from relax2xla.dtypes import dtype_info
from relax2xla.ir.expr import Call, Constant, Expr
from relax2xla.ir.op import Op
from relax2xla.op.shared.lowering import (
    chlo,
    compare,
    convert,
    dtype_of,
    full_like,
    hlo,
    select,
    shape_of,
    tensor_info,
)

Rule = Callable[..., Expr]


def row(name: str) -> Rule:
    """The row of that name as a rule."""
    return lambda *operands: hlo(name, *operands)


def _chlo(name: str) -> Rule:
    return lambda *operands: chlo(name, *operands)


def _compared(direction: str) -> Rule:
    return lambda a, b: compare(a, b, direction)


def _is(dtype: str, *kinds: str) -> bool:
    return dtype_info(dtype).kind in kinds


def _power_of_two(b: Expr) -> int | None:
    """The exponent, where ``b`` is one power of two everywhere."""
    if not isinstance(b, Constant) or b.data.size == 0:
        return None
    if any(step for step, n in zip(b.data.strides, b.data.shape, strict=True) if n > 1):
        return None
    value = int(b.data.reshape(-1)[0]) if b.data.ndim else int(b.data)
    return value.bit_length() - 1 if value > 0 and value & (value - 1) == 0 else None


def floor_divide(a: Expr, b: Expr) -> Expr:
    """``a / b`` towards minus infinity."""
    if not _is(dtype_of(a), "int"):
        return hlo("divide", a, b)
    exponent = _power_of_two(b)
    if exponent is not None:
        return hlo("shift_right_arithmetic", a, full_like(a, exponent))
    quotient, rest = hlo("divide", a, b), hlo("remainder", a, b)
    zero = full_like(a, 0)
    below = hlo("xor", compare(rest, zero, "LT"), compare(b, zero, "LT"))
    off = hlo("and", below, compare(rest, zero, "NE"))
    return select(off, hlo("subtract", quotient, full_like(a, 1)), quotient)


def floor_remainder(a: Expr, b: Expr) -> Expr:
    """The remainder of :func:`floor_divide`; it has the sign of ``b``."""
    if not _is(dtype_of(a), "int"):
        return hlo("remainder", a, b)
    exponent = _power_of_two(b)
    if exponent is not None:
        return hlo("and", a, full_like(a, (1 << exponent) - 1))
    rest, zero = hlo("remainder", a, b), full_like(a, 0)
    below = hlo("xor", compare(rest, zero, "LT"), compare(b, zero, "LT"))
    off = hlo("and", below, compare(rest, zero, "NE"))
    return select(off, hlo("add", rest, b), rest)


_EXACT: Final = ContextVar("exact quotients", default=False)


@contextmanager
def exact_quotients(wanted: bool) -> Generator[None]:
    """Let :func:`divide_exactly` do so, where ``wanted``: XLA runs on a CPU.

    XLA multiplies with the reciprocal of a divisor that repeats itself, which is one rounding off.
    XLA:CPU does not see through a barrier when it does that, and fuses all the same later; on
    other platforms a barrier would keep the repeated divisor in memory.
    """
    token = _EXACT.set(wanted)
    try:
        yield
    finally:
        _EXACT.reset(token)


def divide_exactly(a: Expr, b: Expr) -> Expr:
    """``a / b``, of floats rounded once, as in TVM's code."""
    if _EXACT.get() and _is(dtype_of(a), "float") and _is_repeated(b):
        b = hlo("optimization_barrier", b)
    return hlo("divide", a, b)


def _is_repeated(x: Expr) -> bool:
    """Whether XLA sees that ``x`` repeats what has an inexact reciprocal."""
    if isinstance(x, Constant):
        first = x.data.reshape(-1)[:1].astype("float64")
        one = all(step == 0 for step, n in zip(x.data.strides, x.data.shape, strict=True) if n > 1)
        return not (one and first.size and abs(math.frexp(float(first[0]))[0]) == 0.5)
    return isinstance(x, Call) and x.op is Op.get("relax.stablehlo.broadcast_in_dim")


def _extremum(name: str, direction: str) -> Rule:
    def rule(a: Expr, b: Expr) -> Expr:
        if _is(dtype_of(a), "float"):
            return select(compare(a, b, direction), a, b)
        return hlo(name, a, b)

    return rule


def _shift_right(a: Expr, b: Expr) -> Expr:
    arithmetic = _is(dtype_of(a), "int")
    return hlo("shift_right_arithmetic" if arithmetic else "shift_right_logical", a, b)


NODES: Final[dict[type[tir.PrimExpr], Rule]] = {
    tir.Add: row("add"),
    tir.Sub: row("subtract"),
    tir.Mul: row("multiply"),
    tir.Div: row("divide"),
    tir.Mod: row("remainder"),
    tir.FloorDiv: floor_divide,
    tir.FloorMod: floor_remainder,
    tir.Min: _extremum("minimum", "LT"),
    tir.Max: _extremum("maximum", "GT"),
    tir.EQ: _compared("EQ"),
    tir.NE: _compared("NE"),
    tir.LT: _compared("LT"),
    tir.LE: _compared("LE"),
    tir.GT: _compared("GT"),
    tir.GE: _compared("GE"),
    tir.And: row("and"),
    tir.Or: row("or"),
    tir.Not: row("not"),
}


def _power(base: float) -> Rule:
    return lambda x: hlo("power", full_like(x, base), x)


def _log(base: float) -> Rule:
    return lambda x: hlo("multiply", hlo("log", x), full_like(x, 1 / math.log(base)))


def _same_if_integer(rule: Rule) -> Rule:
    return lambda x: rule(x) if _is(dtype_of(x), "float") else x


def _trunc(x: Expr) -> Expr:
    return select(compare(x, full_like(x, 0), "LT"), hlo("ceil", x), hlo("floor", x))


def _copysign(x: Expr, sign: Expr) -> Expr:
    bits = tensor_info(shape_of(sign), f"int{dtype_info(dtype_of(sign)).bits}")
    flipped = hlo("bitcast_convert", sign, out=bits)
    negative = compare(flipped, full_like(flipped, 0), "LT")
    size = hlo("abs", x)
    return select(negative, hlo("negate", size), size)


def _power_of_float64(exponent: Expr) -> Expr:
    """Two to the power of an int64 from -1022 to 1023, exactly: the bits of it."""
    biased = hlo("add", exponent, full_like(exponent, 1023))
    bits = hlo("shift_left", biased, full_like(exponent, 52))
    return hlo("bitcast_convert", bits, out=tensor_info(shape_of(bits), "float64"))


def _within(x: Expr, low: int, high: int) -> Expr:
    return hlo("minimum", hlo("maximum", x, full_like(x, low)), full_like(x, high))


def _ldexp(x: Expr, exponent: Expr) -> Expr:
    """``x`` times a power of two, rounded once: in float64, which has room for smaller floats.

    A step that is not the last leaves 53 bits above what is subnormal, or what is left is zero.
    """
    made, left = convert(x, "float64"), convert(exponent, "int64")
    for _ in range(2):
        far = compare(left, full_like(left, -1022), "LT")
        step = select(far, full_like(left, -969), _within(left, -1022, 1023))
        made = hlo("multiply", made, _power_of_float64(step))
        left = hlo("subtract", left, step)
    return convert(
        hlo("multiply", made, _power_of_float64(_within(left, -1022, 1023))), dtype_of(x)
    )


def _hypot(x: Expr, y: Expr) -> Expr:
    return hlo("sqrt", hlo("add", hlo("multiply", x, x), hlo("multiply", y, y)))


def _is_inf(x: Expr) -> Expr:
    return compare(hlo("abs", x), full_like(x, math.inf), "EQ")


def _abs(x: Expr) -> Expr:
    return x if _is(dtype_of(x), "uint", "bool") else hlo("abs", x)


_UNARY: Final = {
    "exp": "exponential",
    "log": "log",
    "log1p": "log_plus_one",
    "expm1": "exponential_minus_one",
    "sqrt": "sqrt",
    "rsqrt": "rsqrt",
    "tanh": "tanh",
    "sigmoid": "logistic",
    "sin": "sine",
    "cos": "cosine",
    "tan": "tan",
    "isfinite": "is_finite",
    "popcount": "popcnt",
    "bitwise_not": "not",
    "logical_not": "not",
    "bitwise_and": "and",
    "bitwise_or": "or",
    "bitwise_xor": "xor",
    "shift_left": "shift_left",
    "atan2": "atan2",
    "pow": "power",
    "power": "power",
    "fmod": "remainder",
    "truncmod": "remainder",
    "truncdiv": "divide",
}

_FLOATS = """
exp exp2 exp10 expm1 log log2 log10 log1p sqrt rsqrt tanh sigmoid sin cos tan sinh cosh asin acos
atan asinh acosh atanh atan2 erf isfinite nextafter copysign hypot
"""
OPERANDS: Final = {
    **dict.fromkeys(_FLOATS.split(), "floats"),
    **dict.fromkeys(("popcount", "clz"), "integers"),
}
"""What intrinsics take that have rows for nothing else."""

ROUNDINGS: Final = frozenset({"floor", "ceil", "trunc", "round", "nearbyint", "rint"})

CALLS: Final[dict[str, Rule]] = {
    **{name: row(to) for name, to in _UNARY.items()},
    **{
        name: _chlo(name)
        for name in ("erf", "sinh", "cosh", "asin", "acos", "atan", "asinh", "acosh", "atanh")
    },
    "nextafter": _chlo("next_after"),
    "exp2": _power(2.0),
    "exp10": _power(10.0),
    "log2": _log(2.0),
    "log10": _log(10.0),
    "floor": _same_if_integer(row("floor")),
    "ceil": _same_if_integer(row("ceil")),
    "trunc": _same_if_integer(_trunc),
    # TVM folds `round` of a literal, and compiles it, to the even neighbour.
    "round": _same_if_integer(row("round_nearest_even")),
    "nearbyint": _same_if_integer(row("round_nearest_even")),
    "rint": _same_if_integer(row("round_nearest_even")),
    "fabs": _abs,
    "abs": _abs,
    "isnan": lambda x: compare(x, x, "NE"),
    "isinf": _is_inf,
    "clz": lambda x: convert(hlo("count_leading_zeros", x), "int32"),
    "copysign": _copysign,
    "ldexp": _ldexp,
    "hypot": _hypot,
    "shift_right": _shift_right,
}
"""Intrinsics by name without ``tir.``, element by element."""
