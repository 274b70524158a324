"""Queries on expressions, under TVM's names."""

from __future__ import annotations

from collections.abc import Iterable

from . import well_formed
from .functor import free_vars
from .functor import post_order_visit as post_order_visit
from .functor import structural_equal as expr_deep_equal
from .node import Dim, Var
from .stmt import Stmt
from .well_formed import verify_well_formed as verify_well_formed

__all__ = ["expr_deep_equal", "post_order_visit", "undefined_vars", "verify_well_formed"]


def undefined_vars(expr: Dim | Stmt, defs: Iterable[Var] = ()) -> list[Var]:
    """The variables of an expression or a statement that neither it nor ``defs`` defines.

    They come in the order of their first appearance.
    """
    known = set(defs)
    if isinstance(expr, Stmt):
        return well_formed.undefined_vars(expr, known)
    return [v for v in free_vars(expr) if v not in known]
