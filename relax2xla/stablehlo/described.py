"""Names of arguments, results and dimensions as attributes of a StableHLO program."""

from __future__ import annotations

import re
from typing import Any, Final

from relax2xla.ir.expr import Function, Var
from relax2xla.ir.lattice import free_symbolic_vars
from relax2xla.ir.module import IRModule
from relax2xla.ir.source_names import (
    ARG_INFO,
    LOCATION,
    RESULT_INFO,
    SHAPE,
    dims_are_told,
    listed_names,
    result_info,
    result_names,
    source_name,
)
from relax2xla.ir.struct_info import StructInfo, TensorStructInfo, TupleStructInfo

# What the reader calls a dimension that has no name.
_MADE_UP: Final = re.compile(r"s\d+")


def described(mod: IRModule, whole: bool = False) -> IRModule:
    """``mod`` whose functions say in attributes what they call their arguments and results.

    Names go to ``jax.arg_info`` and ``jax.result_info`` of public functions, dimensions to
    ``relax2xla.shape`` ("n, 2*n, 3") of all. What a program that was read says elsewhere, or says
    already, stays as it is, and so do arguments called arg0, arg1. ``whole``: also the dimensions
    that jax.export wrote beside a program.
    """
    functions: dict[Any, Any] = dict(mod.functions)
    changed = False
    for gvar, func in mod.relax_functions().items():
        functions[gvar] = made = _described(func, whole)
        changed = changed or made is not func
    return mod.replace(functions) if changed else mod


def without_shapes(mod: IRModule) -> IRModule:
    """``mod`` without the attribute ``relax2xla.shape``, for other dimensions than it says."""
    functions: dict[Any, Any] = dict(mod.functions)
    for gvar, func in mod.relax_functions().items():
        new: dict[str, Any] = {}
        if any(SHAPE in row for row in func.attrs.get("arg_attrs", {}).values()):
            rows = func.attrs["arg_attrs"].items()
            new["arg_attrs"] = {n: _without(row) for n, row in rows if _without(row)}
        if any(SHAPE in row for row in func.attrs.get("res_attrs", ())):
            new["res_attrs"] = [_without(row) for row in func.attrs["res_attrs"]]
        if new:
            functions[gvar] = func.with_attrs(new)
    return mod.replace(functions)


def _without(row: Any) -> dict[str, Any]:
    return {k: v for k, v in row.items() if k != SHAPE}


def _described(func: Function, whole: bool) -> Function:
    shape_of = _shape if whole or not dims_are_told(func) else _no_shape
    public = "global_symbol" in func.attrs
    arguments = dict(func.attrs.get("arg_attrs", {}))
    for i, p in enumerate(func.params):
        old = arguments.get(p.name_hint, {})
        row = {**old, **shape_of(p.struct_info, old)}
        if public and ARG_INFO not in row and (name := _argument_name(p, i)):
            row[ARG_INFO] = name
        if row != old:
            arguments[p.name_hint] = row
    body = func.body.body.struct_info
    infos = body.fields if isinstance(body, TupleStructInfo) else (body,)
    results = [dict(row) for row in func.attrs.get("res_attrs", ())] or [{} for _ in infos]
    if len(results) == len(infos):
        names = result_names(func) if public and not listed_names(func, "outputs") else ()
        names = names if len(names) == len(infos) else ("",) * len(infos)
        for row, name, info in zip(results, names, infos, strict=True):
            row.update(shape_of(info, row))
            if name and RESULT_INFO not in row:
                row[RESULT_INFO] = result_info(name)
    new: dict[str, Any] = {}
    if arguments != dict(func.attrs.get("arg_attrs", {})):
        new["arg_attrs"] = arguments
    if any(results) and results != [dict(row) for row in func.attrs.get("res_attrs", ())]:
        new["res_attrs"] = results
    return func.with_attrs(new) if new else func


def _no_shape(info: StructInfo, said: Any) -> dict[str, str]:
    return {}


def _argument_name(p: Var, index: int) -> str:
    """A name that the program does not say by itself; "" for none."""
    if p.span is not None and p.span.metadata in (LOCATION, ARG_INFO):
        return ""
    name = source_name(p) or p.name_hint
    return "" if name == f"arg{index}" else name


def _shape(info: StructInfo, said: Any) -> dict[str, str]:
    """The attribute with the dimensions of a tensor, if one has a name that is not made up."""
    if not isinstance(info, TensorStructInfo) or info.dims is None:
        return {}
    if all(_MADE_UP.fullmatch(v.name) for v in free_symbolic_vars(info)):
        return {}
    text = ", ".join(map(str, info.dims))
    known = said.get(SHAPE)
    same = isinstance(known, str) and known.replace(" ", "") == text.replace(" ", "")
    return {} if same else {SHAPE: text}
