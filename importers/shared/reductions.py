"""Reductions that Relax has no operator for."""

from __future__ import annotations

from collections.abc import Sequence

from relax2xla import op as R
from relax2xla.importers.shared.tensors import dtype_of
from relax2xla.ir import Expr, const


def root(total: Expr, order: float = 2) -> Expr:
    """The root of a sum of powers of absolute values, whose derivative is 0 where all are 0.

    That of the root alone is infinite there. ``total`` is a variable.
    """
    dtype = dtype_of(total)
    flat = R.equal(total, const(0, dtype))
    some = R.where(flat, const(1, dtype), total)
    return R.where(flat, total, plain_root(some, order))


def plain_root(total: Expr, order: float = 2) -> Expr:
    """The root itself."""
    return R.sqrt(total) if order == 2 else R.power(total, const(1 / order, dtype_of(total)))


def marked_root(total: Expr, order: float = 2) -> Expr:
    """The root itself, with the derivative of :func:`root`."""
    return R.grad.differentiate_as(plain_root(total, order), root(total, order))


def log_sum_exp(x: Expr, axes: Sequence[int] | None) -> Expr:
    """``log(sum(exp(x)))``; the axes stay.

    Without overflow: the maximum is taken out (0 in its place where it is infinite or NaN).
    """
    top = R.max(x, axes, True)
    top = R.where(R.isfinite(top), top, const(0, dtype_of(x)))
    return R.add(R.log(R.sum(R.exp(R.subtract(x, top)), axes, True)), top)
