"""Reductions that Relax has no operator for."""

from __future__ import annotations

from collections.abc import Sequence

from relax2xla import op as R
from relax2xla.importers.shared.tensors import dtype_of
from relax2xla.ir import Expr, const


def log_sum_exp(x: Expr, axes: Sequence[int] | None) -> Expr:
    """``log(sum(exp(x)))``; the axes stay.

    Without overflow: the maximum is taken out (0 in its place where it is infinite or NaN).
    """
    top = R.max(x, axes, True)
    top = R.where(R.isfinite(top), top, const(0, dtype_of(x)))
    return R.add(R.log(R.sum(R.exp(R.subtract(x, top)), axes, True)), top)
