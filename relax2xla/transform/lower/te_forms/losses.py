"""Losses."""

from __future__ import annotations

from relax2xla import te, topi
from relax2xla.ir import Expr
from relax2xla.transform.lower.te_forms.table import Site, form


@form("relax.nn.cross_entropy_with_logits")
def _(s: Site) -> Expr:
    return s.te(cross_entropy_with_logits, *s.args)


def cross_entropy_with_logits(x: te.Tensor, y: te.Tensor) -> te.Tensor:
    """-sum(x * y), over the size of the first of several axes."""
    made = topi.negative(topi.sum(topi.multiply(x, y)))
    return topi.divide(made, x.shape[0]) if x.ndim > 1 else made


def no_weights(predictions: te.Tensor) -> te.Tensor:
    """A weight of 1 for each class."""
    classes = predictions.shape[1 if predictions.ndim > 1 else 0]
    return topi.full((classes,), predictions.dtype, 1.0)


@form("relax.nn.nll_loss")
def _(s: Site) -> Expr:
    func = topi.nn.nll_loss if len(s.args) == 3 else nll_loss_without_weight
    return s.te(func, *s.args, reduction=s.attrs["reduction"], ignore_index=s.attrs["ignore_index"])


def nll_loss_without_weight(
    predictions: te.Tensor, targets: te.Tensor, reduction: str, ignore_index: int
) -> te.Tensor:
    """``topi.nn.nll_loss`` of classes that weigh the same."""
    weights = no_weights(predictions)
    return topi.nn.nll_loss(predictions, targets, weights, reduction, ignore_index)
