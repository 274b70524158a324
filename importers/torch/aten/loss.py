"""Losses of classes: negative log likelihood and cross entropy."""

from __future__ import annotations

import math
from typing import Any

from relax2xla import op as R
from relax2xla.importers.torch.engine.context import (
    Context,
    dims_of,
    dtype_of,
    info_of,
    ndim_of,
    scalar,
)
from relax2xla.importers.torch.engine.converters import aten
from relax2xla.ir import Expr

NONE, MEAN, SUM = 0, 1, 2
NAMES = ("none", "mean", "sum")


@aten("nll_loss_nd", "nll_loss", "nll_loss2d")
def nll_loss(
    ctx: Context,
    self: Expr,
    target: Expr,
    weight: Expr | None = None,
    reduction: int = 1,
    ignore_index: int = -100,
) -> Expr:
    """One sample may have its class in a vector of one."""
    if ndim_of(self) == ndim_of(target) == 1:
        target = R.reshape(target, ())
    kind = NAMES[reduction]
    return R.nn.nll_loss(self, target, weight, reduction=kind, ignore_index=ignore_index)


@aten("nll_loss_forward", "nll_loss2d_forward")
def nll_loss_forward(
    ctx: Context,
    self: Expr,
    target: Expr,
    weight: Expr | None,
    reduction: int,
    ignore_index: int,
) -> tuple[Expr, None]:
    """The total weight serves the gradient: where it is read, that read is the gap."""
    return nll_loss(ctx, self, target, weight, reduction, ignore_index), None


@aten("cross_entropy_loss")
def cross_entropy_loss(
    ctx: Context,
    self: Expr,
    target: Expr,
    weight: Expr | None = None,
    reduction: int = 1,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Expr:
    """Of the logarithms of softmax; a target of the input's shape holds probabilities."""
    axis = 0 if ndim_of(self) == 1 else 1
    dtype, classes = dtype_of(self), dims_of(self)[axis]
    logs = ctx.emit(R.nn.log_softmax(self, axis))
    thin: list[Any] = [classes if a == axis else 1 for a in range(ndim_of(self))]
    scaled = logs if weight is None else R.multiply(logs, R.reshape(weight, thin))
    share = R.divide(scalar(label_smoothing, dtype), ctx.tensor(classes, dtype))
    if info_of(target).dims == info_of(self).dims and dtype_of(target) == dtype:
        if label_smoothing:
            target = R.add(R.multiply(target, scalar(1 - label_smoothing, dtype)), share)
        each = R.negative(R.sum(R.multiply(scaled, target), [axis]))
        if reduction == MEAN:
            count = math.prod(dims_of(self)) // classes
            return R.divide(R.sum(each), ctx.tensor(count, dtype))
        return R.sum(each) if reduction == SUM else each
    plain = nll_loss(ctx, logs, target, weight, reduction, ignore_index)
    if not label_smoothing:
        return plain
    at = ctx.emit(R.reshape(target, [d for a, d in enumerate(dims_of(self)) if a != axis]))
    seen = ctx.emit(R.not_equal(at, scalar(ignore_index, dtype_of(at))))
    zero = scalar(0, dtype)
    smooth = R.where(seen, R.negative(R.sum(scaled, [axis])), zero)
    if reduction != NONE:
        smooth = R.sum(smooth)
    if reduction == MEAN:
        # Divided by the weights that took part, as the likelihood is.
        own: Expr = scalar(1, dtype)
        if weight is not None:
            own = R.take(weight, R.where(seen, at, scalar(0, dtype_of(at))), 0)
        smooth = R.divide(smooth, R.sum(R.where(seen, own, zero)))
    rest = R.multiply(plain, scalar(1 - label_smoothing, dtype))
    return R.add(rest, R.multiply(share, smooth))
