"""Losses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from relax2xla import te, tir
from relax2xla.topi.broadcast import divide
from relax2xla.topi.reduction import sum
from relax2xla.topi.shared import want_one_of


def nll_loss(
    predictions: te.Tensor,
    targets: te.Tensor,
    weights: te.Tensor,
    reduction: str,
    ignore_index: int,
) -> te.Tensor:
    """-predictions[target] * weights[target], by "none", "sum" or "mean" (over the weights).

    predictions: (n, classes, ...) or (classes,); targets: (n, ...) or (), of which those that are
    ``ignore_index`` give 0; weights: (classes,).
    """
    want_one_of(reduction, ("none", "sum", "mean"), "nn.nll_loss: reduction")
    zero = tir.const(0, predictions.dtype)

    def chosen(value: Callable[[Any, Any], Any]) -> te.Tensor:
        def element(*i: Any) -> Any:
            c = targets(*i)
            here = tir.NE.make(c, ignore_index)
            return tir.Select(here, value(tir.Select(here, c, tir.const(0, c.dtype)), i), zero)

        return te.compute(targets.shape, element, "nll_loss", "broadcast")

    def loss(c: Any, i: Any) -> Any:
        return -predictions(*i[:1], c, *i[1:]) * weights(c)

    each = chosen(loss)
    if reduction == "none":
        return each
    total = sum(each)
    return divide(total, sum(chosen(lambda c, i: weights(c)))) if reduction == "mean" else total
