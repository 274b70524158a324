"""Queries on expressions, under TVM's names."""

from __future__ import annotations

from collections.abc import Iterable

from .functor import free_vars
from .functor import post_order_visit as post_order_visit
from .functor import structural_equal as expr_deep_equal
from .node import Dim, Var

__all__ = ["expr_deep_equal", "post_order_visit", "undefined_vars"]


def undefined_vars(expr: Dim, defs: Iterable[Var] = ()) -> list[Var]:
    """The variables of ``expr`` that are not among ``defs``, in order of first appearance."""
    known = set(defs)
    return [v for v in free_vars(expr) if v not in known]
