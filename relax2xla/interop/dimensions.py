"""Symbolic dimensions of ``jax.export`` as those of Relax, and back."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any

from relax2xla import syntax, tir
from relax2xla.errors import UnsupportedError

_TO_RELAX: dict[str, Callable[..., Any]] = {
    "mod": tir.floormod,
    "floordiv": tir.floordiv,
    "max": tir.max,
    "min": tir.min,
    "non_negative": lambda x: tir.max(x, 0),
}
_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: tir.floordiv,
    ast.Mod: tir.floormod,
}


class Dimensions:
    """Variables of JAX's symbolic shapes and Relax's for them, by name."""

    def __init__(self) -> None:
        self._variables: dict[str, tir.Var] = {}

    def relax(self, dim: Any, known: dict[tir.Var, Any]) -> Any:
        """A dimension of JAX as one of Relax; ``known`` gets what its variables are in JAX."""
        if isinstance(dim, int):
            return dim
        (scope,) = {dim.scope}
        tree = syntax.parse(str(dim).replace("^", "**"), mode="eval").body
        made = self._node(tree, scope, known)
        return tir.as_dim(tir.simplify(made))

    def _node(self, node: ast.expr, scope: Any, known: dict[tir.Var, Any]) -> Any:
        match node:
            case ast.Constant(value=int() as value):
                return value
            case ast.Name(id=name):
                var = self._variables.setdefault(name, tir.Var(name, "int64"))
                if var not in known:
                    from jax import export

                    (known[var],) = export.symbolic_shape(name, scope=scope)
                return var
            case ast.UnaryOp(op=ast.USub()):
                return 0 - self._node(node.operand, scope, known)
            case ast.BinOp(op=ast.Pow(), right=ast.Constant(value=int() as times)):
                base = self._node(node.left, scope, known)
                made = base
                for _ in range(times - 1):
                    made = made * base
                return made
            case ast.BinOp() if type(node.op) in _OPERATORS:
                sides = (self._node(n, scope, known) for n in (node.left, node.right))
                return _OPERATORS[type(node.op)](*sides)
            case ast.Call(func=ast.Name(id=name)) if name in _TO_RELAX:
                return _TO_RELAX[name](*(self._node(a, scope, known) for a in node.args))
            case _:
                raise UnsupportedError(
                    f"a dimension of a form that is not known: {ast.unparse(node)}"
                )


def in_jax(dim: Any, known: Mapping[tir.Var, Any]) -> Any:
    """A dimension of Relax as JAX has it: a number, or an expression of symbolic dimensions."""
    if not isinstance(dim, tir.PrimExpr):
        return dim
    made: dict[tir.PrimExpr, Any] = {}
    for node in tir.post_order(dim):
        made[node] = _in_jax(node, made, known)
    return made[dim]


def _in_jax(
    node: tir.PrimExpr, made: Mapping[tir.PrimExpr, Any], known: Mapping[tir.Var, Any]
) -> Any:
    from jax import core

    match node:
        case tir.Var():
            return known[node]
        case tir.IntImm():
            return node.value
        case tir.Cast():
            return made[node.value]
        case tir.Add() | tir.Sub() | tir.Mul() | tir.FloorDiv() | tir.FloorMod():
            a, b = made[node.a], made[node.b]
            return _BINARY[type(node)](a, b)
        case tir.Max():
            return core.max_dim(made[node.a], made[node.b])
        case tir.Min():
            return core.min_dim(made[node.a], made[node.b])
        case _:
            raise UnsupportedError(f"the dimension {node} has no form in JAX's symbolic shapes")


_BINARY: dict[type[tir.PrimExpr], Callable[[Any, Any], Any]] = {
    tir.Add: operator.add,
    tir.Sub: operator.sub,
    tir.Mul: operator.mul,
    tir.FloorDiv: operator.floordiv,
    tir.FloorMod: operator.mod,
}
