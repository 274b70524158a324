"""JAX functions to Relax modules, and Relax modules to JAX functions.

The module's name is that of the framework, so that ``relax2xla.interop.jax.from_jax`` reads well;
jax itself is imported on first use.
"""

from __future__ import annotations

import ast
import inspect
import keyword
import re
from collections.abc import Callable, Sequence
from typing import Any

from relax2xla import tir
from relax2xla.errors import TVMError
from relax2xla.importers.stablehlo import from_stablehlo
from relax2xla.ir import (
    Expr,
    Function,
    GlobalVar,
    IRModule,
    TensorStructInfo,
    TupleStructInfo,
    Var,
)
from relax2xla.ir.expr import global_symbol
from relax2xla.ir.lattice import result_info
from relax2xla.ir.rewrite import rewrite_function
from relax2xla.ir.struct_info import StructInfo
from relax2xla.tir import Dim

# The function that jax.export puts the program in; its ``main`` checks the shapes and calls it.
_WRAPPED = "_wrapped_jax_export_main"


def from_jax(
    fn: Callable[..., Any], /, *args: Any, raise_ops: bool = False, **kwargs: Any
) -> IRModule:
    """The Relax module of a JAX function, traced on ``args`` and ``kwargs``.

    ``fn``: any function that ``jax.jit`` takes; also one that is jitted already. ``args``: arrays,
    numbers, ``jax.ShapeDtypeStruct``, and pytrees of them. Dimensions of ``jax.export``'s symbolic
    shapes become Relax's, under the same names: ``main`` then runs for any size.

    ``main`` has one parameter a leaf, named by its path (``params["w"][0]`` is ``params_w_0``), and
    gives one tensor or, where ``fn`` returns several leaves, a flat tuple of them in the order of
    ``jax.tree.leaves``. Its operators are StableHLO's, one row an operation; ``raise_ops`` puts
    high-level ones in place of them, as in ``from_stablehlo``. JAX's x64 flag decides, as always,
    whether 64-bit inputs stay so.

    Raises :class:`OpNotImplemented` for what Relax cannot hold; errors of the tracing are JAX's.
    """
    import jax

    from relax2xla.vm import canonical

    leaves = jax.tree_util.tree_flatten_with_path((args, kwargs))[0]
    names = _names(fn, [path for path, _ in leaves])
    jitted = jax.jit(fn, keep_unused=True)
    if any(_is_symbolic(d) for _, leaf in leaves for d in getattr(leaf, "shape", ())):
        from jax import export

        exported = export.export(jitted)(*args, **kwargs)
        mod = _named_dims(from_stablehlo(exported, raise_ops=False), exported)
    else:
        mod = from_stablehlo(jitted.lower(*args, **kwargs), raise_ops=False)
    mod = _named_params(mod, names)
    wide = [n for n, (_, leaf) in zip(names, leaves, strict=True) if canonical.is_wide(leaf)]
    if wide:
        mod["main"] = mod["main"].with_attr(canonical.NARROWED, wide)
    if raise_ops:
        from relax2xla.transform import RaiseStableHLO

        mod = RaiseStableHLO()(mod)
    return mod


def to_jax(
    mod: IRModule | Function, name: str = "main", *, allow_custom_calls: Sequence[str] = ()
) -> Callable[..., Any]:
    """A function of a module as a JAX function: takes and gives jax arrays, one an operand.

    It can be called, and used inside ``jax.jit`` and what is built on it (``jax.lax`` loops,
    shardings, ``jax.export``): its program is inlined there. It has no derivative and cannot be
    vmapped; JAX says so where that is tried. Weights are constants of the program.
    ``allow_custom_calls``: as of ``build``.
    """
    from relax2xla.vm.build import build
    from relax2xla.vm.machine import VirtualMachine

    if isinstance(mod, Function):
        name = global_symbol(mod) or "main"
    elif name not in mod:
        known = ", ".join(g.name_hint for g in mod)
        raise TVMError(f"the module has no function {name!r}; it has {known}")
    call = VirtualMachine(build(mod, allow_custom_calls=allow_custom_calls))[name]

    def function(*args: Any) -> Any:
        return call(*args)

    function.__name__ = function.__qualname__ = name
    function.__signature__ = call.__signature__
    function.__doc__ = f"The Relax function {name}, compiled by XLA."
    return function


# ---- names of parameters
def _names(fn: Callable[..., Any], paths: Sequence[Any]) -> list[str]:
    """Names of the leaves at ``paths`` of ``(args, kwargs)``: unique identifiers."""
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    taken: set[str] = set()
    made: list[str] = []
    for root, first, *rest in paths:
        if root.idx == 0:
            words = [_argument(parameters, first.idx)]
        else:
            words = [str(first.key)]
        words += [str(_key(k)) for k in rest]
        name = re.sub(r"\W", "_", "_".join(words), flags=re.ASCII)
        if not name.isidentifier() or keyword.iskeyword(name):
            name = f"arg_{name}"
        number, base = 1, name
        while name in taken:
            name = f"{base}_{number}"
            number += 1
        taken.add(name)
        made.append(name)
    return made


def _argument(parameters: Sequence[inspect.Parameter], index: int) -> str:
    """Name of positional argument ``index``."""
    for i, p in enumerate(parameters):
        if p.kind is p.VAR_POSITIONAL:
            return f"{p.name}_{index - i}"
        if i == index:
            return p.name
    return f"arg{index}"


def _key(key: Any) -> Any:
    """What one step of a pytree's path says: a key, an index, or the name of an attribute."""
    for slot in ("key", "idx", "name"):
        if hasattr(key, slot):
            return getattr(key, slot)
    return key


def _named_params(mod: IRModule, names: Sequence[str]) -> IRModule:
    main = mod["main"]
    if len(main.params) != len(names):
        raise TVMError(
            f"JAX made {len(main.params)} parameters of {len(names)} leaves; close over what is "
            "no array, such as strings and flags"
        )
    attrs = dict(main.attrs)
    if "arg_attrs" in attrs:
        new = dict(zip((p.name_hint for p in main.params), names, strict=True))
        attrs["arg_attrs"] = {new[k]: v for k, v in attrs["arg_attrs"].items()}
    params = [Var(name, p.struct_info, p.span) for p, name in zip(main.params, names, strict=True)]
    values: dict[Var, Expr] = dict(zip(main.params, params, strict=True))
    renamed = rewrite_function(main.replace(params=params, attrs=attrs), values=values)
    mod["main"] = renamed
    return mod


# ---- symbolic dimensions
def _is_symbolic(d: Any) -> bool:
    from jax import export

    return export.is_symbolic_dim(d)


def _named_dims(mod: IRModule, exported: Any) -> IRModule:
    """``mod`` with the dimensions that the export's own shapes tell, under their names."""
    functions: dict[GlobalVar, Any] = dict(mod.functions)
    for gvar, func in mod.functions.items():
        if gvar.name_hint not in ("main", _WRAPPED):
            continue
        # The wrapped function takes the sizes themselves first.
        params = func.params[len(func.params) - len(exported.in_avals) :]
        returned = func.body.body.struct_info
        results = returned.fields if isinstance(returned, TupleStructInfo) else (returned,)
        known = list(zip((p.struct_info for p in params), exported.in_avals, strict=True))
        variables: dict[str, tir.Var] = {}
        found: dict[tir.Var, Dim] = {}
        # Names first: 2 * n can stand only where n is a dimension itself.
        for whole in (True, False):
            for info, aval in known:
                _learn(info, aval, variables, found, whole)
        for info, aval in zip(results, exported.out_avals, strict=True):
            _learn(info, aval, variables, found, False)
        made = rewrite_function(func, symbolic=found)
        returns = result_info(made.params, made.body.body.struct_info)
        functions[gvar] = made.replace(ret_struct_info=returns)
    return mod.replace(functions)


def _learn(
    info: StructInfo,
    aval: Any,
    variables: dict[str, tir.Var],
    found: dict[tir.Var, Dim],
    whole: bool,
) -> None:
    """Add what ``aval`` says of the fresh dimensions of ``info`` to ``found``."""
    dims = info.dims if isinstance(info, TensorStructInfo) else None
    for own, d in zip(dims or (), aval.shape, strict=False):
        if not isinstance(own, tir.Var) or own in found:
            continue
        text = str(d)
        if whole and text.isidentifier():
            found[own] = variables.setdefault(text, tir.Var(text, "int64"))
        elif not whole:
            made = _dim(ast.parse(text, mode="eval").body, variables)
            if made is not None:
                found[own] = tir.as_dim(made)


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
            if base is None:
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
