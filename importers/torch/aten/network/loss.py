"""Losses, and distances between rows."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from relax2xla import op as R
from relax2xla.dtypes import is_float
from relax2xla.importers.shared.activations import softplus
from relax2xla.importers.shared.gaps import Unsupported
from relax2xla.importers.shared.reductions import root
from relax2xla.importers.torch.aten.numbers.math import rise
from relax2xla.importers.torch.aten.reduce import norm
from relax2xla.importers.torch.engine.context import (
    Context,
    axis_of,
    dims_of,
    dtype_of,
    info_of,
    ndim_of,
    row,
    scalar,
)
from relax2xla.importers.torch.engine.converters import aten
from relax2xla.ir import Expr

# -- of classes ------------------------------------------------------------------------------------
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
    # TVM writes the last axis as -1.
    logs = ctx.emit(R.nn.log_softmax(self, -1 if axis == ndim_of(self) - 1 else axis))
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


# -- of elements, and distances --------------------------------------------------------------------
REDUCTIONS: dict[int, Callable[[Expr], Expr]] = {
    0: lambda x: x,
    1: R.mean,
    2: R.sum,
}


@aten("mse_loss", wide=True)
def mse_loss(ctx: Context, self: Expr, target: Expr, reduction: int = 1) -> Expr:
    a, b = ctx.promote(self, target)
    gap = ctx.emit(R.subtract(a, b))
    return REDUCTIONS[reduction](R.multiply(gap, gap))


#: Torch's least ``x (1 - x)`` of a derivative, and its least logarithm of a value.
FLAT, LEAST = 1e-12, -100.0


@aten("binary_cross_entropy", wide=True)
def binary_cross_entropy(
    ctx: Context, self: Expr, target: Expr, weight: Any = None, reduction: int = 1
) -> Expr:
    """Derivatives are large near 0 and 1, where the value is cut off."""
    x, t = (ctx.emit(v) for v in ctx.promote(self, target))
    dtype = dtype_of(x)
    one = scalar(1, dtype)

    def loss(x: Expr, least: float) -> Expr:
        low = scalar(least, dtype)
        logs = R.maximum(R.log(x), low), R.maximum(row("log_plus_one", R.negative(x)), low)
        rest = R.multiply(R.subtract(t, one), logs[1])
        return R.subtract(rest, R.multiply(t, logs[0]))

    made = ctx.emit(loss(x, LEAST))
    curve = R.multiply(x, R.subtract(one, x))
    outside = ctx.emit(R.less(curve, scalar(FLAT, dtype)))
    inner = loss(ctx.emit(R.where(outside, scalar(0.5, dtype), x)), -math.inf)
    # Taylor's polynomial at x: torch's derivatives, its second one by x too.
    still, step = R.grad.no_grad(x), R.subtract(x, R.grad.no_grad(x))
    slope = R.multiply(R.subtract(still, t), scalar(1 / FLAT, dtype))
    square, twice = R.multiply(still, still), R.multiply(scalar(2, dtype), R.multiply(still, t))
    wide = R.add(R.grad.no_grad(curve), scalar(FLAT, dtype))
    bend = R.divide(R.divide(R.add(R.subtract(square, twice), t), wide), wide)
    half = R.multiply(scalar(0.5, dtype), R.multiply(R.multiply(step, step), bend))
    ends = R.subtract(row("log_plus_one", R.negative(x)), R.log(x))
    moved = R.add(R.multiply(step, slope), R.add(half, rise(ctx, t, ends)))
    outer = R.add(R.grad.no_grad(made), moved)
    smooth = R.where(outside, outer, inner)
    made = R.grad.differentiate_as(made, smooth)
    if weight is not None:
        made = R.multiply(made, ctx.cast(weight, dtype))
    return REDUCTIONS[reduction](made)


@aten("binary_cross_entropy_with_logits", wide=True)
def binary_cross_entropy_with_logits(
    ctx: Context,
    self: Expr,
    target: Expr,
    weight: Any = None,
    pos_weight: Any = None,
    reduction: int = 1,
) -> Expr:
    """torch's decomposition has no second derivative at 0."""
    x, t = (ctx.emit(v) for v in ctx.promote(self, target))
    dtype = dtype_of(x)
    one = scalar(1, dtype)
    missing = softplus(ctx.emit(R.negative(x)))
    if pos_weight is not None:
        more = R.subtract(ctx.cast(pos_weight, dtype), one)
        missing = R.multiply(R.add(R.multiply(more, t), one), missing)
    made = R.add(R.multiply(R.subtract(one, t), x), missing)
    if weight is not None:
        made = R.multiply(made, ctx.cast(weight, dtype))
    return REDUCTIONS[reduction](made)


def _bent(gap: Expr, size: float, quadratic: Expr, linear: Expr) -> Expr:
    """``quadratic`` of a difference less than ``size``, else ``linear``."""
    near = R.less(R.abs(gap), scalar(size, dtype_of(gap)))
    return R.where(near, quadratic, linear)


@aten("huber_loss", wide=True)
def huber_loss(
    ctx: Context, self: Expr, target: Expr, reduction: int = 1, delta: float = 1.0
) -> Expr:
    """A square of the difference, whose size alone has no second derivative at 0."""
    gap = ctx.emit(R.subtract(*ctx.promote(self, target)))
    half, bound = (scalar(v, dtype_of(gap)) for v in (0.5, delta))
    square = R.multiply(R.multiply(half, gap), gap)
    rest = R.multiply(bound, R.subtract(R.abs(gap), R.multiply(half, bound)))
    return REDUCTIONS[reduction](_bent(gap, delta, square, rest))


@aten("smooth_l1_loss", wide=True)
def smooth_l1_loss(
    ctx: Context, self: Expr, target: Expr, reduction: int = 1, beta: float = 1.0
) -> Expr:
    if not beta:
        return l1_loss(ctx, self, target, reduction)
    gap = ctx.emit(R.subtract(*ctx.promote(self, target)))
    half, bound = (scalar(v, dtype_of(gap)) for v in (0.5, beta))
    square = R.divide(R.multiply(half, R.multiply(gap, gap)), bound)
    rest = R.subtract(R.abs(gap), R.multiply(half, bound))
    return REDUCTIONS[reduction](_bent(gap, beta, square, rest))


@aten("multi_margin_loss")
def multi_margin_loss(
    ctx: Context,
    self: Expr,
    target: Expr,
    p: float = 1,
    margin: float = 1,
    weight: Expr | None = None,
    reduction: int = 1,
) -> Expr:
    """How far other classes come within ``margin`` of the right one; the derivative is 0 there."""
    classes, dtype = (dims_of(self) or (1,))[-1], dtype_of(self)
    x = ctx.emit(R.reshape(self, (-1, classes)))
    at = ctx.emit(R.reshape(target, (dims_of(x)[0], 1)))
    own = R.gather_elements(x, at, 1)
    short = R.nn.relu(R.add(R.subtract(scalar(margin, dtype), own), x))
    lost = ctx.emit(short) if p == 1 else R.multiply(ctx.emit(short), short)
    if weight is not None:
        lost = R.multiply(lost, R.take(weight, at, 0))
    each = R.reshape(R.arange(0, classes, 1, dtype_of(at)), (1, -1))
    others = R.where(R.not_equal(each, at), lost, scalar(0, dtype))
    made = R.mean(others, [1])
    if reduction == NONE:
        return ctx.reshape(made, ctx.dims())
    return REDUCTIONS[reduction](made)


@aten("l1_loss")
def l1_loss(ctx: Context, self: Expr, target: Expr, reduction: int = 1) -> Expr:
    a, b = ctx.promote(self, target)
    return REDUCTIONS[reduction](R.abs(R.subtract(a, b)))


@aten("cosine_similarity", wide=True)
def cosine_similarity(ctx: Context, x1: Expr, x2: Expr, dim: int = 1, eps: float = 1e-8) -> Expr:
    a, b = (ctx.emit(x) for x in ctx.promote(x1, x2))
    dtype = dtype_of(a)
    if not is_float(dtype):
        raise Unsupported(f"cosine_similarity of {dtype} tensors")
    axis = axis_of(dim, max(ndim_of(a), ndim_of(b)))

    def unit(x: Expr) -> Expr:
        length = root(ctx.emit(R.sum(R.multiply(x, x), [axis], True)))
        return R.divide(x, R.maximum(length, scalar(eps, dtype)))

    return R.sum(R.multiply(unit(a), unit(b)), [axis])


@aten("_cdist_forward", "cdist", ignored="compute_mode")
def cdist(ctx: Context, x1: Expr, x2: Expr, p: float = 2.0) -> Expr:
    """Always from the differences: ``compute_mode`` trades accuracy for speed."""
    if 0 in dims_of(x1) or 0 in dims_of(x2):
        return R.zeros(ctx.dims(), ctx.dtype())
    gap = R.subtract(R.expand_dims(x1, [-2]), R.expand_dims(x2, [-3]))
    return norm(ctx, ctx.emit(gap), float(p), [-1])


@aten("_pdist_forward", "pdist")
def pdist(ctx: Context, self: Expr, p: float = 2.0) -> Expr:
    """The pair of number k, of those above the diagonal: row i of them begins at i(2n - 1 - i)/2.

    The root is exact where it is whole, so its floor is right for up to millions of rows.
    """
    if 0 in dims_of(self) or 0 in ctx.dims():
        return R.zeros(ctx.dims(), ctx.dtype())
    x, two, eight = ctx.emit(self), scalar(2, "int64"), scalar(8, "int64")
    k = ctx.grid(ctx.dims(), (1,))
    wide = ctx.emit(ctx.tensor(2 * dims_of(self)[0] - 1, "int64"))
    rest = R.subtract(R.multiply(wide, wide), R.multiply(k, eight))
    root = R.sqrt(R.astype(rest, "float64"))
    i = R.floor(R.divide(R.subtract(R.astype(wide, "float64"), root), scalar(2.0, "float64")))
    i = ctx.emit(R.astype(i, "int64"))
    begin = R.floor_divide(R.multiply(i, R.subtract(wide, i)), two)
    j = R.add(R.add(R.subtract(k, begin), i), scalar(1, "int64"))
    gap = ctx.emit(R.subtract(R.take(x, i, 0), R.take(x, j, 0)))
    return norm(ctx, gap, float(p), [-1])
