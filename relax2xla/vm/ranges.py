"""Symbolic dimensions within the bounds that a program states."""

from __future__ import annotations

from collections.abc import Mapping

from relax2xla.errors import CallError
from relax2xla.ir import Function, TensorStructInfo
from relax2xla.ir.lattice import SymMap


def check_ranges(name: str, func: Function, env: SymMap) -> None:
    """Symbolic dimensions within the bounds that the function's attributes state.

    ``tir_var_lower_bound`` and ``tir_var_upper_bound`` map names of variables to integers. A lower
    bound of 2 comes from torch.export, which means "any": it traces with sizes that are neither 0
    nor 1. Raises CallError with argument, dimension and range.
    """
    low: Mapping[str, int] = func.attrs.get("tir_var_lower_bound") or {}
    high: Mapping[str, int] = func.attrs.get("tir_var_upper_bound") or {}
    if not low and not high:
        return
    for var, value in env.items():
        least, most = low.get(var.name, 0), high.get(var.name)
        if not isinstance(value, int) or not isinstance(least, int):
            continue
        least = 0 if least <= 2 else least
        if value >= least and not (isinstance(most, int) and value > most):
            continue
        place = next(
            (
                f"the argument for parameter `{p.name_hint}` has {value} as dimension {i} "
                f"(`{var.name}`)"
                for p in func.params
                if isinstance(p.struct_info, TensorStructInfo)
                for i, d in enumerate(p.struct_info.dims or ())
                if d is var
            ),
            f"`{var.name}` is {value}",
        )
        end = "any" if most is None else most
        raise CallError(f"{name}: {place}, outside of the range {least} to {end} of the program")
