"""Text of expressions in the form TVMScript has, which Python can parse back."""

from __future__ import annotations

import json
import math
from collections.abc import Callable

from relax2xla.dtypes import is_float
from relax2xla.tir.binary import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    Add,
    And,
    BinaryExpr,
    Div,
    FloorDiv,
    FloorMod,
    Max,
    Min,
    Mod,
    Mul,
    Or,
    Sub,
)
from relax2xla.tir.buffer import BufferLoad, Let
from relax2xla.tir.call import Call
from relax2xla.tir.convert import Cast
from relax2xla.tir.expr import Not, Select
from relax2xla.tir.node import Dim, FloatImm, IntImm, PrimExpr, StringImm, Var, printed
from relax2xla.tir.vector import Broadcast, Ramp

# Python's precedences. A comparison never stands bare inside a comparison: Python would chain it.
_OR, _AND, _NOT, _COMPARE, _SUM, _PRODUCT, _ATOM = range(1, 8)

_INFIX: dict[type[PrimExpr], tuple[str, int]] = {
    Or: ("or", _OR),
    And: ("and", _AND),
    EQ: ("==", _COMPARE),
    NE: ("!=", _COMPARE),
    LT: ("<", _COMPARE),
    LE: ("<=", _COMPARE),
    GT: (">", _COMPARE),
    GE: (">=", _COMPARE),
    Add: ("+", _SUM),
    Sub: ("-", _SUM),
    Mul: ("*", _PRODUCT),
    FloorDiv: ("//", _PRODUCT),
    FloorMod: ("%", _PRODUCT),
}
_PREFIX: dict[type[PrimExpr], str] = {
    Min: "min",
    Max: "max",
    Mod: "truncmod",
    Div: "Div",
    Select: "Select",
}


@printed.given
def to_text(
    expr: Dim,
    *,
    name_of: Callable[[Var], str] | None = None,
    bare_int: str = "int64",
    prefix: str = "T",
) -> str:
    """The expression as text, with the parentheses it needs and no others.

    ``name_of`` gives a variable's name (its own by default), ``bare_int`` is the dtype whose
    literals print without ``T.dtype(...)``, ``prefix`` the name of the namespace of builtins.
    """
    if isinstance(expr, int):
        return str(int(expr))
    out: list[str] = []
    # Text to emit, or an expression with the precedence its surroundings demand.
    stack: list[str | tuple[PrimExpr, int]] = [(expr, 0)]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            out.append(item)
            continue
        node, demanded = item
        if isinstance(node, Var):
            out.append(node.name if name_of is None else name_of(node))
        elif isinstance(node, IntImm | FloatImm | StringImm):
            out.append(_literal(node, bare_int, prefix))
        elif (infix := _infix(node)) is not None and isinstance(node, BinaryExpr):
            symbol, precedence = infix
            bracket = precedence < demanded
            left = precedence + 1 if precedence == _COMPARE else precedence
            if bracket:
                stack.append(")")
            stack.extend([(node.b, precedence + 1), f" {symbol} ", (node.a, left)])
            if bracket:
                stack.append("(")
        elif isinstance(node, Not):
            bracket = demanded > _NOT
            out.append("(not " if bracket else "not ")
            if bracket:
                stack.append(")")
            stack.append((node.a, _NOT))
        else:
            close, children = ")", node.children()
            if isinstance(node, BufferLoad):
                close = "]"
            elif isinstance(node, Let):
                close = f", where={{{node.var.name}: ...}})"
                children = (node.body,)
            elif isinstance(node, Ramp | Broadcast):
                close = f", {node.lanes})"
            stack.append(close)
            for i in range(len(children) - 1, -1, -1):
                stack.append((children[i], 0))
                if i:
                    stack.append(", ")
            if isinstance(node, BufferLoad):
                stack.append(f"{node.buffer.name}[")
            else:
                stack.append(f"{prefix}.{_function(node)}")
    return "".join(out)


def _infix(node: PrimExpr) -> tuple[str, int] | None:
    if type(node) is Div:
        return ("/", _PRODUCT) if is_float(node.dtype) else None
    return _INFIX.get(type(node))


def _function(node: PrimExpr) -> str:
    """How the call of a builtin begins, up to its first operand."""
    if isinstance(node, Cast):
        return f'Cast("{node.dtype}", '
    if isinstance(node, Call) and node.op == "tir.reinterpret":
        return f'reinterpret("{node.dtype}", '
    if isinstance(node, Call):
        return f"{node.op.removeprefix('tir.')}("
    return f"{_PREFIX.get(type(node), type(node).__name__)}("


def _literal(node: IntImm | FloatImm | StringImm, bare_int: str, prefix: str) -> str:
    if isinstance(node, StringImm):
        return json.dumps(node.value)
    if isinstance(node, IntImm):
        if node.dtype == bare_int:
            return str(node.value)
        return f"{prefix}.{node.dtype}({bool(node.value) if node.dtype == 'bool' else node.value})"
    text = repr(node.value) if math.isfinite(node.value) else f'"{node.value}"'
    return f"{prefix}.{node.dtype}({text})"
