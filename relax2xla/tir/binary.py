"""Binary operations of symbolic scalar expressions, and the folding that building them does.

- ``+ - * // % < <= > >=`` fold exactly what TVM's operators fold (constants, ``x + 0``, ``x * 1``,
  ``x * 0`` ...) and nothing more: ``n - n`` stays until it is simplified.
- A class constructor (``Add(a, b)``) never folds; ``Add.make(a, b)`` is what the operators call.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeAlias

from relax2xla.dtypes import is_float
from relax2xla.errors import DivisionByZeroError
from relax2xla.tir.call import Call
from relax2xla.tir.convert import const, float_imm, match_dtypes
from relax2xla.tir.node import (
    FloatImm,
    IntImm,
    PrimExpr,
    element_of,
    is_int,
    same_structure,
    set_field,
    wrapped,
)

Number: TypeAlias = int | float


class BinaryExpr(PrimExpr):
    """An operation on two operands of one dtype, ``a`` and ``b``."""

    __slots__ = ("a", "b")
    a: PrimExpr
    b: PrimExpr
    _fields = ("a", "b")
    compute: ClassVar[Callable[[Any, Any], Any]]
    """The operation on Python numbers."""

    def __init__(self, a: PrimExpr | float, b: PrimExpr | float) -> None:
        if not isinstance(a, PrimExpr) or not isinstance(b, PrimExpr):
            a, b = match_dtypes(a, b)
        if a.dtype != b.dtype:
            raise TypeError(
                f"{type(self).__name__}: operands must have one dtype, got {a.dtype} (`{a}`) and "
                f"{b.dtype} (`{b}`); convert one with .astype(...)"
            )
        self._init(a, b)

    def _init(self, a: PrimExpr, b: PrimExpr) -> None:
        set_field(self, "a", a)
        set_field(self, "b", b)
        set_field(self, "dtype", self._result_dtype(a.dtype))
        set_field(self, "_hash", hash((type(self).__name__, a._hash, b._hash)))

    @staticmethod
    def _result_dtype(operand: str) -> str:
        return operand

    def children(self) -> tuple[PrimExpr, ...]:
        return (self.a, self.b)

    def rebuild(self, children: Sequence[PrimExpr]) -> PrimExpr:
        return self.make(*children)

    @classmethod
    def make(cls, a: PrimExpr | float, b: PrimExpr | float) -> PrimExpr:
        """What the operator builds: operands in one dtype, literals and identities folded."""
        a, b = match_dtypes(a, b)
        if isinstance(a, IntImm) and isinstance(b, IntImm):
            try:
                value = cls.compute(a.value, b.value)
            except ZeroDivisionError:
                raise DivisionByZeroError(_DIVISION_BY_ZERO) from None
            dtype = cls._result_dtype(a.dtype)
            # Sizes are int64, where an overflow is a mistake; others wrap, as they do in a kernel.
            return const(value if dtype in ("int64", "bool") else wrapped(value, dtype), dtype)
        if isinstance(a, FloatImm) and isinstance(b, FloatImm):
            value, dtype = cls.compute(a.value, b.value), cls._result_dtype(a.dtype)
            if not is_float(dtype):
                return const(value, dtype)
            # The text shows the sum of the numbers as they were written, if it is this one.
            made = float_imm(dtype, value)
            shown = float_imm(dtype, cls.compute(a.written, b.written))
            return shown if shown == made else made
        found = cls.identity(a, b)
        if found is not None:
            return found
        node = cls.__new__(cls)
        node._init(a, b)
        return node

    @staticmethod
    def identity(a: PrimExpr, b: PrimExpr) -> PrimExpr | None:
        """The folded result where one operand is a neutral or absorbing literal."""
        return None


def is_literal(e: PrimExpr, value: int) -> bool:
    """Whether ``e`` is a literal of this value, integer or floating point."""
    return isinstance(e, IntImm | FloatImm) and e.value == value


class Add(BinaryExpr):
    """``a + b``"""

    __slots__ = ()
    compute = staticmethod(operator.add)

    @staticmethod
    def identity(a: PrimExpr, b: PrimExpr) -> PrimExpr | None:
        return b if is_literal(a, 0) else a if is_literal(b, 0) else None


class Sub(BinaryExpr):
    """``a - b``"""

    __slots__ = ()
    compute = staticmethod(operator.sub)

    @staticmethod
    def identity(a: PrimExpr, b: PrimExpr) -> PrimExpr | None:
        return a if is_literal(b, 0) else None


class Mul(BinaryExpr):
    """``a * b``"""

    __slots__ = ()
    compute = staticmethod(operator.mul)

    @staticmethod
    def identity(a: PrimExpr, b: PrimExpr) -> PrimExpr | None:
        if is_literal(a, 1) or is_literal(b, 0):
            return b
        return a if is_literal(b, 1) or is_literal(a, 0) else None


_DIVISION_BY_ZERO = "division by the literal 0 in a symbolic expression"


def _check_divisor(b: PrimExpr) -> None:
    if isinstance(b, IntImm) and b.value == 0:
        raise DivisionByZeroError(_DIVISION_BY_ZERO)


class _Division(BinaryExpr):
    """What the divisions share: ``x / 1`` and ``0 / x`` fold, a literal divisor is not 0."""

    __slots__ = ()

    @staticmethod
    def identity(a: PrimExpr, b: PrimExpr) -> PrimExpr | None:
        _check_divisor(b)
        return a if is_literal(a, 0) or is_literal(b, 1) else None


class _Remainder(BinaryExpr):
    """What the remainders share: ``x % 1`` and ``0 % x`` are 0, a literal divisor is not 0."""

    __slots__ = ()

    @staticmethod
    def identity(a: PrimExpr, b: PrimExpr) -> PrimExpr | None:
        _check_divisor(b)
        return const(0, a.dtype) if is_literal(a, 0) or is_literal(b, 1) else None


class _IntegerOnly(BinaryExpr):
    __slots__ = ()

    def _init(self, a: PrimExpr, b: PrimExpr) -> None:
        if not is_int(element_of(a.dtype)):
            raise TypeError(
                f"{type(self).__name__}: expected integer operands, got {a.dtype} (`{a}`, `{b}`)"
            )
        super()._init(a, b)


def truncdiv_int(a: int, b: int) -> int:
    """The quotient rounded towards zero."""
    return -(-a // b) if (a < 0) != (b < 0) else a // b


def _divide(a: Number, b: Number) -> Number:
    if isinstance(a, int) and isinstance(b, int):
        return truncdiv_int(a, b)
    if b == 0:
        return math.nan if a == 0 or math.isnan(a) else math.copysign(math.inf, a)
    return a / b


class Div(_Division):
    """``a / b``; for integers the quotient is rounded towards zero."""

    __slots__ = ()
    compute = staticmethod(_divide)


def _remainder(a: Number, b: Number) -> Number:
    if isinstance(a, int) and isinstance(b, int):
        return a - b * truncdiv_int(a, b)
    return math.nan if b == 0 or math.isinf(a) else math.fmod(a, b)


class Mod(_Remainder):
    """The remainder of ``Div``, of integers or of floating point: it has the sign of ``a``."""

    __slots__ = ()
    compute = staticmethod(_remainder)


class FloorDiv(_Division, _IntegerOnly):
    """``a // b``, rounded towards minus infinity."""

    __slots__ = ()
    compute = staticmethod(operator.floordiv)


class FloorMod(_Remainder, _IntegerOnly):
    """``a % b``: it has the sign of ``b``."""

    __slots__ = ()
    compute = staticmethod(operator.mod)


class _Extremum(BinaryExpr):
    __slots__ = ()

    @staticmethod
    def identity(a: PrimExpr, b: PrimExpr) -> PrimExpr | None:
        return a if a is b else None


def _nan_or(pick: Callable[[Number, Number], Number]) -> Callable[[Number, Number], Number]:
    return lambda a, b: a if a != a else b if b != b else pick(a, b)


class Min(_Extremum):
    """The smaller of ``a`` and ``b``."""

    __slots__ = ()
    compute = staticmethod(_nan_or(min))


class Max(_Extremum):
    """The larger of ``a`` and ``b``."""

    __slots__ = ()
    compute = staticmethod(_nan_or(max))


class CmpExpr(BinaryExpr):
    """A comparison; its dtype is bool."""

    __slots__ = ()

    @staticmethod
    def _result_dtype(operand: str) -> str:
        return "bool" + operand.removeprefix(element_of(operand))


class EQ(CmpExpr):
    """``a == b`` as a node (the Python operator compares structure)."""

    __slots__ = ()
    compute = staticmethod(operator.eq)

    @staticmethod
    def identity(a: PrimExpr, b: PrimExpr) -> PrimExpr | None:
        # One number for all of a run.
        both = (isinstance(x, Call) and x.op == "tir.vscale" for x in (a, b))
        return IntImm("bool", 1) if all(both) else None

    def structural_truth(self) -> bool | None:
        return same_structure(self.a, self.b)


class NE(CmpExpr):
    """``a != b`` as a node."""

    __slots__ = ()
    compute = staticmethod(operator.ne)

    def structural_truth(self) -> bool | None:
        return not same_structure(self.a, self.b)


class LT(CmpExpr):
    """``a < b``"""

    __slots__ = ()
    compute = staticmethod(operator.lt)


class LE(CmpExpr):
    """``a <= b``"""

    __slots__ = ()
    compute = staticmethod(operator.le)


class GT(CmpExpr):
    """``a > b``"""

    __slots__ = ()
    compute = staticmethod(operator.gt)


class GE(CmpExpr):
    """``a >= b``"""

    __slots__ = ()
    compute = staticmethod(operator.ge)


class _Logical(BinaryExpr):
    __slots__ = ()

    def _init(self, a: PrimExpr, b: PrimExpr) -> None:
        if element_of(a.dtype) != "bool":
            raise TypeError(
                f"{type(self).__name__}: expected bool operands, got {a.dtype} (`{a}`, `{b}`)"
            )
        super()._init(a, b)


class And(_Logical):
    """``a and b``"""

    __slots__ = ()
    compute = staticmethod(lambda a, b: bool(a and b))

    @staticmethod
    def identity(a: PrimExpr, b: PrimExpr) -> PrimExpr | None:
        if isinstance(a, IntImm):
            return b if a.value else a
        if isinstance(b, IntImm):
            return a if b.value else b
        return None


class Or(_Logical):
    """``a or b``"""

    __slots__ = ()
    compute = staticmethod(lambda a, b: bool(a or b))

    @staticmethod
    def identity(a: PrimExpr, b: PrimExpr) -> PrimExpr | None:
        if isinstance(a, IntImm):
            return a if a.value else b
        if isinstance(b, IntImm):
            return b if b.value else a
        return None
