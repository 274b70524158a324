"""Symbolic scalar expressions: the nodes, their operators and the folding those operators do.

Rules of this file
- A node is immutable and carries its structural hash, so hashing is O(1) at any depth.
- ``==`` is structural sameness with variables compared by identity, and it returns a plain bool:
  dimensions can be dictionary keys and shapes can be compared as tuples. An ``EQ`` *node* is
  built by ``EQ(a, b)`` or ``a.equal(b)``.
- ``+ - * // % < <= > >=`` fold exactly what TVM's operators fold (constants, ``x + 0``, ``x * 1``,
  ``x * 0`` ...) and nothing more: ``n - n`` stays until it is simplified.
- A class constructor (``Add(a, b)``) never folds; ``Add.make(a, b)`` is what the operators call.
- Nothing here recurses over an expression.
"""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Callable, Sequence
from typing import ClassVar, NoReturn, TypeAlias

from relax2xla.dtypes import DTYPES, is_float, is_kind, limits, numpy_dtype

_set = object.__setattr__


class PrimExpr:
    """Base class of the scalar expressions. ``dtype`` is the name of the scalar's type."""

    __slots__ = ("_hash", "dtype")
    dtype: str
    _hash: int

    def children(self) -> tuple[PrimExpr, ...]:
        """The operand expressions, in order."""
        return ()

    def rebuild(self, children: Sequence[PrimExpr]) -> PrimExpr:
        """The same operation on other operands, folded as the operators fold."""
        return self

    def payload(self) -> tuple[object, ...]:
        """What distinguishes two nodes of one class and dtype beside their operands."""
        return ()

    def same_as(self, other: object) -> bool:
        """Whether both are the same node object."""
        return self is other

    def equal(self, other: PrimExpr | float) -> PrimExpr:
        """The comparison node ``self == other`` (folded when both are literals)."""
        return EQ.make(self, other)

    def astype(self, dtype: str) -> PrimExpr:
        """This value converted to ``dtype``; ``self`` if it has that dtype already."""
        return cast(dtype, self)

    # -- Python protocol ---------------------------------------------------------------------
    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(
            f"{type(self).__name__}.{name} cannot be set: expressions are immutable"
        )

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} is immutable: cannot delete {name!r}")

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, PrimExpr):
            return False
        return self._hash == other._hash and same_structure(self, other)

    def __bool__(self) -> bool:
        raise ValueError(
            f"cannot decide the truth of the symbolic expression `{self}`: its value is only known "
            "at run time. Prove it with relax2xla.tir.Analyzer().can_prove(cond), or build a "
            "condition with tir.all / tir.any / tir.Not"
        )

    def __str__(self) -> str:
        from .printer import to_text

        return to_text(self)

    __repr__ = __str__

    def __reduce__(self) -> tuple[object, ...]:
        return _unpickle, (type(self), tuple(getattr(self, n) for n in self._fields))

    _fields: ClassVar[tuple[str, ...]] = ()

    # -- operators ---------------------------------------------------------------------------
    def __add__(self, other: PrimExpr | float) -> PrimExpr:
        return Add.make(self, other)

    def __radd__(self, other: PrimExpr | float) -> PrimExpr:
        return Add.make(other, self)

    def __sub__(self, other: PrimExpr | float) -> PrimExpr:
        return Sub.make(self, other)

    def __rsub__(self, other: PrimExpr | float) -> PrimExpr:
        return Sub.make(other, self)

    def __mul__(self, other: PrimExpr | float) -> PrimExpr:
        return Mul.make(self, other)

    def __rmul__(self, other: PrimExpr | float) -> PrimExpr:
        return Mul.make(other, self)

    def __truediv__(self, other: PrimExpr | float) -> PrimExpr:
        return _true_divide(self, other)

    def __rtruediv__(self, other: PrimExpr | float) -> PrimExpr:
        return _true_divide(other, self)

    def __floordiv__(self, other: PrimExpr | int) -> PrimExpr:
        return FloorDiv.make(self, other)

    def __rfloordiv__(self, other: PrimExpr | int) -> PrimExpr:
        return FloorDiv.make(other, self)

    def __mod__(self, other: PrimExpr | int) -> PrimExpr:
        return FloorMod.make(self, other)

    def __rmod__(self, other: PrimExpr | int) -> PrimExpr:
        return FloorMod.make(other, self)

    def __neg__(self) -> PrimExpr:
        return Mul.make(self, -1)

    def __lt__(self, other: PrimExpr | float) -> PrimExpr:
        return LT.make(self, other)

    def __le__(self, other: PrimExpr | float) -> PrimExpr:
        return LE.make(self, other)

    def __gt__(self, other: PrimExpr | float) -> PrimExpr:
        return GT.make(self, other)

    def __ge__(self, other: PrimExpr | float) -> PrimExpr:
        return GE.make(self, other)

    def __lshift__(self, other: PrimExpr | int) -> PrimExpr:
        return _bitwise("shift_left", self, other)

    def __rshift__(self, other: PrimExpr | int) -> PrimExpr:
        return _bitwise("shift_right", self, other)

    def __and__(self, other: PrimExpr | int) -> PrimExpr:
        return _bitwise("bitwise_and", self, other)

    def __or__(self, other: PrimExpr | int) -> PrimExpr:
        return _bitwise("bitwise_or", self, other)

    def __xor__(self, other: PrimExpr | int) -> PrimExpr:
        return _bitwise("bitwise_xor", self, other)

    def __invert__(self) -> PrimExpr:
        return Call(self.dtype, "tir.bitwise_not", (self,))


Dim: TypeAlias = int | PrimExpr
"""A dimension of a shape: a Python int when it is static, an int64 expression when symbolic."""


def _unpickle(cls: type[PrimExpr], args: tuple[object, ...]) -> PrimExpr:
    return cls(*args)


def same_structure(a: PrimExpr, b: PrimExpr) -> bool:
    """Whether two expressions are the same up to sharing; variables are compared by identity."""
    stack = [(a, b)]
    seen: set[tuple[int, int]] = set()
    while stack:
        x, y = stack.pop()
        if x is y:
            continue
        if type(x) is not type(y) or x.dtype != y.dtype or x._hash != y._hash:
            return False
        if isinstance(x, Var) or x.payload() != y.payload():
            return False
        xs, ys = x.children(), y.children()
        if len(xs) != len(ys):
            return False
        if xs:
            # Without this a shared sub-expression would be compared once for each path to it.
            pair = (id(x), id(y))
            if pair not in seen:
                seen.add(pair)
                stack.extend(zip(xs, ys, strict=True))
    return True


# -- leaves --------------------------------------------------------------------------------------
class Var(PrimExpr):
    """A symbolic variable. Two variables of one name are different variables."""

    __slots__ = ("name",)
    name: str
    _fields = ("name", "dtype")

    def __init__(self, name: str, dtype: str = "int64") -> None:
        if not isinstance(name, str):
            raise TypeError(f"tir.Var: name must be a str, got {type(name).__name__}")
        _set(self, "name", name)
        _set(self, "dtype", dtype)
        _set(self, "_hash", object.__hash__(self))

    @property
    def name_hint(self) -> str:
        """The name, under the word Relax variables use for it."""
        return self.name

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = PrimExpr.__hash__


class SizeVar(Var):
    """A variable that holds a size: the analyzer takes it to be zero or more."""

    __slots__ = ()


class IntImm(PrimExpr):
    """An integer (or bool) literal. It equals, and hashes as, the Python int of its value.

    ``ValueError`` when the value does not fit the dtype.
    """

    __slots__ = ("value",)
    value: int
    _fields = ("dtype", "value")

    def __init__(self, dtype: str, value: int) -> None:
        low, high = int_range(dtype)
        value = operator.index(value)
        if not low <= value <= high:
            raise ValueError(
                f"literal {value} does not fit {dtype}: expected a value from {low} to {high}"
            )
        _set(self, "dtype", dtype)
        _set(self, "value", value)
        _set(self, "_hash", hash(value))

    def payload(self) -> tuple[object, ...]:
        return (self.value,)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, int):
            return self.value == other
        return isinstance(other, IntImm) and self.value == other.value and self.dtype == other.dtype

    __hash__ = PrimExpr.__hash__

    def __bool__(self) -> bool:
        return self.value != 0

    def __int__(self) -> int:
        return self.value

    __index__ = __int__


class FloatImm(PrimExpr):
    """A floating-point literal; its value is rounded to float16 and float32 as these demand."""

    __slots__ = ("value",)
    value: float
    _fields = ("dtype", "value")

    def __init__(self, dtype: str, value: float) -> None:
        if not is_float(dtype):
            raise ValueError(f"FloatImm: expected a floating-point dtype, got {dtype!r}")
        _set(self, "dtype", dtype)
        _set(self, "value", float(numpy_dtype(dtype).type(value)))
        _set(self, "_hash", hash(self.payload()))

    def payload(self) -> tuple[object, ...]:
        # The bits, so that nan equals itself and -0.0 differs from 0.0.
        return (struct.pack("<d", self.value),)

    def __bool__(self) -> bool:
        return self.value != 0

    def __float__(self) -> float:
        return self.value


class StringImm(PrimExpr):
    """A string literal."""

    __slots__ = ("value",)
    value: str
    _fields = ("value",)

    def __init__(self, value: str) -> None:
        _set(self, "dtype", "handle")
        _set(self, "value", value)
        _set(self, "_hash", hash(("StringImm", value)))

    def payload(self) -> tuple[object, ...]:
        return (self.value,)


# -- dtype helpers -------------------------------------------------------------------------------
_INT_RANGES: dict[str, tuple[int, int]] = {
    name: (int(limits(name)[0]), int(limits(name)[1]))
    for name in DTYPES
    if is_kind(name, "bool", "int", "uint")
}


def int_range(dtype: str) -> tuple[int, int]:
    """Smallest and largest value of an integer dtype or bool; ``ValueError`` for other dtypes."""
    found = _INT_RANGES.get(dtype)
    if found is None:
        raise ValueError(f"expected an integer dtype or bool, got {dtype!r}")
    return found


def is_int(dtype: str) -> bool:
    """Whether ``dtype`` is a signed or unsigned integer type (bool is not)."""
    return dtype != "bool" and dtype in _INT_RANGES


# -- conversions ---------------------------------------------------------------------------------
def const(value: float, dtype: str | None = None) -> PrimExpr:
    """A literal. Without a dtype: bool, int64 and float32 for Python's bool, int and float."""
    if dtype is None:
        dtype = (
            "bool" if isinstance(value, bool) else "int64" if isinstance(value, int) else "float32"
        )
    if is_float(dtype):
        return FloatImm(dtype, value)
    if isinstance(value, float):
        if not value.is_integer():
            raise ValueError(f"const: {value} is not a value of {dtype}")
        value = int(value)
    return IntImm(dtype, value)


def cast(dtype: str, value: PrimExpr) -> PrimExpr:
    """``value`` converted to ``dtype``; literals fold (integers wrap, floats truncate)."""
    if value.dtype == dtype:
        return value
    if isinstance(value, IntImm | FloatImm):
        if is_float(dtype):
            return FloatImm(dtype, value.value)
        if dtype == "bool":
            return IntImm("bool", int(value.value != 0))
        if dtype in _INT_RANGES and math.isfinite(value.value):
            low, high = _INT_RANGES[dtype]
            return IntImm(dtype, (int(value.value) - low) % (high - low + 1) + low)
    return Cast(dtype, value)


def as_prim_expr(value: PrimExpr | float, dtype: str = "int64") -> PrimExpr:
    """``value`` itself if it is an expression, otherwise a literal of ``dtype``."""
    if isinstance(value, PrimExpr):
        return value
    if isinstance(value, bool):
        return IntImm("bool", value)
    if isinstance(value, float):
        return FloatImm(dtype if is_float(dtype) else "float32", value)
    try:
        return const(operator.index(value), dtype)
    except TypeError:
        raise TypeError(
            f"expected a scalar expression or a Python number, got {type(value).__name__}"
        ) from None


def as_dim(value: Dim) -> Dim:
    """A dimension in its one form: an int64 literal becomes a Python int."""
    if isinstance(value, int):
        return int(value)
    if isinstance(value, IntImm) and value.dtype == "int64":
        return value.value
    return value


def match_dtypes(a: PrimExpr | float, b: PrimExpr | float) -> tuple[PrimExpr, PrimExpr]:
    """Both operands in one dtype: literals follow the expression, otherwise the wider type wins."""
    if not isinstance(a, PrimExpr):
        a = _literal_like(a, b) if isinstance(b, PrimExpr) else as_prim_expr(a)
    if not isinstance(b, PrimExpr):
        b = _literal_like(b, a)
    x, y = a.dtype, b.dtype
    if x == y:
        return a, b
    if "handle" in (x, y):
        raise TypeError(f"no arithmetic between {x} and {y}: `{a}` and `{b}`")
    if is_float(x) != is_float(y):
        dtype = x if is_float(x) else y
    elif DTYPES[x].bits != DTYPES[y].bits:
        dtype = x if DTYPES[x].bits > DTYPES[y].bits else y
    else:
        dtype = y if x.startswith("uint") else x
    return cast(dtype, a), cast(dtype, b)


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
    return IntImm("int32", number)


# -- binary operators ----------------------------------------------------------------------------
Number: TypeAlias = int | float


class BinaryExpr(PrimExpr):
    """An operation on two operands of one dtype, ``a`` and ``b``."""

    __slots__ = ("a", "b")
    a: PrimExpr
    b: PrimExpr
    _fields = ("a", "b")
    compute: ClassVar[Callable[[Number, Number], Number]]
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
        _set(self, "a", a)
        _set(self, "b", b)
        _set(self, "dtype", self._result_dtype(a.dtype))
        _set(self, "_hash", hash((type(self).__name__, a._hash, b._hash)))

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
            return const(cls.compute(a.value, b.value), cls._result_dtype(a.dtype))
        if isinstance(a, FloatImm) and isinstance(b, FloatImm):
            return const(cls.compute(a.value, b.value), cls._result_dtype(a.dtype))
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


def _check_divisor(b: PrimExpr) -> None:
    if isinstance(b, IntImm) and b.value == 0:
        raise ZeroDivisionError("division by the literal 0 in a symbolic expression")


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
        if not is_int(a.dtype):
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


class Mod(_Remainder, _IntegerOnly):
    """The remainder of ``Div``: it has the sign of ``a``."""

    __slots__ = ()
    compute = staticmethod(lambda a, b: a - b * truncdiv_int(int(a), int(b)))


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
        return "bool"


class EQ(CmpExpr):
    """``a == b`` as a node (the Python operator compares structure)."""

    __slots__ = ()
    compute = staticmethod(operator.eq)


class NE(CmpExpr):
    """``a != b`` as a node."""

    __slots__ = ()
    compute = staticmethod(operator.ne)


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
        if a.dtype != "bool":
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
        if a.dtype != "bool":
            raise TypeError(f"Not: expected a bool operand, got {a.dtype} (`{a}`)")
        _set(self, "a", a)
        _set(self, "dtype", "bool")
        _set(self, "_hash", hash(("Not", a._hash)))

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
        _set(self, "dtype", dtype)
        _set(self, "value", value)
        _set(self, "_hash", hash(("Cast", dtype, value._hash)))

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
        self, condition: PrimExpr, true_value: PrimExpr | float, false_value: PrimExpr | float
    ) -> None:
        if condition.dtype != "bool":
            raise TypeError(f"Select: expected a bool condition, got {condition.dtype}")
        true_value, false_value = match_dtypes(true_value, false_value)
        _set(self, "condition", condition)
        _set(self, "true_value", true_value)
        _set(self, "false_value", false_value)
        _set(self, "dtype", true_value.dtype)
        hashes = (condition._hash, true_value._hash, false_value._hash)
        _set(self, "_hash", hash(("Select", hashes)))

    def children(self) -> tuple[PrimExpr, ...]:
        return (self.condition, self.true_value, self.false_value)

    def rebuild(self, children: Sequence[PrimExpr]) -> PrimExpr:
        condition, yes, no = children
        if isinstance(condition, IntImm):
            return yes if condition.value else no
        return Select(condition, yes, no)


class Call(PrimExpr):
    """A call of a named builtin such as ``tir.if_then_else`` or ``tir.shift_left``."""

    __slots__ = ("args", "op")
    op: str
    args: tuple[PrimExpr, ...]
    _fields = ("dtype", "op", "args")

    def __init__(self, dtype: str, op: str, args: Sequence[PrimExpr | float]) -> None:
        _set(self, "dtype", dtype)
        _set(self, "op", op)
        _set(self, "args", tuple(as_prim_expr(a) for a in args))
        _set(self, "_hash", hash(("Call", dtype, op, tuple(a._hash for a in self.args))))

    def children(self) -> tuple[PrimExpr, ...]:
        return self.args

    def payload(self) -> tuple[object, ...]:
        return (self.op,)

    def rebuild(self, children: Sequence[PrimExpr]) -> PrimExpr:
        if self.op == "tir.if_then_else" and isinstance(children[0], IntImm):
            return children[1] if children[0].value else children[2]
        fold = _INT_BUILTINS.get(self.op)
        if fold is not None and is_int(self.dtype):
            values = [c.value for c in children if isinstance(c, IntImm)]
            if len(values) == len(children):
                return IntImm(self.dtype, fold(*values))
        return Call(self.dtype, self.op, children)


_INT_BUILTINS: dict[str, Callable[..., int]] = {
    "tir.shift_left": operator.lshift,
    "tir.shift_right": operator.rshift,
    "tir.bitwise_and": operator.and_,
    "tir.bitwise_or": operator.or_,
    "tir.bitwise_xor": operator.xor,
    "tir.bitwise_not": operator.invert,
}


def _bitwise(name: str, a: PrimExpr | int, b: PrimExpr | int) -> PrimExpr:
    a, b = match_dtypes(a, b)
    if not is_int(a.dtype) and a.dtype != "bool":
        raise TypeError(f"{name}: expected integer operands, got {a.dtype} (`{a}`, `{b}`)")
    return Call(a.dtype, f"tir.{name}", (a, b)).rebuild((a, b))


def _true_divide(a: PrimExpr | float, b: PrimExpr | float) -> PrimExpr:
    a, b = match_dtypes(a, b)
    if not is_float(a.dtype):
        raise TypeError(
            f"`/` between integers (`{a}` / `{b}`) is ambiguous: use `//` or tir.floordiv, "
            "or tir.truncdiv"
        )
    return Div.make(a, b)
