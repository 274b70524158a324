"""The operations of symbolic scalar expressions and the folding that building them does.

- ``+ - * // % < <= > >=`` fold exactly what TVM's operators fold (constants, ``x + 0``, ``x * 1``,
  ``x * 0`` ...) and nothing more: ``n - n`` stays until it is simplified.
- A class constructor (``Add(a, b)``) never folds; ``Add.make(a, b)`` is what the operators call.
"""

from __future__ import annotations

import functools
import math
import operator
import struct
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeAlias, TypeGuard

from relax2xla.dtypes import DTYPES, is_float
from relax2xla.errors import DivisionByZeroError, OperandTypeError, OpError
from relax2xla.tir.node import (
    OTHER_NAMES,
    Dim,
    FloatImm,
    IntImm,
    PrimExpr,
    StandsForExpr,
    StringImm,
    element_of,
    int_range,
    is_int,
    lanes_of,
    operations,
    rounded,
    same_structure,
    set_field,
    wrapped,
)


# -- conversions ---------------------------------------------------------------------------------
def const(value: float, dtype: str | None = None) -> PrimExpr:
    """A literal. Without a dtype: bool, int64 and float32 for Python's bool, int and float.

    A float that only a float64 holds is one.
    """
    if not isinstance(value, int | float) and not hasattr(value, "__float__"):
        raise TypeError(f"a literal is a number; got {value!r}, of type {type(value).__name__}")
    if dtype is None:
        dtype = (
            "bool"
            if isinstance(value, bool)
            else "int64"
            if isinstance(value, int)
            else _float_dtype(value)
        )
    dtype = OTHER_NAMES.get(dtype, dtype)
    if is_float(dtype):
        return FloatImm(dtype, value)
    if isinstance(value, float):
        if not value.is_integer():
            raise ValueError(f"const: {value} is not a value of {dtype}")
        value = int(value)
    return IntImm(dtype, value)


def _float_dtype(value: float) -> str:
    """float32, or float64 for a number that would be an infinity otherwise."""
    fits = math.isfinite(rounded("float32", value)) or not math.isfinite(value)
    return "float32" if fits else "float64"


def cast(dtype: str, value: PrimExpr) -> PrimExpr:
    """``value`` converted to ``dtype``; literals fold (integers wrap, floats truncate)."""
    dtype = OTHER_NAMES.get(dtype, dtype)
    if value.dtype == dtype:
        return value
    if isinstance(value, StringImm):
        raise OperandTypeError("Can't cast a handle to other types")
    if lanes_of(dtype) != 1:
        broadcast = operations["Broadcast"]
        if lanes_of(value.dtype) == 1:
            return broadcast(cast(element_of(dtype), value), lanes_of(dtype))
        if type(value) is broadcast and lanes_of(value.dtype) == lanes_of(dtype):
            (scalar,) = value.children()
            return broadcast(cast(element_of(dtype), scalar), lanes_of(dtype))
        return Cast(dtype, value)
    if isinstance(value, IntImm | FloatImm):
        if is_float(dtype):
            return float_imm(dtype, value.written if isinstance(value, FloatImm) else value.value)
        if dtype == "bool":
            return IntImm("bool", int(value.value != 0))
        if (is_int(dtype)) and math.isfinite(value.value):
            return IntImm(dtype, wrapped(int(value.value), dtype))
    return Cast(dtype, value)


def float_imm(dtype: str, value: float) -> FloatImm:
    """What a computation gives as a literal: infinite where it is beyond the dtype."""
    held = rounded(dtype, value)
    return FloatImm(dtype, value if math.isfinite(held) else held)


def as_prim_expr(value: PrimExpr | StandsForExpr | float, dtype: str | None = "int64") -> PrimExpr:
    """``value`` itself if it is an expression, otherwise a literal of ``dtype``.

    Without a dtype an int is an int32, or an int64 where it needs it, and a float a float32.
    """
    if isinstance(value, PrimExpr):
        return value
    if isinstance(value, StandsForExpr):
        return value.as_expr()
    if isinstance(value, bool):
        return IntImm("bool", value)
    if isinstance(value, float):
        return FloatImm(dtype if dtype and is_float(dtype) else _float_dtype(value), value)
    try:
        whole = operator.index(value)
    except TypeError:
        raise TypeError(
            f"expected a scalar expression or a Python number, got {type(value).__name__}"
        ) from None
    if dtype is None:
        low, high = int_range("int32")
        dtype = "int32" if low <= whole <= high else "int64"
    return const(whole, dtype)


def as_expr(value: Any) -> PrimExpr:
    """``value`` as TVM reads it: that of :func:`as_prim_expr` without a dtype, or a string.

    TypeError for what is no number, string or expression.
    """
    return StringImm(value) if isinstance(value, str) else as_prim_expr(value, None)


def as_dim(value: Dim | StandsForExpr) -> Dim:
    """A dimension in its one form: an int64 literal becomes a Python int.

    Raises TypeError for what is no integer, such as a string.
    """
    if isinstance(value, int):
        return int(value)
    if isinstance(value, IntImm) and value.dtype == "int64":
        return value.value
    if isinstance(value, PrimExpr):
        return value
    if isinstance(value, StandsForExpr):
        return as_dim(value.as_expr())
    try:
        return operator.index(value)
    except TypeError:
        hint = f'; write tir.Var("{value}", "int64")' if isinstance(value, str) else ""
        raise TypeError(
            "a dimension must be an integer or a symbolic integer; got the "
            f"{type(value).__name__} {value!r}{hint}"
        ) from None


def match_dtypes(
    a: PrimExpr | StandsForExpr | float, b: PrimExpr | StandsForExpr | float
) -> tuple[PrimExpr, PrimExpr]:
    """Both operands in one dtype: literals follow the expression, otherwise the wider type wins."""
    a = a.as_expr() if isinstance(a, StandsForExpr) else a
    b = b.as_expr() if isinstance(b, StandsForExpr) else b
    if not isinstance(a, PrimExpr):
        a = _literal_like(a, b) if isinstance(b, PrimExpr) else as_prim_expr(a)
    if not isinstance(b, PrimExpr):
        b = _literal_like(b, a)
    x, y = a.dtype, b.dtype
    if x == y:
        return a, b
    if "handle" in (x, y):
        raise TypeError(f"no arithmetic between {x} and {y}: `{a}` and `{b}`")
    if lanes_of(x) != 1 or lanes_of(y) != 1:
        return _match_vectors(a, b)
    if is_float(x) != is_float(y):
        dtype = x if is_float(x) else y
    elif DTYPES[x].bits != DTYPES[y].bits:
        dtype = x if DTYPES[x].bits > DTYPES[y].bits else y
    else:
        dtype = x if x.startswith("uint") else y  # of one width the unsigned one, as in C
    return cast(dtype, a), cast(dtype, b)


def _match_vectors(a: PrimExpr, b: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
    """Both in one dtype; a scalar beside a vector is repeated in its lanes."""
    n, m = lanes_of(a.dtype), lanes_of(b.dtype)
    if n != m and 1 not in (n, m):
        raise TypeError(f"no arithmetic between {a.dtype} and {b.dtype}: `{a}` and `{b}`")
    if n == 1:
        a = operations["Broadcast"](a, m)
    if m == 1:
        b = operations["Broadcast"](b, n)
    if a.dtype == b.dtype:
        return a, b
    one, other = (const(0, element_of(e.dtype)) for e in (a, b))
    dtype = match_dtypes(one, other)[0].dtype + a.dtype.removeprefix(one.dtype)
    return (
        a if a.dtype == dtype else Cast(dtype, a),
        b if b.dtype == dtype else Cast(dtype, b),
    )


def _literal_like(value: object, like: PrimExpr) -> PrimExpr:
    if isinstance(value, bool):
        return IntImm("bool", value)
    if isinstance(value, float):
        return FloatImm(like.dtype if is_float(like.dtype) else "float32", value)
    try:
        number = operator.index(value)  # pyright: ignore[reportArgumentType]
    except TypeError:
        raise TypeError(
            f"expected a scalar expression or a Python number beside `{like}`, "
            f"got {type(value).__name__}"
        ) from None
    if is_float(like.dtype):
        return FloatImm(like.dtype, number)
    if is_int(like.dtype):
        low, high = int_range(like.dtype)
        if low <= number <= high:
            return IntImm(like.dtype, number)
        return IntImm("int64", number)
    element = element_of(like.dtype)
    if element != like.dtype and is_int(element):
        low, high = int_range(element)
        if low <= number <= high:
            return IntImm(element, number)
    return IntImm("int32", number)


# -- binary operators ----------------------------------------------------------------------------
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


# -- other operations ----------------------------------------------------------------------------
class Not(PrimExpr):
    """``not a``"""

    __slots__ = ("a",)
    a: PrimExpr
    _fields = ("a",)

    def __init__(self, a: PrimExpr) -> None:
        if element_of(a.dtype) != "bool":
            raise TypeError(f"Not: expected a bool operand, got {a.dtype} (`{a}`)")
        set_field(self, "a", a)
        set_field(self, "dtype", a.dtype)
        set_field(self, "_hash", hash(("Not", a._hash)))

    def children(self) -> tuple[PrimExpr, ...]:
        return (self.a,)

    def rebuild(self, children: Sequence[PrimExpr]) -> PrimExpr:
        (a,) = children
        return IntImm("bool", not a.value) if isinstance(a, IntImm) else Not(a)


class Cast(PrimExpr):
    """``value`` converted to ``dtype``."""

    __slots__ = ("value",)
    value: PrimExpr
    _fields = ("dtype", "value")

    def __init__(self, dtype: str, value: PrimExpr | float) -> None:
        value = as_prim_expr(value)
        set_field(self, "dtype", dtype)
        set_field(self, "value", value)
        set_field(self, "_hash", hash(("Cast", dtype, value._hash)))

    def children(self) -> tuple[PrimExpr, ...]:
        return (self.value,)

    def rebuild(self, children: Sequence[PrimExpr]) -> PrimExpr:
        return cast(self.dtype, children[0])


class Select(PrimExpr):
    """``true_value`` where ``condition`` holds, else ``false_value``; both are evaluated."""

    __slots__ = ("condition", "false_value", "true_value")
    condition: PrimExpr
    true_value: PrimExpr
    false_value: PrimExpr
    _fields = ("condition", "true_value", "false_value")

    def __init__(
        self,
        condition: PrimExpr | bool,
        true_value: PrimExpr | float,
        false_value: PrimExpr | float,
    ) -> None:
        if isinstance(condition, bool):
            condition = IntImm("bool", condition)
        if element_of(condition.dtype) != "bool":
            raise OperandTypeError(f"Select: expected a bool condition, got {condition.dtype}")
        true_value, false_value = match_dtypes(true_value, false_value)
        set_field(self, "condition", condition)
        set_field(self, "true_value", true_value)
        set_field(self, "false_value", false_value)
        set_field(self, "dtype", true_value.dtype)
        hashes = (condition._hash, true_value._hash, false_value._hash)
        set_field(self, "_hash", hash(("Select", hashes)))

    def children(self) -> tuple[PrimExpr, ...]:
        return (self.condition, self.true_value, self.false_value)

    def rebuild(self, children: Sequence[PrimExpr]) -> PrimExpr:
        condition, yes, no = children
        if isinstance(condition, IntImm):
            return yes if condition.value else no
        return Select(condition, yes, no)


class OpName(str):
    """The name of an operator, which stands for it: ``call.op.name`` is the same name."""

    __slots__ = ()

    @property
    def name(self) -> str:
        """The name as a plain string."""
        return "".join(self)

    def same_as(self, other: object) -> bool:
        """Whether both name the same operator."""
        return self == other


class Call(PrimExpr):
    """A call of a named builtin such as ``tir.if_then_else`` or ``tir.shift_left``."""

    __slots__ = ("args", "op")
    op: OpName
    args: tuple[PrimExpr, ...]
    _fields = ("dtype", "op", "args")

    def __init__(self, dtype: str, op: str, args: Sequence[PrimExpr | float]) -> None:
        set_field(self, "dtype", dtype)
        set_field(self, "op", OpName(op))
        set_field(self, "args", tuple(as_prim_expr(a) for a in args))
        set_field(self, "_hash", hash(("Call", dtype, op, tuple(a._hash for a in self.args))))

    def children(self) -> tuple[PrimExpr, ...]:
        return self.args

    def payload(self) -> tuple[object, ...]:
        return (self.op,)

    def rebuild(self, children: Sequence[PrimExpr]) -> PrimExpr:
        if self.op == "tir.if_then_else" and isinstance(children[0], IntImm):
            return children[1] if children[0].value else children[2]
        if self.op == "tir.reinterpret" and _folds(children[0], self.dtype):
            return FloatImm(self.dtype, float_of_bits(children[0].value))
        fold = INT_BUILTINS.get(self.op)
        if fold is not None and is_int(self.dtype):
            values = [c.value for c in children if isinstance(c, IntImm)]
            if len(values) == len(children):
                return IntImm(self.dtype, fold(*values))
        return Call(self.dtype, self.op, children)


def _folds(bits: PrimExpr, dtype: str) -> TypeGuard[IntImm]:
    """Whether ``bits`` are those of a float64 that is known."""
    return dtype == "float64" and isinstance(bits, IntImm) and bits.dtype == "int64"


def float_of_bits(bits: int) -> float:
    """The float64 whose bits are those of an int64."""
    return struct.unpack("<d", struct.pack("<q", bits))[0]


INT_BUILTINS: dict[str, Callable[..., Any]] = {
    "tir.shift_left": operator.lshift,
    "tir.shift_right": operator.rshift,
    "tir.bitwise_and": operator.and_,
    "tir.bitwise_or": operator.or_,
    "tir.bitwise_xor": operator.xor,
    "tir.bitwise_not": operator.invert,
}


def _bitwise(name: str, a: PrimExpr | int, b: PrimExpr | int) -> PrimExpr:
    a, b = match_dtypes(a, b)
    if not is_int(element_of(a.dtype)) and a.dtype != "bool":
        raise OperandTypeError(f"{name}: expected integer operands, got {a.dtype} (`{a}`, `{b}`)")
    if name.startswith("shift") and isinstance(b, IntImm):
        bits = DTYPES[b.dtype].bits
        if not 0 <= b.value < bits:
            raise OpError(f"{name}: {a.dtype} is shifted by 0 to {bits - 1} bits; got {b.value}")
    return Call(a.dtype, f"tir.{name}", (a, b)).rebuild((a, b))


def _bitwise_not(a: PrimExpr) -> PrimExpr:
    if not is_int(element_of(a.dtype)) and a.dtype != "bool":
        raise OperandTypeError(f"bitwise_not: expected an integer, got {a.dtype} (`{a}`)")
    return Call(a.dtype, "tir.bitwise_not", (a,)).rebuild((a,))


def _true_divide(a: PrimExpr | float, b: PrimExpr | float) -> PrimExpr:
    a, b = match_dtypes(a, b)
    if not is_float(element_of(a.dtype)):
        raise TypeError(
            f"`/` between integers (`{a}` / `{b}`) is ambiguous: use `//` or tir.floordiv, "
            "or tir.truncdiv"
        )
    return Div.make(a, b)


operations.update(
    {
        kind.__name__: kind.make
        for kind in (Add, Sub, Mul, FloorDiv, FloorMod, EQ, NE, LT, LE, GT, GE)
    },
    true_divide=_true_divide,
    cast=cast,
    bitwise_not=_bitwise_not,
)
for _name in ("shift_left", "shift_right", "bitwise_and", "bitwise_or", "bitwise_xor"):
    operations[_name] = functools.partial(_bitwise, _name)
