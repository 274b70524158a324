"""Python's operators on the values that a parser may compute with, and nothing more."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any, Final

from relax2xla import ir, tir
from relax2xla.dtypes import DTYPES

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
COMPARE: Final[dict[type[ast.cmpop], Callable[[Any, Any], Any]]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


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
    return BINARY[type(op)](a, b)


def unary(op: ast.unaryop, a: Any) -> Any:
    """``op a``."""
    if isinstance(op, ast.Not):
        if isinstance(a, tir.PrimExpr):
            return tir.Not(a)
        if isinstance(a, ir.Expr):
            return ir.Op.get("relax.logical_not")(a)
        return not a
    return UNARY[type(op)](a)


def compare(op: ast.cmpop, a: Any, b: Any) -> Any:
    """``a op b``; equality of symbolic integers is an expression, of tensors a call."""
    if type(op) in COMPARE:
        return COMPARE[type(op)](a, b)
    if not isinstance(op, ast.Eq | ast.NotEq):
        raise TypeError("only < <= > >= == != compare values in TVMScript")
    equal = isinstance(op, ast.Eq)
    if isinstance(a, tir.PrimExpr) or isinstance(b, tir.PrimExpr):
        left, right = (a, b) if isinstance(a, tir.PrimExpr) else (b, a)
        return (tir.EQ if equal else tir.NE).make(left, right)
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
    from relax2xla.script.tir_names import FUNCTIONS, Dtype

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
