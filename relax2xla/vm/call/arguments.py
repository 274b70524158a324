"""Names and places of arguments, for all functions of the machine."""

from __future__ import annotations

import inspect
import keyword
from collections.abc import Mapping, Sequence
from typing import Any

from relax2xla import tir
from relax2xla.errors import CallError
from relax2xla.ir import ShapeStructInfo, StructInfo, TensorStructInfo, TupleStructInfo, Var
from relax2xla.ir.struct_info import show


def positional(
    function: str, names: Sequence[str], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[Any, ...]:
    """Arguments in the order of the parameters ``names``; CallError where they do not fit."""
    if len(set(names)) != len(names):
        raise CallError(
            f"{function}({', '.join(names)}) has parameters of the same name; "
            "give its arguments by position"
        )
    unknown = [k for k in kwargs if k not in names]
    if unknown:
        raise CallError(
            f"{function} has no parameter {', '.join(map(repr, unknown))}; "
            f"it has {', '.join(names)}"
        )
    rest = names[len(args) :]
    missing = [n for n in rest if n not in kwargs]
    if missing or len(kwargs) != len(rest):
        twice = [k for k in kwargs if k not in rest]
        wrong = (("missing {}", missing), ("{} given twice", twice))
        what = "; ".join(said.format(", ".join(found)) for said, found in wrong if found)
        raise CallError(f"{function}({', '.join(names)}): {what}")
    return (*args, *(kwargs[n] for n in rest))


def signature(names: Sequence[str]) -> inspect.Signature:
    """For ``help``; names that Python cannot have as parameters make it ``*args``."""
    if len(set(names)) != len(names) or not all(
        n.isidentifier() and not keyword.iskeyword(n) for n in names
    ):
        return inspect.Signature([inspect.Parameter("args", inspect.Parameter.VAR_POSITIONAL)])
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    return inspect.Signature([inspect.Parameter(n, kind) for n in names])


def difference(
    params: Sequence[Var],
    before: Sequence[StructInfo],
    now: Sequence[StructInfo],
    old_numbers: Mapping[str, int | float] | None = None,
    new_numbers: Mapping[str, int | float] | None = None,
) -> str:
    """How the arguments of two calls differ, dimension by dimension with its symbolic name.

    old_numbers, new_numbers: what symbolic variables stand for, by name; then a shape among the
        arguments, which holds values that the program has read, is told by these
    """
    found: list[str] = []
    old_numbers, new_numbers = old_numbers or {}, new_numbers or {}

    def compare(name: str, said: StructInfo, a: StructInfo, b: StructInfo) -> None:
        if a == b:
            return
        if isinstance(a, TupleStructInfo) and isinstance(b, TupleStructInfo):
            fields = said.fields if isinstance(said, TupleStructInfo) else a.fields
            for i, parts in enumerate(zip(fields, a.fields, b.fields, strict=False)):
                compare(f"{name}[{i}]", *parts)
            return
        if isinstance(a, TensorStructInfo) and isinstance(b, TensorStructInfo):
            old, new = a.dims, b.dims
            if old is not None and new is not None and len(old) == len(new) and a.dtype == b.dtype:
                dims = said.dims if isinstance(said, TensorStructInfo) else None
                for i, (x, y) in enumerate(zip(old, new, strict=True)):
                    if x != y:
                        symbol = f" ({dims[i]})" if dims is not None and len(dims) > i else ""
                        found.append(f"dimension {i}{symbol} of `{name}` was {x} and is {y}")
                return
        if isinstance(said, ShapeStructInfo) and said.values is not None:
            names = [d.name for d in said.values if isinstance(d, tir.Var)]
            told = [
                f"`{n}` was {old_numbers[n]} and is {new_numbers[n]}"
                for n in names
                if n in old_numbers and n in new_numbers and old_numbers[n] != new_numbers[n]
            ]
            if told:
                found.extend(told)
                return
        found.append(f"`{name}` was {show(a)} and is {show(b)}")

    for p, a, b in zip(params, before, now, strict=True):
        compare(p.name_hint, p.struct_info, a, b)
    return ", ".join(found) or "the arguments are those of an earlier program, which was dropped"
