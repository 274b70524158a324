"""Python's operators on the values that a parser may compute with, and nothing more."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any, Final

from relax2xla import ir, tir
from relax2xla.dtypes import DTYPES
from relax2xla.script.tir_functions import FUNCTIONS, Dtype

# Results beyond these are denial of service, not shapes.
MAX_BITS: Final = 4096
MAX_ITEMS: Final = 1 << 20

BINARY: Final[dict[type[ast.operator], Callable[[Any, Any], Any]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.MatMult: operator.matmul,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
}
UNARY: Final[dict[type[ast.unaryop], Callable[[Any], Any]]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Invert: operator.invert,
}
# Of values, and of symbolic integers.
COMPARE: Final[dict[type[ast.cmpop], tuple[Callable[[Any, Any], Any], type[tir.CmpExpr]]]] = {
    ast.Lt: (operator.lt, tir.LT),
    ast.LtE: (operator.le, tir.LE),
    ast.Gt: (operator.gt, tir.GT),
    ast.GtE: (operator.ge, tir.GE),
}


SIGNS: Final[dict[type[ast.AST], str]] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Pow: "**",
    ast.MatMult: "@",
    ast.LShift: "<<",
    ast.RShift: ">>",
    ast.BitAnd: "&",
    ast.BitOr: "|",
    ast.BitXor: "^",
    ast.USub: "-",
    ast.UAdd: "+",
    ast.Invert: "~",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
}


def _applied(op: ast.AST, compute: Callable[..., Any], *operands: Any) -> Any:
    """``compute(*operands)``; what Python itself says of operands that do not fit, made clear."""
    try:
        return compute(*operands)
    except (TypeError, ValueError, ArithmeticError) as e:
        # Raised further down, it is the operand's own operator that says why.
        if e.__traceback__ is not None and e.__traceback__.tb_next is not None:
            raise
        sign = SIGNS[type(op)]
        if not isinstance(e, TypeError):
            raise ValueError(f"`{sign}` of {' and '.join(map(repr, operands))}: {e}") from None
        raise TypeError(
            f"`{sign}` takes numbers, symbolic integers or Relax values; got "
            f"{' and '.join(map(described, operands))}"
        ) from None


def described(value: Any) -> str:
    """What ``value`` is, for messages: of a number or a string itself, of others the type."""
    plain = isinstance(value, bool | int | float | str | tir.PrimExpr)
    return (
        f"{type(value).__name__} {value!r}"
        if plain
        else f"an object of type {type(value).__name__}"
    )


def item(owner: Any, index: Any) -> Any:
    """``owner[index]``."""
    try:
        return owner[index]
    except (TypeError, LookupError) as e:
        if e.__traceback__ is not None and e.__traceback__.tb_next is not None:
            raise
        if isinstance(e, TypeError):
            raise TypeError(
                f"{described(owner)} has no items that {described(index)} counts or names"
            ) from None
        raise IndexError(f"there is no item {index!r} among the {len(owner)} that there are") from e


def binary(op: ast.operator, a: Any, b: Any) -> Any:
    """``a op b``; ValueError where the result would be huge."""
    if isinstance(a, int) and isinstance(b, int):
        bits = a.bit_length()
        if isinstance(op, ast.Pow) and b * bits > MAX_BITS:
            raise ValueError("the power is too large")
        if isinstance(op, ast.LShift) and b + bits > MAX_BITS:
            raise ValueError("the shift is too large")
    if isinstance(op, ast.Mult):
        for sequence, count in ((a, b), (b, a)):
            if isinstance(sequence, str | bytes | list | tuple) and isinstance(count, int):
                if len(sequence) * count > MAX_ITEMS:
                    raise ValueError("the repetition is too long")
    if isinstance(op, ast.Mod) and isinstance(a, str | bytes):
        raise TypeError("text is not formatted in TVMScript")
    return _applied(op, BINARY[type(op)], a, b)


def unary(op: ast.unaryop, a: Any) -> Any:
    """``op a``."""
    if isinstance(op, ast.Not):
        if isinstance(a, tir.PrimExpr):
            return tir.Not(a)
        if isinstance(a, ir.Expr):
            return ir.Op.get("relax.logical_not")(a)
        return not a
    return _applied(op, UNARY[type(op)], a)


def compare(op: ast.cmpop, a: Any, b: Any) -> Any:
    """``a op b``; equality of symbolic integers is an expression, of tensors a call."""
    symbolic = isinstance(a, tir.PrimExpr) or isinstance(b, tir.PrimExpr)
    if type(op) in COMPARE:
        compute, node = COMPARE[type(op)]
        # Python answers `1 < n` by `n > 1`, which is another expression.
        return _applied(op, node.make if symbolic else compute, a, b)
    if not isinstance(op, ast.Eq | ast.NotEq):
        raise TypeError("only < <= > >= == != compare values in TVMScript")
    equal = isinstance(op, ast.Eq)
    if symbolic:
        return _applied(op, (tir.EQ if equal else tir.NE).make, a, b)
    if isinstance(a, ir.Expr) or isinstance(b, ir.Expr):
        return ir.Op.get("relax.equal" if equal else "relax.not_equal")(a, b)
    return (a == b) is equal


def boolean(op: ast.boolop, values: list[Any]) -> Any:
    """``and`` and ``or`` of Python's truth values or of symbolic conditions."""
    if any(isinstance(v, tir.PrimExpr) for v in values):
        return (tir.all if isinstance(op, ast.And) else tir.any)(*values)
    if any(isinstance(v, ir.Expr) for v in values):
        raise TypeError("use R.logical_and and R.logical_or on tensors")
    return all(values) if isinstance(op, ast.And) else any(values)


def arithmetic(node: ast.expr, resolve: Callable[[str], Any]) -> Any:
    """The value of the text of a dimension: names, integers, operators, ``T.max`` and its like."""
    match node:
        case ast.Name():
            return resolve(node.id)
        case ast.Constant(value=bool() | int() | float() | str()):
            return node.value
        case ast.BinOp():
            left, right = arithmetic(node.left, resolve), arithmetic(node.right, resolve)
            return binary(node.op, left, right)
        case ast.UnaryOp():
            return unary(node.op, arithmetic(node.operand, resolve))
        case ast.BoolOp():
            return boolean(node.op, [arithmetic(v, resolve) for v in node.values])
        case ast.Compare(ops=[op], comparators=[right]):
            return compare(op, arithmetic(node.left, resolve), arithmetic(right, resolve))
        case ast.Call(func=ast.Attribute(value=ast.Name(), attr=name), keywords=[]):
            if name in FUNCTIONS or name in DTYPES:
                function = FUNCTIONS.get(name) or Dtype(name)
                return function(*[arithmetic(a, resolve) for a in node.args])
            raise ValueError(f"T has no {name!r}")
        case _:
            raise ValueError(f"`{ast.unparse(node)}` is no arithmetic on symbolic integers")
