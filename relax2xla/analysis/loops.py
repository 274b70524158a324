"""Analyses of loop-level functions (``tir.PrimFunc``), which are kept but not read yet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from relax2xla.errors import UnsupportedError
from relax2xla.tir import PrimFunc


def has_reshape_pattern(func: PrimFunc) -> bool:
    """Whether ``func`` only reshapes its input; UnsupportedError until bodies can be read."""
    _unread("has_reshape_pattern", func)


def suggest_layout_transforms(
    func: PrimFunc, write_buffer_transforms: Sequence[Any]
) -> dict[Any, dict[Any, Any]]:
    """Layouts of inputs that suit those of outputs; UnsupportedError until bodies can be read."""
    _unread("suggest_layout_transforms", func)


def _unread(name: str, func: object) -> NoReturn:
    if not isinstance(func, PrimFunc):
        raise TypeError(f"{name} takes a tir.PrimFunc; got {type(func).__name__}")
    raise UnsupportedError(
        f"{name}: loop-level functions (tir.PrimFunc) are kept as they are; what is inside them "
        "cannot be analysed yet"
    )
