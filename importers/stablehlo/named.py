"""Names that StableHLO programs give their arguments and dimensions.

Of arguments: locations (``loc("params['w']")``, as JAX writes them), the attributes
``jax.arg_info`` and ``tf_saved_model.index_path``, and TensorFlow's ``tf.entry_function``. Of
dimensions: what jax.export writes beside a program, and the attribute ``relax2xla.shape``, which
has them in the same spelling ("n, 2*n, 3").
"""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from relax2xla import syntax, tir
from relax2xla.errors import StableHLOParseError
from relax2xla.ir import (
    Call,
    Function,
    GlobalVar,
    IRModule,
    Span,
    TensorStructInfo,
    TupleStructInfo,
    Var,
    VarBinding,
)
from relax2xla.ir.lattice import free_symbolic_vars, result_info
from relax2xla.ir.rewrite import rewrite_function
from relax2xla.ir.source_names import (
    ARG_INFO,
    INDEX_PATH,
    LOCATION,
    RESERVED,
    SHAPE,
    identifier,
    listed_names,
    path_name,
    source_name,
    with_dims_told,
)
from relax2xla.ir.struct_info import StructInfo
from relax2xla.tir import Dim

# Dimensions as JAX writes them: "n", "2*n", "3".
Shapes = Sequence[Sequence[str]]

# The function that jax.export puts the program in; its ``main`` checks the shapes and calls it.
_WRAPPED: Final = "_wrapped_jax_export_main"
# Characters of a dimension, and its powers, beyond which it gets no name.
_LONGEST: Final = 400
_POWER: Final = 16


def named(mod: IRModule) -> IRModule:
    """``mod``, as it was read, with the names that the program itself says."""
    functions = {g: _said_dims(func) for g, func in mod.relax_functions().items()}
    inside = _wrapped_names({g.name_hint: func for g, func in functions.items()})
    made = {g: _named_params(func, inside) for g, func in functions.items()}
    return mod.replace({**mod.functions, **made})


def _wrapped_names(functions: Mapping[str, Function]) -> dict[Var, str]:
    """Names of the parameters of jax.export's ``main`` that only what it calls says."""
    found: dict[Var, str] = {}
    if "main" not in functions or _WRAPPED not in functions:
        return found
    params = functions[_WRAPPED].params
    for block in functions["main"].body.blocks:
        for call in (b.value for b in block.bindings if isinstance(b, VarBinding)):
            if not isinstance(call, Call) or not isinstance(call.op, GlobalVar):
                continue
            if call.op.name_hint == _WRAPPED and len(call.args) == len(params):
                pairs = zip(call.args, params, strict=True)
                found |= {own: source_name(p) for own, p in pairs if isinstance(own, Var)}
    return found


def named_dims(mod: IRModule, inputs: Shapes, outputs: Shapes) -> IRModule:
    """``mod`` with the dimensions that the shapes of what ``main`` takes and gives tell."""
    functions: dict[GlobalVar, Any] = dict(mod.functions)
    for gvar, func in mod.functions.items():
        if gvar.name_hint in ("main", _WRAPPED):
            made = _with_dims(func, inputs, outputs, gvar.name_hint)
            functions[gvar] = func if made is func else with_dims_told(made)
    return mod.replace(functions)


def _said_dims(func: Function) -> Function:
    """``func`` with the dimensions that attributes of its arguments and results say."""
    arguments = func.attrs.get("arg_attrs", {})
    results = func.attrs.get("res_attrs", ())
    inputs = [_said_shape(arguments.get(p.name_hint)) for p in func.params]
    outputs = [_said_shape(row) for row in results]
    if not any(inputs) and not any(outputs):
        return func
    count = len(_results(func))
    fits = len(outputs) == count
    return _with_dims(func, inputs, outputs if fits else [()] * count, "")


def _said_shape(attrs: Any) -> list[str]:
    said = attrs.get(SHAPE) if isinstance(attrs, Mapping) else None
    if not isinstance(said, str) or len(said) > _LONGEST:
        return []
    return [d.strip() for d in _COMMA.split(said)]


# Commas between dimensions, and not those of floordiv(n, 2).
_COMMA: Final = re.compile(r",(?![^()]*\))")


def _results(func: Function) -> tuple[StructInfo, ...]:
    returned = func.body.body.struct_info
    return returned.fields if isinstance(returned, TupleStructInfo) else (returned,)


def _with_dims(func: Function, inputs: Shapes, outputs: Shapes, name: str) -> Function:
    """``func`` with dimensions of its last parameters and results; a name for the error's text."""
    every = {d for shape in (*inputs, *outputs) for d in shape}
    if all(d.isdecimal() for d in every):
        return func
    # Tokens, the platform and (wrapped) the sizes themselves come first.
    params = func.params[len(func.params) - len(inputs) :]
    results = _results(func)
    results = results[len(results) - len(outputs) :]
    if len(params) != len(inputs) or len(results) != len(outputs):
        raise StableHLOParseError(
            f"the shapes that were exported are not those of the function {name}"
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
    return made.replace(ret_struct_info=returns)


def _named_params(func: Function, inside: Mapping[Var, str]) -> Function:
    """``func`` whose parameters have the names that the program gives them, as identifiers.

    ``inside``: names that the program says of them elsewhere

    The module has just been read, so that nobody else knows these variables: they are changed in
    place. What the source calls them is their spans' name.
    """
    attrs = func.attrs.get("arg_attrs", {})
    listed = listed_names(func, "inputs", len(func.params))
    taken = {v.name for p in func.params for v in free_symbolic_vars(p.struct_info)} | RESERVED
    taken |= {p.name_hint for p in func.params}
    renamed: dict[str, str] = {}
    for i, p in enumerate(func.params):
        name, own = source_name(p), attrs.get(p.name_hint, {})
        if name:
            span = p.span or Span()
            p.span = dataclasses.replace(span, metadata=LOCATION)
        else:
            said = own.get(ARG_INFO)
            name = said if isinstance(said, str) else path_name(own.get(INDEX_PATH))
            name = name or listed[i] or inside.get(p, "")
            if not name:
                continue
            p.span = Span(name, children=() if p.span is None else (p.span,), metadata=ARG_INFO)
        old = p.name_hint
        taken.discard(old)
        p.vid.name_hint = renamed[old] = identifier(name, taken)
        taken.add(p.name_hint)
    if attrs:
        held = {renamed.get(name, name): value for name, value in attrs.items()}
        func = func.with_attr("arg_attrs", held)
    return func


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
        made = _dim(syntax.parse(text, mode="eval").body, variables)
        return tir.as_dim(made) if isinstance(made, tir.PrimExpr) else None
    except (SyntaxError, ValueError, ArithmeticError, MemoryError, RecursionError):
        return None


_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Mod: lambda a, b: a % b,
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
