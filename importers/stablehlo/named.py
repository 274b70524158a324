"""Symbolic dimensions of programs of ``jax.export``, under the names that JAX gives them."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any, Final

from relax2xla import tir
from relax2xla.errors import StableHLOParseError
from relax2xla.ir import GlobalVar, IRModule, TensorStructInfo, TupleStructInfo
from relax2xla.ir.lattice import result_info
from relax2xla.ir.rewrite import rewrite_function
from relax2xla.ir.struct_info import StructInfo
from relax2xla.tir import Dim

# Dimensions as JAX writes them: "n", "2*n", "3".
Shapes = Sequence[Sequence[str]]

# The function that jax.export puts the program in; its ``main`` checks the shapes and calls it.
_WRAPPED: Final = "_wrapped_jax_export_main"
# Characters of a dimension, and its powers, beyond which it gets no name.
_LONGEST: Final = 400
_POWER: Final = 16


def named_dims(mod: IRModule, inputs: Shapes, outputs: Shapes) -> IRModule:
    """``mod`` with the dimensions that the shapes of what ``main`` takes and gives tell."""
    every = {d for shape in (*inputs, *outputs) for d in shape}
    if all(d.isdecimal() for d in every):
        return mod
    functions: dict[GlobalVar, Any] = dict(mod.functions)
    for gvar, func in mod.functions.items():
        if gvar.name_hint not in ("main", _WRAPPED):
            continue
        # Tokens, the platform and (wrapped) the sizes themselves come first.
        params = func.params[len(func.params) - len(inputs) :]
        returned = func.body.body.struct_info
        results = returned.fields if isinstance(returned, TupleStructInfo) else (returned,)
        results = results[len(results) - len(outputs) :]
        if len(params) != len(inputs) or len(results) != len(outputs):
            raise StableHLOParseError(
                f"the shapes that were exported are not those of the function {gvar.name_hint}"
            )
        known = list(zip((p.struct_info for p in params), inputs, strict=True))
        variables: dict[str, tir.Var] = {}
        found: dict[tir.Var, Dim] = {}
        # Names first: 2 * n can stand only where n is a dimension itself.
        for whole in (True, False):
            for info, shape in known:
                _learn(info, shape, variables, found, whole)
        for info, shape in zip(results, outputs, strict=True):
            _learn(info, shape, variables, found, False)
        made = rewrite_function(func, symbolic=found)
        returns = result_info(made.params, made.body.body.struct_info)
        functions[gvar] = made.replace(ret_struct_info=returns)
    return mod.replace(functions)


def _learn(
    info: StructInfo,
    shape: Sequence[str],
    variables: dict[str, tir.Var],
    found: dict[tir.Var, Dim],
    whole: bool,
) -> None:
    """Add what ``shape`` says of the fresh dimensions of ``info`` to ``found``."""
    dims = info.dims if isinstance(info, TensorStructInfo) else None
    for own, text in zip(dims or (), shape, strict=False):
        if not isinstance(own, tir.Var) or own in found:
            continue
        if whole and text.isidentifier():
            found[own] = variables.setdefault(text, tir.Var(text, "int64"))
        elif not whole:
            made = _parsed(text, variables)
            if made is not None:
                found[own] = made


def _parsed(text: str, variables: dict[str, tir.Var]) -> Dim | None:
    """A dimension as JAX writes it; None for a number, and for what nothing defines.

    A name is a help to the reader, so that text which a damaged file holds may go without.
    """
    if len(text) > _LONGEST:
        return None
    try:
        made = _dim(ast.parse(text, mode="eval").body, variables)
        return tir.as_dim(made) if isinstance(made, tir.PrimExpr) else None
    except (SyntaxError, ValueError, ArithmeticError, MemoryError, RecursionError):
        return None


_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
}
_CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "floordiv": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
    "max": lambda a, b: tir.max(a, b),
    "min": lambda a, b: tir.min(a, b),
}


def _dim(node: ast.expr, variables: dict[str, tir.Var]) -> Any:
    """A dimension as JAX prints it; None where it is not one of variables that are defined."""
    match node:
        case ast.Constant(value=int() as value):
            return value
        case ast.Name(id=name):
            return variables.get(name)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            inner = _dim(operand, variables)
            return None if inner is None else inner * -1
        case ast.BinOp(op=ast.Pow(), left=left, right=ast.Constant(value=int() as power)):
            base = _dim(left, variables)
            if base is None or power > _POWER:
                return None
            made: Any = 1
            for _ in range(power):
                made = made * base
            return made
        case ast.BinOp(left=left, right=right) if type(node.op) in _BINARY:
            pair = _dim(left, variables), _dim(right, variables)
            return None if None in pair else _BINARY[type(node.op)](*pair)
        case ast.Call(func=ast.Name(id=name), args=[left, right]) if name in _CALLS:
            pair = _dim(left, variables), _dim(right, variables)
            return None if None in pair else _CALLS[name](*pair)
        case _:
            return None
