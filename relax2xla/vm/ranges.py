"""Symbolic dimensions within the bounds that a program states."""

from __future__ import annotations

from collections.abc import Mapping

from relax2xla import tir
from relax2xla.errors import CallError
from relax2xla.ir import Function, TensorStructInfo
from relax2xla.ir.lattice import SymMap


def ranges(func: Function) -> dict[str, tuple[int, int | None]]:
    """The least and greatest values of symbolic dimensions by name, as the attributes state them.

    ``tir_var_lower_bound`` and ``tir_var_upper_bound`` map names of variables to integers. A lower
    bound of 2 comes from torch.export, which means "any": it traces with sizes that are neither 0
    nor 1, and its own programs take these all the same.
    """
    low: Mapping[str, int] = func.attrs.get("tir_var_lower_bound") or {}
    high: Mapping[str, int] = func.attrs.get("tir_var_upper_bound") or {}
    made: dict[str, tuple[int, int | None]] = {}
    for name in {**low, **high}:
        least, most = low.get(name, 0), high.get(name)
        if isinstance(least, int):
            least = 0 if least <= 2 else least
            most = most if isinstance(most, int) else None
            if least or most is not None:
                made[name] = (least, most)
    return made


def owner(func: Function, var: tir.Var) -> tuple[str, str]:
    """The parameter of ``func`` that the dimension ``var`` is read off, and which one it is."""
    return next(
        (
            (f"the argument for parameter `{p.name_hint}`", f"dimension {i} (`{var.name}`)")
            for p in func.params
            if isinstance(p.struct_info, TensorStructInfo)
            for i, d in enumerate(p.struct_info.dims or ())
            if d is var
        ),
        ("an argument", f"`{var.name}`"),
    )


def check_range(value: int, least: int, most: int | None, of: str, dimension: str) -> None:
    """CallError where a dimension is out of its range."""
    if value < least or (most is not None and value > most):
        end = "any" if most is None else most
        raise CallError(
            f"{of} has {value} as {dimension}, outside of the range {least} to {end} of the program"
        )


def check_ranges(name: str, func: Function, env: SymMap) -> None:
    """CallError where a dimension that ``env`` binds is out of its range in ``func``."""
    bounds = ranges(func)
    for var, value in env.items() if bounds else ():
        if var.name in bounds and isinstance(value, int):
            of, dimension = owner(func, var)
            check_range(value, *bounds[var.name], f"{name}: {of}", dimension)
