"""What programs that were written for TVM see of expressions.

relax2xla itself compares structure at once, and holds a static size as a number of Python. Where a
program does it, ``a == b`` is a node whose truth is structural; a static size of a buffer, of a
tensor of ``te`` or of a loop is a literal with a dtype; a float literal has the value that was
written, not the one that its dtype holds; types of functions are equal up to the symbols that
their parameters define; the text of an expression is TVMScript, and that of a module says that
``tvm.script`` reads it. Who does it is the frame that asks: modules of relax2xla
go on as ever. Expressions, struct infos and bindings of Relax have such a text, too.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

from relax2xla.ir import (
    Binding,
    Expr,
    FuncStructInfo,
    Op,
    ShapeExpr,
    StructInfo,
    structural_equal,
    structural_hash,
)
from relax2xla.script import printer
from relax2xla.te.tensor import Tensor
from relax2xla.tir import Broadcast, Buffer, For, Ramp, Range, node
from relax2xla.tir.node import FloatImm, IntImm, PrimExpr, Var, writing

_OWN: Final = node.__name__.partition(".")[0]
# Where nodes hold sizes as numbers, and the dtype that TVM's literals have there.
_SIZES: Final[tuple[tuple[type[Any], str, str], ...]] = (
    (Range, "min", "int64"),
    (Range, "extent", "int64"),
    (For, "min", "int64"),
    (For, "extent", "int64"),
    (Ramp, "lanes", "int32"),
    (Broadcast, "lanes", "int32"),
    (Buffer, "shape", "int64"),
    (ShapeExpr, "values", "int64"),
    (Tensor, "shape", "int64"),
)
# Whose text is TVMScript, by which methods.
_TEXTS: Final[tuple[tuple[type[Any], tuple[str, ...]], ...]] = (
    (PrimExpr, ("__str__",)),
    (Expr, ("__str__", "__repr__")),
    (StructInfo, ("__str__", "__repr__")),
    (Binding, ("__str__", "__repr__")),
)


def _is_own(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__")).partition(".")[0] == _OWN


def _comparison(method: Callable[..., Any]) -> Callable[..., Any]:
    """``method``, which writes expressions where a program calls it."""

    @functools.wraps(method)
    def compare(*args: Any) -> Any:
        if _is_own(sys._getframe(1)):  # pyright: ignore[reportPrivateUsage]
            return method(*args)
        with writing():
            return method(*args)

    return compare


def _same_function(method: Callable[..., bool]) -> Callable[..., bool]:
    """``method``, which renames the symbols that parameters define where a program calls it."""

    @functools.wraps(method)
    def same(a: Any, b: Any) -> bool:
        if method(a, b):
            return True
        own = _is_own(sys._getframe(1))  # pyright: ignore[reportPrivateUsage]
        return not own and isinstance(b, FuncStructInfo) and structural_equal(a, b)

    return same


def _literal(value: Any, dtype: str) -> Any:
    if type(value) is int:
        return IntImm(dtype, value)
    return tuple(_literal(v, dtype) for v in value) if type(value) is tuple else value


def _size(held: Any, dtype: str) -> property:
    """The field that the descriptor ``held`` is, with literals of ``dtype`` for programs."""

    def get(owner: Any) -> Any:
        value = held.__get__(owner, type(owner))
        if _is_own(sys._getframe(1)):  # pyright: ignore[reportPrivateUsage]
            return value
        return _literal(value, dtype)

    return property(get, getattr(held, "__set__", None), doc=held.__doc__)


def _written(held: Any) -> property:
    """The value of a float literal: as it was written, not rounded to its dtype."""

    def get(literal: Any) -> float:
        own = _is_own(sys._getframe(1))  # pyright: ignore[reportPrivateUsage]
        return held.__get__(literal, FloatImm) if own else literal.written

    return property(get, held.__set__, doc=held.__doc__)


def _text(method: Callable[[Any], str]) -> Callable[[Any], str]:
    @functools.wraps(method)
    def text(expr: Any) -> str:
        if _is_own(sys._getframe(1)):  # pyright: ignore[reportPrivateUsage]
            return method(expr)
        return expr.script()

    return text


def show_as_tvm() -> None:
    """Let programs see expressions as TVM's from now on."""
    if hasattr(PrimExpr.__eq__, "__wrapped__"):
        return
    for kind in (PrimExpr, Var, IntImm):
        for name in ("__eq__", "__ne__", "__bool__"):
            if name in vars(kind):
                setattr(kind, name, _comparison(vars(kind)[name]))
    for kind, name, dtype in _SIZES:
        setattr(kind, name, _size(vars(kind)[name], dtype))
    setattr(FuncStructInfo, "__eq__", _same_function(FuncStructInfo.__eq__))  # noqa: B010
    setattr(FuncStructInfo, "__hash__", structural_hash)  # noqa: B010 - equal ones share it
    setattr(FloatImm, "value", _written(vars(FloatImm)["value"]))  # noqa: B010 - as below
    printer.PACKAGE = "tvm.script"
    setattr(Op, "__str__", Op.__str__)  # noqa: B010 - an operator's is its name, in TVM too
    setattr(Op, "__repr__", Op.__repr__)  # noqa: B010
    for kind, names in _TEXTS:
        for name in names:
            setattr(kind, name, _text(getattr(kind, name)))
