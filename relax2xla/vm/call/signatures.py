"""Names and places of arguments, for all functions of the machine."""

from __future__ import annotations

import inspect
import keyword
from collections.abc import Mapping, Sequence
from typing import Any

from relax2xla.errors import CallError


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
