# ruff: noqa: D103  (a converter's documentation is ONNX Runtime's schema; it says what differs)
"""com.microsoft: operators on plain tensors, most of them forms of what ai.onnx has by now.

Semantics: the operator documentation of ONNX Runtime (docs/ContribOperators.md).
"""

from __future__ import annotations

import math

from relax2xla import op as R
from relax2xla.importers.onnx.engine.context import Context, choice, known_number
from relax2xla.importers.onnx.engine.converters import Ints, Lazy, onnx_op
from relax2xla.importers.onnx.engine.known_values import (
    axis_of,
    dims_of,
    dtype_of,
    like,
    ndim_of,
    scalar,
    static,
    statics,
)
from relax2xla.importers.onnx.ops.create import range_at_run_time, trilu
from relax2xla.importers.onnx.ops.index import gather_nd, unique
from relax2xla.importers.onnx.ops.linalg import inverse_of
from relax2xla.importers.onnx.ops.microsoft import DOMAIN, fused_matmul
from relax2xla.importers.onnx.ops.sample import grid_sample
from relax2xla.importers.onnx.ops.shape import pad
from relax2xla.importers.shared.dims import fold_dim
from relax2xla.importers.shared.reductions import root
from relax2xla.ir import Expr, ShapeExpr

onnx_op("Trilu", domain=DOMAIN)(trilu)
onnx_op("GridSample", domain=DOMAIN, mode="bilinear")(grid_sample)
onnx_op("GatherND", domain=DOMAIN, lacks="batch_dims")(gather_nd)
onnx_op("TransposeMatMul", domain=DOMAIN, lacks="transBatchA transBatchB")(fused_matmul)


@onnx_op("Pad", domain=DOMAIN)
def pad_(
    ctx: Context, data: Expr, pads: Lazy, value: Expr | None = None, *, mode: str = "constant"
) -> Expr:
    return pad(ctx, data, pads, value, None, mode=mode)


@onnx_op("Range", domain=DOMAIN)
def range_by_one(ctx: Context, start: Expr, limit: Expr, delta: Expr | None = None) -> Expr:
    ends = [start, limit, scalar(1, dtype_of(start)) if delta is None else delta]
    first, last, step = (known_number(e) for e in ends)
    if first is None or last is None or step is None:
        return range_at_run_time(ctx, *ends)
    if not step:
        raise ValueError("a range with the step 0")
    count = max(0, math.ceil((last - first) / step))
    index = R.astype(R.arange(0, count, 1, "int64"), dtype_of(start))
    return R.add(like(index, first), R.multiply(index, like(index, step)))


@onnx_op("ExpandDims", domain=DOMAIN)
def expand_dims(ctx: Context, X: Expr, axis: Ints) -> Expr:
    (at,) = statics(axis, "the axis")
    return R.expand_dims(X, [at])


@onnx_op("Unique", domain=DOMAIN)
def unique_in_order(ctx: Context, x: Expr) -> list[Expr]:
    """In the order in which values are met; ONNX's gives where each was first, too."""
    values, _, places, counts = unique(ctx, x, sorted=0)
    return [values, places, counts]


@onnx_op("UnfoldTensor", domain=DOMAIN)
def unfold_tensor(ctx: Context, input: Expr, *, dim: int = -1, size: int, step: int = 1) -> Expr:
    if size < 1 or step < 1:
        raise ValueError(f"size={size} and step={step} must be positive")
    at = axis_of(dim, ndim_of(input))
    count = fold_dim((dims_of(input)[at] - size) // step + 1)
    begin = R.multiply(R.arange(0, count, 1, "int64"), scalar(step, "int64"))
    index = R.add(R.expand_dims(begin, [1]), R.arange(0, size, 1, "int64"))
    taken = R.take(input, index, at)  # (..., count, size, ...)
    order = [i for i in range(ndim_of(taken)) if i != at + 1]
    return R.permute_dims(taken, [*order, at + 1])


@onnx_op("Inverse", domain=DOMAIN)
def inverse(ctx: Context, X: Expr) -> Expr:
    return inverse_of(ctx, X)


@onnx_op("CDist", domain=DOMAIN)
def cdist(ctx: Context, A: Expr, B: Expr, *, metric: str = "sqeuclidean") -> Expr:
    """From the differences, so that what is near is not lost in large numbers."""
    choice(metric, ("euclidean", "sqeuclidean"), "metric")
    gap = ctx.emit(R.subtract(R.expand_dims(A, [1]), R.expand_dims(B, [0])))
    total = R.sum(R.multiply(gap, gap), [2])
    return root(total) if metric == "euclidean" else total


@onnx_op("NGramRepeatBlock", domain=DOMAIN)
def ngram_repeat_block(ctx: Context, input_ids: Expr, scores: Expr, *, ngram_size: int) -> Expr:
    """The score of a token is -inf where it would end a group of tokens that is there already."""
    if ngram_size < 1:
        raise ValueError(f"ngram_size={ngram_size} must be positive")
    batch, length = dims_of(input_ids)
    known, before = static(length, "the number of tokens"), ngram_size - 1
    groups = known - before
    if groups < 1:
        return scores
    same: Expr = R.ones(ShapeExpr((batch, groups)), "bool")
    for i in range(before):
        each = R.strided_slice(input_ids, [1], [i], [i + groups])
        last = R.strided_slice(input_ids, [1], [groups + i], [groups + i + 1])
        same = R.logical_and(same, R.equal(each, last))
    ends = R.strided_slice(input_ids, [1], [before], [known])
    none = R.zeros(ShapeExpr(dims_of(scores)), "int32")
    hit = R.scatter_elements(none, ends, R.astype(same, "int32"), 1, "max")
    return R.where(R.greater(hit, scalar(0, "int32")), like(scores, -math.inf), scores)
