"""Sizes of all values of a function against the budget, before anything is made of them."""

from __future__ import annotations

from relax2xla import budget
from relax2xla.ir import Function, StructInfo, TensorStructInfo, TupleStructInfo
from relax2xla.ir.rewrite import bindings_deep


def check_sizes(func: Function, name: str) -> None:
    """BudgetError where a value of ``func``, by the name ``name``, is too large."""
    for param in func.params:
        check_info(param.struct_info, f"{name}: `{param.name_hint}`")
    for binding in bindings_deep(func):
        info = binding.var.struct_info_
        if info is not None:
            where = f" at {binding.span}" if binding.span is not None else ""
            check_info(info, f"{name}: `{binding.var.name_hint}`{where}")


def check_info(info: StructInfo, what: str) -> None:
    """BudgetError where a tensor of ``info`` is larger than is allowed."""
    if isinstance(info, TupleStructInfo):
        for field in info.fields:
            check_info(field, what)
    elif isinstance(info, TensorStructInfo) and info.dims is not None:
        budget.check(info.dims, info.dtype, what)
