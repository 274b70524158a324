"""Queries on expressions, under TVM's names."""

from __future__ import annotations

from collections.abc import Iterable

from relax2xla.tir.functor import free_vars
from relax2xla.tir.functor import post_order_visit as post_order_visit
from relax2xla.tir.functor import structural_equal as expr_deep_equal
from relax2xla.tir.kernel import well_formed
from relax2xla.tir.kernel.well_formed import verify_well_formed as verify_well_formed
from relax2xla.tir.node import Dim, Var
from relax2xla.tir.stmt import Stmt

__all__ = ["expr_deep_equal", "post_order_visit", "undefined_vars", "verify_well_formed"]


def undefined_vars(expr: Dim | Stmt, defs: Iterable[Var] = ()) -> list[Var]:
    """The variables of an expression or a statement that neither it nor ``defs`` defines.

    They come in the order of their first appearance.
    """
    known = set(defs)
    if isinstance(expr, Stmt):
        return well_formed.undefined_vars(expr, known)
    return [v for v in free_vars(expr) if v not in known]
