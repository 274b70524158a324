"""The base class of symbolic scalar expressions, and the leaves: variables and literals.

Rules of this file
- A node is immutable and carries its structural hash, so hashing is O(1) at any depth.
- ``==`` is structural sameness with variables compared by identity, and it returns a plain bool:
  dimensions can be dictionary keys and shapes can be compared as tuples. An ``EQ`` *node* is
  built by ``EQ(a, b)`` or ``a.equal(b)``, and by ``==`` in functions of users that write
  expressions (``writing``).
- The operators of the base class are those of expr.py, which writes them into ``operations``.
- Nothing here recurses over an expression.
"""

from __future__ import annotations

import importlib
import math
import operator
import re
import struct
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, NoReturn, Self, TypeAlias, cast

import numpy as np

from relax2xla.dtypes import DTYPES, is_float, is_kind, limits, numpy_dtype
from relax2xla.errors import BudgetError, OperandTypeError, OpError
from relax2xla.late import Late

set_field = object.__setattr__
"""How a constructor fills the fields of an immutable node."""

operations: dict[str, Callable[..., PrimExpr]] = {}
"""What the Python operators of ``PrimExpr`` build, by name; expr.py fills it."""
printed = Late()
"""The text of an expression (printer.py)."""


class _Writing:
    """How many functions that write expressions are being run."""

    depth = 0


_writing = _Writing()


@contextmanager
def writing() -> Generator[None]:
    """``a == b`` and ``a != b`` of expressions are nodes, as in TVM, whose truth is structural.

    For functions of users that give expressions: ``te.compute((n,), lambda i: i == 0)``. Elsewhere
    the operators compare structure at once.
    """
    _writing.depth += 1
    try:
        yield
    finally:
        _writing.depth -= 1


def _compared(name: str, a: PrimExpr, b: object) -> PrimExpr | None:
    """The node; None where there is none of such operands."""
    if not isinstance(b, PrimExpr | int | float):
        return None
    depth, _writing.depth = _writing.depth, 0
    try:
        return operations[name](a, b)
    except TypeError:
        return None
    finally:
        _writing.depth = depth


class Operators:
    """Python's operators of scalar expressions, for these and what stands for one."""

    __slots__ = ()

    def __add__(self, other: PrimExpr | float) -> PrimExpr:
        return operations["Add"](self, other)

    def __radd__(self, other: PrimExpr | float) -> PrimExpr:
        return operations["Add"](other, self)

    def __sub__(self, other: PrimExpr | float) -> PrimExpr:
        return operations["Sub"](self, other)

    def __rsub__(self, other: PrimExpr | float) -> PrimExpr:
        return operations["Sub"](other, self)

    def __mul__(self, other: PrimExpr | float) -> PrimExpr:
        return operations["Mul"](self, other)

    def __rmul__(self, other: PrimExpr | float) -> PrimExpr:
        return operations["Mul"](other, self)

    def __truediv__(self, other: PrimExpr | float) -> PrimExpr:
        return operations["true_divide"](self, other)

    def __rtruediv__(self, other: PrimExpr | float) -> PrimExpr:
        return operations["true_divide"](other, self)

    def __floordiv__(self, other: PrimExpr | int) -> PrimExpr:
        return operations["FloorDiv"](self, other)

    def __rfloordiv__(self, other: PrimExpr | int) -> PrimExpr:
        return operations["FloorDiv"](other, self)

    def __mod__(self, other: PrimExpr | int) -> PrimExpr:
        return operations["FloorMod"](self, other)

    def __rmod__(self, other: PrimExpr | int) -> PrimExpr:
        return operations["FloorMod"](other, self)

    def __neg__(self) -> PrimExpr:
        return operations["Mul"](self, -1)

    def __lt__(self, other: PrimExpr | float) -> PrimExpr:
        return operations["LT"](self, other)

    def __le__(self, other: PrimExpr | float) -> PrimExpr:
        return operations["LE"](self, other)

    def __gt__(self, other: PrimExpr | float) -> PrimExpr:
        return operations["GT"](self, other)

    def __ge__(self, other: PrimExpr | float) -> PrimExpr:
        return operations["GE"](self, other)

    def __lshift__(self, other: PrimExpr | int) -> PrimExpr:
        return operations["shift_left"](self, other)

    def __rshift__(self, other: PrimExpr | int) -> PrimExpr:
        return operations["shift_right"](self, other)

    def __and__(self, other: PrimExpr | int) -> PrimExpr:
        return operations["bitwise_and"](self, other)

    def __or__(self, other: PrimExpr | int) -> PrimExpr:
        return operations["bitwise_or"](self, other)

    def __xor__(self, other: PrimExpr | int) -> PrimExpr:
        return operations["bitwise_xor"](self, other)

    def __rlshift__(self, other: PrimExpr | int) -> PrimExpr:
        return operations["shift_left"](other, self)

    def __rrshift__(self, other: PrimExpr | int) -> PrimExpr:
        return operations["shift_right"](other, self)

    def __rand__(self, other: PrimExpr | int) -> PrimExpr:
        return operations["bitwise_and"](other, self)

    def __ror__(self, other: PrimExpr | int) -> PrimExpr:
        return operations["bitwise_or"](other, self)

    def __rxor__(self, other: PrimExpr | int) -> PrimExpr:
        return operations["bitwise_xor"](other, self)

    def __invert__(self) -> PrimExpr:
        return operations["bitwise_not"](self)


class Node:
    """What every part of a loop-level function has: a text, and identity."""

    __slots__ = ()

    def script(self, **options: Any) -> str:
        """TVMScript text; the options are those of ``IRModule.script``."""
        return importlib.import_module("relax2xla.script.printer").script(self, **options)

    def same_as(self, other: object) -> bool:
        """Whether both are the same node object."""
        return self is other


class StandsForExpr(Operators):
    """What is taken as an expression wherever one is expected, such as the axis of a block."""

    __slots__ = ()

    def as_expr(self) -> PrimExpr:
        """The expression."""
        raise NotImplementedError


class PrimExpr(Operators, Node):
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

    def equal(self, other: PrimExpr | float) -> PrimExpr:
        """The comparison node ``self == other`` (folded when both are literals)."""
        return operations["EQ"](self, other)

    def astype(self, dtype: str) -> PrimExpr:
        """This value converted to ``dtype``; ``self`` if it has that dtype already."""
        return operations["cast"](dtype, self)

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
        if _writing.depth and (made := _compared("EQ", self, other)) is not None:
            return cast("bool", made)
        if self is other:
            return True
        if not isinstance(other, PrimExpr):
            return False
        return self._hash == other._hash and same_structure(self, other)

    def __ne__(self, other: object) -> bool:
        if _writing.depth and (made := _compared("NE", self, other)) is not None:
            return cast("bool", made)
        return not self == other

    def structural_truth(self) -> bool | None:
        """What ``==`` and ``!=`` say where structure is compared; None for other expressions."""
        return None

    def __bool__(self) -> bool:
        if _writing.depth and (truth := self.structural_truth()) is not None:
            return truth
        raise ValueError(
            f"cannot decide the truth of the symbolic expression `{self}`: its value is only known "
            "at run time. Prove it with relax2xla.tir.Analyzer().can_prove(cond), or build a "
            "condition with tir.all / tir.any / tir.Not"
        )

    def __str__(self) -> str:
        return str(printed.call(self))

    __repr__ = __str__

    def __reduce__(self) -> tuple[object, ...]:
        return _unpickle, (type(self), tuple(getattr(self, n) for n in self._fields))

    _fields: ClassVar[tuple[str, ...]] = ()


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
        if type(x) is not type(y) or x.dtype != y.dtype or hash(x) != hash(y):
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

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """``dtype`` is a name, or a type of ``relax2xla.ir``: a pointer's gives a PointerVar."""
        dtype = args[1] if len(args) > 1 else kwargs.get("dtype")
        made = operations["PointerVar"] if hasattr(dtype, "element_type") else cls
        return object.__new__(cast("type[Self]", made))

    def __init__(self, name: str, dtype: Any = "int64") -> None:
        if not isinstance(dtype, str):
            dtype = str(getattr(dtype, "dtype", dtype))
        if not isinstance(name, str):
            raise OperandTypeError(f"tir.Var: name must be a str, got {type(name).__name__}")
        set_field(self, "name", name)
        set_field(self, "dtype", OTHER_NAMES.get(dtype, dtype))
        set_field(self, "_hash", object.__hash__(self))

    @property
    def name_hint(self) -> str:
        """The name, under the word Relax variables use for it."""
        return self.name

    @property
    def type_annotation(self) -> Any:
        """The type (``ir.PrimType``, or ``ir.PointerType`` of a pointer that says to what)."""
        return importlib.import_module("relax2xla.ir.types").PrimType(self.dtype)

    def __eq__(self, other: object) -> bool:
        if _writing.depth and (made := _compared("EQ", self, other)) is not None:
            return cast("bool", made)
        return self is other

    __hash__ = PrimExpr.__hash__


class SizeVar(Var):
    """A variable that holds a size: the analyzer takes it to be zero or more."""

    __slots__ = ()


class IntImm(PrimExpr):
    """An integer (or bool) literal. It equals, and hashes as, the Python int of its value.

    ``BudgetError``, which is a ``ValueError``, when the value does not fit the dtype: literals are
    also what arithmetic on the sizes of a file folds to.
    """

    __slots__ = ("value",)
    value: int
    _fields = ("dtype", "value")

    def __init__(self, dtype: str, value: int) -> None:
        dtype = OTHER_NAMES.get(dtype, dtype)
        low, high = int_range(dtype)
        value = operator.index(value)
        if not low <= value <= high:
            raise BudgetError(
                f"literal {value} does not fit {dtype}: expected a value from {low} to {high}"
            )
        set_field(self, "dtype", dtype)
        set_field(self, "value", value)
        set_field(self, "_hash", hash(value))

    def payload(self) -> tuple[object, ...]:
        return (self.value,)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, int):
            return self.value == other
        if _writing.depth and not isinstance(other, IntImm):
            return PrimExpr.__eq__(self, other)
        return isinstance(other, IntImm) and self.value == other.value and self.dtype == other.dtype

    __hash__ = PrimExpr.__hash__

    def __bool__(self) -> bool:
        return self.value != 0

    def __int__(self) -> int:
        return self.value

    __index__ = __int__


def rounded(dtype: str, value: float) -> float:
    """The number of a floating-point dtype that is nearest to ``value``; infinite beyond them."""
    with np.errstate(over="ignore"):
        return float(numpy_dtype(dtype).type(value))


class FloatImm(PrimExpr):
    """A floating-point literal; its value is rounded to float16 and float32 as these demand.

    ``written`` is the number before it was rounded, which TVM's text shows. ``BudgetError``, which
    is a ``ValueError``, for a number that the dtype would make infinite.
    """

    __slots__ = ("value", "written")
    value: float
    written: float
    _fields = ("dtype", "written")

    def __init__(self, dtype: str, value: float) -> None:
        dtype = OTHER_NAMES.get(dtype, dtype)
        if not is_float(dtype):
            raise OpError(f"FloatImm: expected a floating-point dtype, got {dtype!r}")
        held = rounded(dtype, value)
        if math.isfinite(value) and not math.isfinite(held):
            raise BudgetError(
                f"literal {value} does not fit {dtype}, where it would be {held}: write "
                f'T.{dtype}("{"-" if value < 0 else ""}inf"), or take a larger dtype'
            )
        set_field(self, "dtype", dtype)
        set_field(self, "value", held)
        set_field(self, "written", float(value))
        set_field(self, "_hash", hash(self.payload()))

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
        set_field(self, "dtype", "handle")
        set_field(self, "value", value)
        set_field(self, "_hash", hash(("StringImm", value)))

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


def wrapped(value: int, dtype: str) -> int:
    """``value`` in the range of an integer dtype, as its bits would be."""
    low, high = int_range(dtype)
    return (value - low) % (high - low + 1) + low


def is_int(dtype: str) -> bool:
    """Whether ``dtype`` is a signed or unsigned integer type (bool is not)."""
    return dtype != "bool" and dtype in _INT_RANGES


_VECTOR = re.compile(r"(.+?)x(vscalex)?(\d+)")
# TVM's other names: of bool, which it writes for vectors, and of what is 32 bits wide.
OTHER_NAMES = {
    "uint1": "bool",
    "int1": "bool",
    "int": "int32",
    "uint": "uint32",
    "float": "float32",
}


def lanes_of(dtype: str) -> int:
    """How many values a value of ``dtype`` has: 4 of ``float32x4``, 1 of a scalar.

    Of a vector whose length the processor decides (``float32xvscalex4``) the negative factor, -4.
    """
    found = None if dtype in DTYPES else _VECTOR.fullmatch(dtype)
    if found is None:
        return 1
    return -int(found[3]) if found[2] else int(found[3])


def element_of(dtype: str) -> str:
    """The dtype of one lane: ``float32`` of ``float32x4``."""
    found = None if dtype in DTYPES else _VECTOR.fullmatch(dtype)
    name = dtype if found is None else found[1]
    return OTHER_NAMES.get(name, name)
