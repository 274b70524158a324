"""Matmuls of groups of rows, each group with its own matrix: mixtures of experts.

The places where groups end are data, so shapes do not know them. Every row is multiplied with every
matrix and its group's product is taken: rows times groups of products, where a loop over the groups
would compute rows of them, but wait for the places.
"""

from __future__ import annotations

from relax2xla import op as R
from relax2xla.importers.shared.gaps import Unsupported
from relax2xla.importers.torch.engine.context import Context, dims_of, dtype_of, ndim_of, scalar
from relax2xla.importers.torch.engine.converters import aten
from relax2xla.ir import Expr


def _members(ctx: Context, rows: Expr, ends: Expr) -> Expr:
    """(groups, rows, 1) bool: row r is of group g if end[g - 1] <= r < end[g]."""
    count, groups = dims_of(rows)[0], dims_of(ends)[0]
    place = R.reshape(R.arange(0, count, 1, "int64"), (1, count, 1))
    ends = ctx.emit(ctx.cast(ends, "int64"))
    before = R.concat([R.full((1,), scalar(0, "int64")), ends], 0)
    starts = R.strided_slice(before, [0], [0], [groups])
    starts, ends = (R.reshape(e, (groups, 1, 1)) for e in (starts, ends))
    return ctx.emit(R.logical_and(R.greater_equal(place, starts), R.less(place, ends)))


def _products(ctx: Context, rows: Expr, matrices: Expr, ends: Expr) -> Expr:
    """(rows, k) by (groups, k, n) to (rows, n); rows after the last end are zeros."""
    every = R.matmul(R.expand_dims(rows, [0]), matrices)
    zero = scalar(0, dtype_of(rows))
    return R.sum(R.where(_members(ctx, rows, ends), every, zero), [0])


@aten("_grouped_mm")
def grouped_mm(
    ctx: Context, self: Expr, mat2: Expr, offs: Expr | None = None, bias: Expr | None = None
) -> Expr:
    ranks = ndim_of(self), ndim_of(mat2)
    if bias is not None:
        raise Unsupported("a bias of grouped_mm")
    if ranks == (3, 3):
        return R.matmul(self, mat2)
    if ranks != (2, 3) or offs is None:
        raise Unsupported(f"grouped_mm of operands of rank {ranks[0]} and {ranks[1]}")
    return ctx.cast(_products(ctx, self, mat2, offs), ctx.dtype())


@aten("transformers::grouped_mm_fallback")
def grouped_mm_fallback(ctx: Context, input: Expr, weight: Expr, offs: Expr) -> Expr:
    return _products(ctx, input, weight, offs)


@aten("transformers::grouped_mm_fallback_backward")
def grouped_mm_fallback_backward(
    ctx: Context, input: Expr, weight: Expr, offs: Expr, grad_output: Expr
) -> tuple[Expr, Expr]:
    mine = _members(ctx, input, offs)
    transposed = ctx.emit(R.permute_dims(weight, [0, 2, 1]))
    of_input = _products(ctx, grad_output, transposed, offs)
    apart = R.where(mine, R.expand_dims(input, [0]), scalar(0, dtype_of(input)))
    return of_input, R.matmul(R.permute_dims(apart, [0, 2, 1]), grad_output)
