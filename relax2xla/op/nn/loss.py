"""Losses. Semantics: Relax, and torch's ``nll_loss``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from relax2xla.errors import OpError
from relax2xla.ir.expr import Expr
from relax2xla.ir.op import Rule, op
from relax2xla.ir.struct_info import StructInfo, TensorStructInfo
from relax2xla.ir.traits import Opaque
from relax2xla.op.shared.checks import INTEGER, REAL, common_dtype, differ, tensor, want_tensor
from relax2xla.op.shared.lowering import (
    broadcast_in_dim,
    compare,
    convert,
    dtype_of,
    full,
    full_like,
    hlo,
    iota,
    reduce,
    select,
    shape_of,
    sum_dtype,
)

REDUCTIONS: Final = ("none", "sum", "mean")


@op("relax.nn.cross_entropy_with_logits", Opaque())
def cross_entropy_with_logits(predictions: Expr, labels: Expr) -> StructInfo:
    """``-sum(predictions * labels) / n``, with n the size of the first axis (1 for vectors).

    predictions: at least one axis, a real number: logarithms of probabilities
    labels:      as ``predictions``
    result:      a scalar
    Raises ``OpError`` where the two differ in shape or dtype.
    """
    a = want_tensor(predictions, "predictions", REAL)
    b = want_tensor(labels, "labels", REAL)
    dtype = common_dtype((a, b), ("predictions", "labels"))
    _want_same(a, b, "predictions", "labels")
    return tensor((), dtype, like=a)


def _want_same(a: TensorStructInfo, b: TensorStructInfo, first: str, second: str) -> None:
    known = a.ndim >= 0 and b.ndim >= 0
    if (known and a.ndim != b.ndim) or (
        a.dims is not None
        and b.dims is not None
        and any(differ(m, n) for m, n in zip(a.dims, b.dims, strict=True))
    ):
        raise OpError(f"`{first}` and `{second}` must have one shape; got {a} and {b}")


@cross_entropy_with_logits.legalize
def _cross_entropy_with_logits(predictions: Expr, labels: Expr) -> Expr:
    dtype, shape = dtype_of(predictions), shape_of(predictions)
    wide = sum_dtype(dtype)
    terms = hlo("multiply", convert(predictions, wide), convert(labels, wide))
    total = reduce(terms, "add", range(len(shape)))
    count = shape[0] if len(shape) > 1 else 1
    return convert(hlo("divide", hlo("negate", total), full_like(total, count)), dtype)


def hits(
    shape: Sequence[int], dtype: str, targets: Expr, weights: Expr | None, ignore_index: int
) -> tuple[Expr, Expr]:
    """Of predictions of a shape: where the target is that class and counts, and the weights."""
    classes = 1 if len(shape) > 1 else 0
    spread = broadcast_in_dim(targets, shape, [a for a in range(len(shape)) if a != classes])
    hit = compare(iota(shape, classes, dtype_of(targets)), spread, "EQ")
    hit = hlo("and", hit, hlo("not", compare(spread, full_like(spread, ignore_index), "EQ")))
    if weights is None:
        return hit, full(shape, 1, dtype)
    return hit, broadcast_in_dim(convert(weights, dtype), shape, [classes])


@op("relax.nn.nll_loss", Opaque())
def nll_loss(
    predictions: Expr,
    targets: Expr,
    weights: Expr | None = None,
    reduction: str = "mean",
    ignore_index: int = -100,
) -> Rule:
    """Negative log likelihood: ``-predictions[n, t, ...] * weights[t]`` with t ``targets[n, ...]``.

    predictions:  (n, c, *s) or (c,), a real number: logarithms of probabilities
    targets:      (n, *s) or (), an integer dtype
    weights:      (c,) of the dtype of ``predictions``, or None for ones
    reduction:    "none", "sum", or "mean": the sum divided by the weights that took part
    ignore_index: targets of this value count nothing
    result:       a scalar, or the shape of ``targets`` with "none"; dtype of ``predictions``
    A target outside 0..c-1 counts nothing either. Raises ``OpError`` for other ranks, shapes,
    dtypes and reductions.
    """
    p = want_tensor(predictions, "predictions", REAL)
    t = want_tensor(targets, "targets", INTEGER)
    if reduction not in REDUCTIONS:
        raise OpError(f"`reduction` must be one of {', '.join(REDUCTIONS)}; got {reduction!r}")
    if p.ndim == 0:
        raise OpError("`predictions` must have a class axis; got a scalar")
    if p.ndim > 0 and t.ndim >= 0 and t.ndim != p.ndim - 1:
        raise OpError(
            f"`targets` must have one axis less than `predictions`; got ranks {t.ndim}, {p.ndim}"
        )
    if p.dims is not None:
        at = 1 if len(p.dims) > 1 else 0
        expected = tensor((*p.dims[:at], *p.dims[at + 1 :]), t.dtype)
        _want_same(expected, t, "predictions (without its class axis)", "targets")
        if weights is not None:
            w = want_tensor(weights, "weights", REAL, 1)
            common_dtype((p, w), ("predictions", "weights"))
            _want_same(tensor((p.dims[at],), w.dtype), w, "predictions (its class axis)", "weights")
    elif weights is not None:
        want_tensor(weights, "weights", REAL, 1)

    def lower() -> Expr:
        dtype, shape = dtype_of(predictions), shape_of(predictions)
        p = convert(predictions, sum_dtype(dtype))
        hit, weight = hits(shape, dtype_of(p), targets, weights, ignore_index)
        zero = full_like(p, 0.0)
        loss = select(hit, hlo("negate", hlo("multiply", p, weight)), zero)
        if reduction == "none":
            return convert(reduce(loss, "add", [1 if len(shape) > 1 else 0]), dtype)
        every = range(len(shape))
        total = reduce(loss, "add", every)
        if reduction == "mean":
            total = hlo("divide", total, reduce(select(hit, weight, zero), "add", every))
        return convert(total, dtype)

    if reduction == "none":
        return tensor(t.dims, p.dtype, t.ndim, p), lower
    return tensor((), p.dtype, like=p), lower
