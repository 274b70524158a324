"""Substitution: symbolic variables and variables of Relax functions replaced in whole functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from relax2xla import tir
from relax2xla.errors import TVMError
from relax2xla.ir import late, lattice
from relax2xla.ir.base import Span
from relax2xla.ir.expr import Constant, Expr, Function, Var, convert_to_expr
from relax2xla.ir.make import const
from relax2xla.ir.rewrite import rewrite_function
from relax2xla.ir.struct_info import show
from relax2xla.tir import Dim


def _resolve(key: Any, known: Mapping[str, list[Any]], what: str) -> Any:
    if not isinstance(key, str):
        return key
    found = known.get(key, [])
    if len(found) != 1:
        count = f"{len(found)} times" if found else "not at all"
        names = ", ".join(known) or "none"
        raise TVMError(
            f"{what} {key!r} must occur exactly once, but occurs {count}; there are {names}"
        )
    return found[0]


def _by_name(items: list[tuple[str, Any]]) -> dict[str, list[Any]]:
    table: dict[str, list[Any]] = {}
    for name, item in items:
        table.setdefault(name, []).append(item)
    return table


def symbolic_vars_of(func: Function) -> list[tir.Var]:
    """The symbolic variables of a function's parameters and result, each once, in order."""
    infos = (*(p.struct_info for p in func.params), func.ret_struct_info)
    return list(dict.fromkeys(v for info in infos for v in lattice.free_symbolic_vars(info)))


@late.bind_symbolic_vars.given
def bind_symbolic_vars(func: Function, binding_map: Mapping[tir.Var | str, Dim]) -> Function:
    """``func`` with symbolic variables replaced; see ``Function.bind_symbolic_vars``."""
    variables = symbolic_vars_of(func)
    known = _by_name([(v.name, v) for v in variables])
    env: lattice.SymMap = {}
    for key, value in binding_map.items():
        var = _resolve(key, known, "the symbolic variable")
        if var not in variables:
            raise TVMError(
                f"the function has no symbolic variable {var}; it has {', '.join(known)}"
            )
        if var in env:
            raise TVMError(f"the symbolic variable {var} is bound twice, by its name and by itself")
        env[var] = tir.as_dim(value)
    new = rewrite_function(func, symbolic=env)
    defined = {v for p in new.params for v in lattice.definable_vars(p.struct_info)}
    for var in (v for value in env.values() for v in tir.free_vars(value)):
        if var not in defined and var not in variables:
            raise TVMError(
                f"the symbolic variable {var}, which takes the place of another, is not defined by "
                "any parameter: a dimension must be the variable alone"
            )
    return new


@late.bind_params.given
def bind_params(func: Function, binding_map: Mapping[Var | str, Any]) -> Function:
    """``func`` with parameters replaced by values; see ``Function.bind_params``."""
    known = _by_name([(p.name_hint, p) for p in func.params])
    values: dict[Var, Expr] = {}
    env: lattice.SymMap = {}
    for key, value in binding_map.items():
        var = _resolve(key, known, "the parameter")
        if var not in func.params:
            raise TVMError(f"the function has no parameter {var!r}; it has {', '.join(known)}")
        expr = as_value(value)
        try:
            lattice.unify(var.struct_info, expr.struct_info, env)
        except lattice.Mismatch as e:
            raise TVMError(
                f"the parameter {var.name_hint} is {show(var.struct_info)}; its value has {e}"
            ) from None
        # Bound weights keep the parameter's name, by which they can be updated.
        if isinstance(expr, Constant) and expr.span is None:
            expr = Constant(expr.data, expr.struct_info_, Span(var.name_hint))
        values[var] = expr
    params = [p for p in func.params if p not in values]
    attrs = dict(func.attrs)
    if "arg_attrs" in attrs:
        # What is said of each parameter, by its name.
        gone = {p.name_hint for p in values}
        attrs["arg_attrs"] = {k: v for k, v in attrs["arg_attrs"].items() if k not in gone}
    bare = func.replace(params=params, attrs=attrs)
    bound = rewrite_function(bare, symbolic=env, values=values)
    found = bound.body.struct_info_
    if found is None or not bound.ret_struct_info.is_base_of(found):
        return bound
    # As where a function is made: the body may say more of the result.
    return bound.replace(ret_struct_info=lattice.result_info(bound.params, found))


def as_value(value: Any) -> Expr:
    """An expression of a user's value: numbers and arrays (numpy, torch, jax) become constants."""
    if isinstance(value, Expr):
        return value
    if isinstance(value, tir.PrimExpr | str | tuple | list):
        return convert_to_expr(
            [as_value(v) for v in value] if isinstance(value, tuple | list) else value
        )
    if isinstance(value, bool | int | float):
        return const(value)
    detach = getattr(value, "detach", None)
    return const(np.asarray(value if detach is None else detach().cpu().numpy()))
