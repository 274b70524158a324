"""Symbolic dimensions within the bounds, and under the conditions, that a program states."""

from __future__ import annotations

from collections.abc import Mapping

from relax2xla import syntax, tir
from relax2xla.errors import CallError
from relax2xla.ir import Function, TensorStructInfo
from relax2xla.ir.lattice import SymMap, free_symbolic_vars
from relax2xla.script.arithmetic import arithmetic


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


def conditions(func: Function) -> list[tuple[str, tir.PrimExpr]]:
    """What must hold of symbolic dimensions, as the attribute ``tir_var_conditions`` states it.

    It is a list of texts such as ``n > m * 2``, over the names of the parameters' dimensions. Each
    comes with the expression that it is; CallError for a text that is no such condition.
    """
    texts = func.attrs.get("tir_var_conditions") or ()
    if not texts:
        return []
    known = {v.name: v for p in func.params for v in free_symbolic_vars(p.struct_info)}
    made: list[tuple[str, tir.PrimExpr]] = []
    for text in texts:
        try:
            value = arithmetic(syntax.parse(str(text), mode="eval").body, known.__getitem__)
        except KeyError:
            continue  # of a variable that has been bound to a number
        except (SyntaxError, TypeError, ValueError, RecursionError, MemoryError) as e:
            raise CallError(f"tir_var_conditions: {text!r} is no condition on sizes: {e}") from None
        if isinstance(value, tir.PrimExpr):
            made.append((str(text), value))
    return made


def check_condition(holds: int, told: str) -> None:
    """CallError where a condition does not hold."""
    if not holds:
        raise CallError(told)


def unmet(name: str, func: Function, text: str, condition: tir.PrimExpr) -> str:
    """The message for a condition of ``func`` that does not hold."""
    where = [owner(func, v) for v in tir.free_vars(condition)]
    sizes = " and ".join(f"{dimension} of {of}" for of, dimension in where)
    return (
        f"{name}: `{text}` does not hold for {sizes}; the program was exported for sizes "
        "where it does"
    )


def check_ranges(name: str, func: Function, env: SymMap) -> None:
    """CallError where dimensions that ``env`` binds are not those which ``func`` is for."""
    bounds = ranges(func)
    for var, value in env.items() if bounds else ():
        if var.name in bounds and isinstance(value, int):
            of, dimension = owner(func, var)
            check_range(value, *bounds[var.name], f"{name}: {of}", dimension)
    numbers = {v: n for v, n in env.items() if isinstance(n, int)}
    for text, condition in conditions(func):
        if all(v in numbers for v in tir.free_vars(condition)):
            check_condition(tir.evaluate(condition, numbers), unmet(name, func, text, condition))
