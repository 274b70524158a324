"""Results that took the place of arguments: a caller's own memory gets them, and is the result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from relax2xla.runtime.convert import SharedArray

# Pairs of a parameter and of the field of the result that took its place; see vm.plan.in_place.
Places = Sequence[Sequence[int]]


def in_callers_memory(places: Places, args: Sequence[Any], result: Any) -> Any:
    """``result`` with the arrays of the caller, written to, where a field took the place of one.

    Arguments of other kinds stay as they are.
    """
    if not places:
        return result
    several = isinstance(result, tuple)
    fields: list[Any] = list(result) if several else [result]
    for param, field in places:
        target = args[param]
        if _is_memory(target):
            target[...] = np.asarray(fields[field])
            fields[field] = target
    return tuple(fields) if several else fields[0]


def with_callers_memory(places: Places, args: Sequence[Any], placed: list[Any]) -> list[Any]:
    """Arguments on the device, but for those of the caller's memory that results will go to."""
    for param, _ in places:
        if _is_memory(args[param]):
            placed[param] = args[param]
    return placed


def _is_memory(value: Any) -> bool:
    return isinstance(value, SharedArray) and bool(value.flags.writeable)
