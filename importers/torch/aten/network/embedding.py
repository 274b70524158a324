"""Rows of a table, and bags of them."""

from __future__ import annotations

import math

from relax2xla import op as R
from relax2xla.dtypes import is_float
from relax2xla.importers.torch.engine.context import (
    Context,
    dims_of,
    dtype_of,
    scalar,
)
from relax2xla.importers.torch.engine.converters import aten
from relax2xla.ir import Expr


@aten("embedding", ignored="scale_grad_by_freq sparse")
def embedding(ctx: Context, weight: Expr, indices: Expr, padding_idx: int = -1) -> Expr:
    """``padding_idx``: this row gets no gradient; what is ignored is of gradients, too."""
    taken = R.take(weight, indices, axis=0)
    if padding_idx < 0 or not is_float(dtype_of(weight)):
        return taken
    taken, indices = ctx.emit(taken), ctx.emit(indices)
    pads = ctx.emit(R.equal(indices, ctx.tensor(padding_idx, dtype_of(indices))))
    held = R.where(R.expand_dims(pads, [-1]), R.grad.no_grad(taken), taken)
    return R.grad.differentiate_as(taken, held)


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
