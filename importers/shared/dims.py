"""Arithmetic of dimensions, which are integers or symbolic."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from relax2xla import tir
from relax2xla.tir import Dim


def fold_dim(dim: Any) -> Dim:
    """A dimension in simplest form."""
    return dim if isinstance(dim, int) else tir.as_dim(tir.simplify(dim))


def larger(a: Any, b: Any) -> Dim:
    """The larger of two."""
    return fold_dim(tir.max(a, b))


def smaller(a: Any, b: Any) -> Dim:
    """The smaller of two."""
    return fold_dim(tir.min(a, b))


def product(dims: Iterable[Dim]) -> Dim:
    """How many elements a tensor of these dimensions has."""
    items = list(dims)
    total: Any = math.prod(d for d in items if isinstance(d, int))
    for d in items:
        if not isinstance(d, int):
            total = total * d
    return fold_dim(total)


def same_dim(a: Dim, b: Dim) -> bool:
    """Whether two are equal for certain."""
    if isinstance(a, int) and isinstance(b, int):
        return a == b
    return tir.can_prove_equal(a, b)
