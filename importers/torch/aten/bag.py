"""Bags of embeddings, distances between rows, products of three operands."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from relax2xla import op as R
from relax2xla.dtypes import is_integer
from relax2xla.importers.torch.aten.reduce import norm
from relax2xla.importers.torch.engine.context import (
    Context,
    broadcast,
    dims_of,
    dtype_of,
    ndim_of,
    scalar,
)
from relax2xla.importers.torch.engine.converters import aten
from relax2xla.ir import Expr

SUM, MEAN, MAX = 0, 1, 2


@aten(
    "_embedding_bag",
    "_embedding_bag_forward_only",
    "embedding_bag",
    "embedding_bag.padding_idx",
    ignored="scale_grad_by_freq sparse",
)
def embedding_bag(
    ctx: Context,
    weight: Expr,
    indices: Expr,
    offsets: Expr,
    mode: int = 0,
    per_sample_weights: Expr | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = -1,
) -> list[Expr | None]:
    """The bags; what torch adds for the gradient only where it is read."""
    dtype = dtype_of(weight)
    indices = ctx.emit(ctx.cast(indices, "int64"))
    starts = ctx.emit(ctx.cast(offsets, "int64"))
    many, bags = dims_of(indices)[0], ctx.dims(0)[0]
    end = ctx.tensor(many, "int64")
    size = dims_of(starts)[0]
    if include_last_offset:
        stops = R.strided_slice(starts, [0], [1], [size])
        starts = R.strided_slice(starts, [0], [0], [bags])
    else:
        later = R.strided_slice(starts, [0], [1], [size])
        stops = R.concat([later, R.reshape(end, (1,))], 0)
    place = R.arange(0, many, 1, "int64")
    inside = R.logical_and(
        R.greater_equal(place, R.expand_dims(starts, [1])), R.less(place, R.expand_dims(stops, [1]))
    )
    if padding_idx is not None and padding_idx >= 0:
        inside = R.logical_and(inside, R.not_equal(indices, scalar(padding_idx, "int64")))
    inside = ctx.emit(inside)
    rows = ctx.emit(R.take(weight, indices, 0))
    where: Expr | None = None
    if mode == MAX:
        wide = R.where(
            R.expand_dims(inside, [2]), R.expand_dims(rows, [0]), scalar(-math.inf, dtype)
        )
        wide = ctx.emit(wide)
        some = R.max(R.astype(inside, "int32"), [1], True)
        total = R.where(R.equal(some, scalar(0, "int32")), scalar(0, dtype), R.max(wide, [1]))
        where = R.take(indices, R.argmax(wide, 1), 0)
    else:
        if per_sample_weights is not None:
            rows = R.multiply(rows, R.expand_dims(per_sample_weights, [1]))
        total = R.matmul(ctx.cast(inside, dtype), rows)
    count = ctx.emit(R.sum(R.astype(inside, "int64"), [1]))
    if mode == MEAN:
        sizes = R.expand_dims(R.maximum(count, scalar(1, "int64")), [1])
        total = R.divide(total, ctx.cast(sizes, dtype))
    if not any(user.args[1] for user in ctx.node.users):
        return [total, None, None, None]
    return [total, *_for_the_gradient(ctx, starts, place, count, where)]


def _for_the_gradient(
    ctx: Context, starts: Expr, place: Expr, count: Expr, where: Expr | None
) -> list[Expr]:
    """The bag of each place, sizes of bags, and the words with the maxima.

    Torch leaves the first out where its kernel has no use for it; for sums and means the last
    holds nothing that is read.
    """
    bag, maxima = ctx.dims(1), ctx.dims(3)
    begun = R.astype(R.greater_equal(R.expand_dims(place, [1]), starts), "int64")
    return [
        R.zeros(bag, "int64") if bag == (0,) else R.subtract(R.sum(begun, [1]), scalar(1, "int64")),
        count,
        R.zeros(maxima, "int64") if where is None else where,
    ]


# -- distances -----------------------------------------------------------------------------------
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


# -- products ------------------------------------------------------------------------------------
@aten("_trilinear", ignored="unroll_dim", wide=True)
def trilinear(
    ctx: Context,
    i1: Expr,
    i2: Expr,
    i3: Expr,
    expand1: Sequence[int],
    expand2: Sequence[int],
    expand3: Sequence[int],
    sumdim: Sequence[int],
) -> Expr:
    """Each operand gets new axes; their product is summed. ``unroll_dim`` is about speed."""
    ops = [
        R.expand_dims(x, sorted(e)) if e else x
        for x, e in ((i1, expand1), (i2, expand2), (i3, expand3))
    ]
    whole = ctx.emit(R.multiply(R.multiply(ops[0], ops[1]), ops[2]))
    return R.sum(whole, [a % ndim_of(whole) for a in sumdim])


@aten("addbmm")
def addbmm(
    ctx: Context, self: Expr, batch1: Expr, batch2: Expr, beta: Any = 1, alpha: Any = 1
) -> Expr:
    total = R.sum(R.matmul(batch1, batch2), [0])
    dtype = dtype_of(total)
    if is_integer(dtype):
        alpha, beta = int(alpha), int(beta)  # torch cuts the fractions off here, and only here
    if alpha != 1:
        total = R.multiply(total, scalar(alpha, dtype))
    # With beta 0 torch does not read `self`, whose NaN must not spread.
    if beta == 0:
        return broadcast(total, ctx.dims())
    return R.add(self if beta == 1 else R.multiply(self, scalar(beta, dtype)), total)
