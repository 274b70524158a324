"""Names of dimensions (``dim_param``): names, arithmetic on names, and marks of unknown sizes.

Exporters write sizes that depend on others as expressions, such as ``past + 1``. ONNX gives names
no syntax, so what looks like arithmetic may be a name (``batch-size``): it counts as arithmetic
only where every name in it is itself the size of some axis, by which the expression has a value.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from relax2xla import syntax, tir
from relax2xla.errors import FileFormatError
from relax2xla.tir import Dim

# Longer names are no arithmetic that an exporter wrote.
_MAX_LENGTH: Final = 500
_OPERATORS: Final[Mapping[type[ast.operator], Callable[[Any, Any], Any]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.floordiv,  # of sizes, which are integers
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
# As sympy prints them, in which torch writes its sizes.
_FUNCTIONS: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "Max": lambda a, b: tir.max(tir.as_prim_expr(a), b),
    "Min": lambda a, b: tir.min(tir.as_prim_expr(a), b),
}


def is_unknown(name: str) -> bool:
    """Whether a name says nothing, and so is another size at each place."""
    return name in ("None", "-1") or re.search(r"\w", name) is None


class Expressions:
    """Which names of a model are arithmetic, and what it comes to.

    names: all names of dimensions
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._plain: set[str] = set()
        parsed: dict[str, ast.expr] = {}
        for name in names:
            tree = _parsed(name)
            if isinstance(tree, ast.Name) or tree is None:
                self._plain.add(name.strip())
            else:
                parsed[name] = tree
        self._trees = {n: t for n, t in parsed.items() if _names(t) and _names(t) <= self._plain}

    def __contains__(self, name: object) -> bool:
        return name in self._trees

    def value(self, name: str, size: Callable[[str], Dim]) -> Dim:
        """What an expression comes to; ``size`` gives the sizes of its names."""
        try:
            made = _value(self._trees[name], size)
        except ZeroDivisionError:
            raise FileFormatError(f"the dimension {name!r} of an input divides by zero") from None
        return tir.as_dim(made)


def _parsed(name: str) -> ast.expr | None:
    """A name, or arithmetic on names and integers; None for anything else."""
    if len(name) > _MAX_LENGTH:
        return None
    try:
        tree = syntax.parse(name.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return tree if all(map(_arithmetic, _operands(tree))) else None


def _operands(tree: ast.expr) -> list[ast.expr]:
    """The tree and all that is computed within it."""
    made, stack = list[ast.expr](), [tree]
    while stack:
        node = stack.pop()
        made.append(node)
        if isinstance(node, ast.BinOp):
            stack += (node.left, node.right)
        elif isinstance(node, ast.Call):
            stack += node.args
    return made


def _arithmetic(node: ast.expr) -> bool:
    match node:
        case ast.Name():
            return True
        case ast.Constant():
            return type(node.value) is int
        case ast.BinOp():
            return type(node.op) in _OPERATORS
        case ast.Call(func=ast.Name(id=name)):
            return name in _FUNCTIONS and len(node.args) == 2 and not node.keywords
        case _:
            return False


def _names(tree: ast.expr) -> set[str]:
    return {n.id for n in _operands(tree) if isinstance(n, ast.Name)}


def _value(node: ast.expr, size: Callable[[str], Dim]) -> Any:
    if isinstance(node, ast.Name):
        return size(node.id)
    if isinstance(node, ast.BinOp):
        return _OPERATORS[type(node.op)](_value(node.left, size), _value(node.right, size))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return _FUNCTIONS[node.func.id](*(_value(a, size) for a in node.args))
    assert isinstance(node, ast.Constant)
    assert isinstance(node.value, int)
    return node.value
