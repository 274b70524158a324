"""Sampling of tokens from probabilities."""

from __future__ import annotations

import numpy as np

from relax2xla import op
from relax2xla.errors import UnsupportedError
from relax2xla.frontend.nn.eager import eager
from relax2xla.frontend.nn.values import Tensor, expr_of, wrap_nested
from relax2xla.ir import Constant, Expr, TensorStructInfo, const
from relax2xla.ir.struct_info import show
from relax2xla.tir import Dim


@eager
def multinomial_from_uniform(
    prob: Tensor,
    uniform_sample: Tensor,
    sample_indices: Tensor | None = None,
    dtype: str = "int64",
    name: str = "multinomial_from_uniform",
) -> Tensor:
    """For each uniform number, the index that it draws from a row of probabilities: ``(n, 1)``.

    prob: ``(batch, size)``, rows that add up to 1; uniform_sample: ``(n, 1)``; sample_indices:
    ``(n, 1)`` of int64, the row for each; None: its own, with n = batch.
    """
    rows = _rows(sample_indices, uniform_sample, prob)
    made = op.multinomial_from_uniform(expr_of(prob), expr_of(uniform_sample), rows, dtype)
    return wrap_nested(made, name)


@eager
def sample_top_p_top_k_from_sorted_prob(
    sorted_prob: Tensor,
    sorted_index: Tensor,
    top_p: Tensor,
    top_k: Tensor,
    uniform_sample: Tensor,
    sample_indices: Tensor | None = None,
) -> Tensor:
    """Indices drawn from the most likely ones: ``(n, 1)``, of ``sorted_index``'s dtype.

    sorted_prob: ``(batch, size)``, falling, rows that add up to 1; sorted_index: what they stand
    for; top_p, top_k: ``(batch, 1)``, the mass and the number that a row is cut to (the one that
    reaches ``top_p`` is in, and one always); uniform_sample and sample_indices: as of
    ``multinomial_from_uniform``. (In TVM's documentation the example's result lacks an axis.)
    """
    rows = op.reshape(_rows(sample_indices, uniform_sample, sorted_prob), [-1])
    sums = op.cumsum(expr_of(sorted_prob), axis=1)
    kept = op.gather_elements(sums, _last_kept(sums, top_p, top_k), axis=1)
    share = op.divide(op.take(sums, rows, axis=0), op.take(kept, rows, axis=0))
    passed = op.greater_equal(expr_of(uniform_sample), _without_last(share))
    place = op.sum(op.astype(passed, "int64"), axis=[1], keepdims=True)
    drawn = op.gather_elements(op.take(expr_of(sorted_index), rows, axis=0), place, axis=1)
    return wrap_nested(drawn, "sample_top_p_top_k")


@eager
def renormalize_top_p_top_k_prob(
    prob: Tensor, sorted_prob: Tensor, top_p: Tensor, top_k: Tensor
) -> Tensor:
    """``prob`` with zeros beyond ``top_p`` and ``top_k``, divided by what is left.

    prob: ``(batch, size)``, rows that add up to 1; sorted_prob: the same, falling; top_p, top_k:
    ``(batch, 1)``. Elements that are as likely as the last one kept are kept, too.
    """
    ordered = expr_of(sorted_prob)
    sums = op.cumsum(ordered, axis=1)
    least = op.gather_elements(ordered, _last_kept(sums, top_p, top_k), axis=1)
    given = expr_of(prob)
    kept = op.where(op.greater_equal(given, least), given, const(0, prob.dtype))
    return wrap_nested(op.divide(kept, op.sum(kept, axis=[1], keepdims=True)), "renormalize")


def _last_kept(sums: Expr, top_p: Tensor, top_k: Tensor) -> Expr:
    """The place of the last element of each row that is kept: ``(batch, 1)`` of int64."""
    sums = _without_last(sums)
    place = op.arange(1, _size(sums) + 1, 1, dtype=top_k.dtype)
    goes_on = op.logical_and(
        op.less(sums, expr_of(top_p)), op.less(op.expand_dims(place, 0), expr_of(top_k))
    )
    return op.sum(op.astype(goes_on, "int64"), axis=[1], keepdims=True)


def _without_last(rows: Expr) -> Expr:
    """What of each row can be passed over: however sums are rounded, the last element is there."""
    return op.strided_slice(rows, [1], [0], [_size(rows) - 1])


def _size(rows: Expr) -> Dim:
    info = rows.struct_info
    size = info.dims[1] if isinstance(info, TensorStructInfo) and info.dims else None
    if size is None:
        raise UnsupportedError(f"sampling needs rows of a length that has a name; got {show(info)}")
    return size


def _rows(sample_indices: Tensor | None, uniform_sample: Tensor, prob: Tensor) -> Expr:
    if sample_indices is not None:
        if list(sample_indices.shape) != list(uniform_sample.shape):
            raise ValueError(
                f"sample_indices {sample_indices.shape} and uniform_sample {uniform_sample.shape} "
                "differ in shape"
            )
        return expr_of(sample_indices)
    n, batch = uniform_sample.shape[0], prob.shape[0]
    if not isinstance(n, int):
        raise UnsupportedError("sampling needs sample_indices where their number is symbolic")
    if n != batch:
        raise ValueError(f"{n} samples of {batch} rows; give sample_indices")
    return Constant(np.arange(n, dtype=np.int64).reshape(n, 1))
