# ruff: noqa: D103  (a converter's documentation is the ONNX schema; it says what differs)
"""ai.onnx.ml: support vector machines.

Semantics: the operator specifications and, where they are open, the reference of ONNX, which
follows libsvm: votes of pairs of classes, probabilities by Wu, Lin and Weng's second method.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from relax2xla import op as R
from relax2xla.dtypes import numpy_dtype
from relax2xla.importers.onnx.engine.context import Context, choice
from relax2xla.importers.onnx.engine.converters import onnx_op
from relax2xla.importers.onnx.engine.known_values import Array, dims_of, dtype_of, scalar
from relax2xla.importers.onnx.ops.ml import DOMAIN, floats, labels_of, rows_of, transformed, vector
from relax2xla.importers.shared import loops
from relax2xla.importers.shared.gaps import Unsupported
from relax2xla.ir import Constant, Expr, ShapeExpr

KERNELS = ("LINEAR", "POLY", "RBF", "SIGMOID")


def _kernel(
    ctx: Context, x: Expr, vectors: Array, kind: str, params: Sequence[float] | None
) -> Expr:
    """The kernel of each row with each vector: (rows, vectors)."""
    dtype = dtype_of(x)
    choice(kind, KERNELS, "kernel_type")
    gamma, coef0, degree = [*(params or ()), 0.0, 0.0, 0.0][:3]
    table = vectors.astype(numpy_dtype(dtype))
    if kind == "RBF":
        apart = R.subtract(R.expand_dims(x, [1]), Constant(table[None]))
        distance = R.sum(R.multiply(apart, apart), [2])
        return R.exp(R.multiply(distance, scalar(-gamma, dtype)))
    dot = R.matmul(x, Constant(np.ascontiguousarray(table.T)))
    if kind == "LINEAR":
        return dot
    moved = R.add(R.multiply(dot, scalar(gamma, dtype)), scalar(coef0, dtype))
    if kind == "SIGMOID":
        return R.tanh(moved)
    return R.power(moved, scalar(int(degree), dtype))


@onnx_op("SVMRegressor", domain=DOMAIN)
def svm_regressor(
    ctx: Context,
    X: Expr,
    *,
    coefficients: list[float],
    kernel_params: list[float] | None = None,
    kernel_type: str = "LINEAR",
    n_supports: int = 0,
    one_class: int = 0,
    post_transform: str = "NONE",
    rho: list[float],
    support_vectors: list[float] | None = None,
) -> Expr:
    x = floats(ctx, rows_of(X))
    dtype = dtype_of(x)
    if n_supports:
        vectors = np.asarray(support_vectors or ()).reshape(n_supports, -1)
        seen = _kernel(ctx, x, vectors, kernel_type, kernel_params)
        weights = np.asarray(coefficients, numpy_dtype(dtype)).reshape(n_supports, 1)
        made = R.matmul(seen, Constant(weights))
    else:
        made = _kernel(ctx, x, np.asarray(coefficients).reshape(1, -1), "LINEAR", None)
    made = R.add(made, scalar(rho[0], dtype))
    if one_class:
        positive = R.greater(made, scalar(0, dtype))
        made = R.where(positive, scalar(1, dtype), scalar(-1, dtype))
    return ctx.cast(transformed(made, post_transform), "float32")


@onnx_op("SVMClassifier", domain=DOMAIN)
def svm_classifier(
    ctx: Context,
    X: Expr,
    *,
    classlabels_ints: list[int] | None = None,
    classlabels_strings: list[str] | None = None,
    coefficients: list[float],
    kernel_params: list[float] | None = None,
    kernel_type: str = "LINEAR",
    post_transform: str = "NONE",
    prob_a: list[float] | None = None,
    prob_b: list[float] | None = None,
    rho: list[float],
    support_vectors: list[float] | None = None,
    vectors_per_class: list[int] | None = None,
) -> list[Expr | None]:
    x = floats(ctx, rows_of(X))
    dtype = dtype_of(x)
    classes = len(classlabels_ints or classlabels_strings or [])
    if classes < 2:
        raise Unsupported(f"{classes} classes")
    if not vectors_per_class:
        weights = np.asarray(coefficients).reshape(classes, -1)
        scores = _kernel(ctx, x, weights, "LINEAR", None)
        scores = ctx.emit(R.add(scores, scalar(rho[0], dtype)))
        index = R.argmax(scores, axis=1)
        labels = labels_of(ctx, index, classlabels_ints, classlabels_strings)
        return [labels, ctx.cast(transformed(scores, post_transform), "float32")]
    count = sum(vectors_per_class)
    vectors = np.asarray(support_vectors or ()).reshape(count, -1)
    matrix = np.asarray(coefficients, numpy_dtype(dtype)).reshape(classes - 1, count)
    pairs = _pairs(matrix, vectors_per_class)
    if len(rho) != pairs.shape[1]:
        raise ValueError(f"{len(rho)} numbers in rho for {pairs.shape[1]} pairs of classes")
    kernel = _kernel(ctx, x, vectors, kernel_type, kernel_params)
    scores = ctx.emit(R.add(R.matmul(kernel, Constant(pairs)), vector(rho, dtype)))
    votes = ctx.emit(_votes(scores, classes))
    index = R.argmax(votes, axis=1)
    labels = labels_of(ctx, index, classlabels_ints, classlabels_strings)
    if prob_a:
        if len(prob_a) != len(rho) or len(prob_b or ()) != len(rho):
            raise ValueError("prob_a and prob_b must have a number for each pair of classes")
        chance = _sigmoid(scores, prob_a, prob_b or [])
        scores = _coupled(ctx, ctx.emit(chance), classes)
    elif classes == 2:
        # One score for two classes is that of the second.
        scores = R.concat([R.negative(scores), scores], 1)
    return [labels, ctx.cast(transformed(scores, post_transform), "float32")]


def _pairs(matrix: Array, sizes: Sequence[int]) -> Array:
    """Weights of the support vectors in the decision of each pair of classes: (vectors, pairs)."""
    starts = np.concatenate([[0], np.cumsum(sizes)])
    columns: list[Array] = []
    for i in range(len(sizes)):
        for j in range(i + 1, len(sizes)):
            column = np.zeros(starts[-1], matrix.dtype)
            column[starts[i] : starts[i + 1]] = matrix[j - 1, starts[i] : starts[i + 1]]
            column[starts[j] : starts[j + 1]] = matrix[i, starts[j] : starts[j + 1]]
            columns.append(column)
    return np.stack(columns, 1)


def _votes(scores: Expr, classes: int) -> Expr:
    """How many pairs each class wins: (rows, classes)."""
    dtype = dtype_of(scores)
    first, second = np.triu_indices(classes, 1)
    eye = np.eye(classes, dtype=numpy_dtype(dtype))
    wins = R.astype(R.greater(scores, scalar(0, dtype)), dtype)
    losses = R.subtract(scalar(1, dtype), wins)
    return R.add(R.matmul(wins, Constant(eye[first])), R.matmul(losses, Constant(eye[second])))


def _sigmoid(scores: Expr, a: Sequence[float], b: Sequence[float]) -> Expr:
    """The probability that the first class of a pair is right."""
    dtype = dtype_of(scores)
    value = R.add(R.multiply(scores, vector(a, dtype)), vector(b, dtype))
    chance = R.subtract(scalar(1, dtype), R.sigmoid(value))
    return R.minimum(R.maximum(chance, scalar(1e-7, dtype)), scalar(1 - 1e-7, dtype))


def _coupled(ctx: Context, chance: Expr, k: int) -> Expr:
    """Probabilities of ``k`` classes from those of pairs, by fixed-point steps as libsvm does."""
    dtype = dtype_of(chance)
    rows = dims_of(chance)[0]
    first, second = np.triu_indices(k, 1)
    # r[i, j]: the probability of i against j.
    spread = np.zeros((len(first), k * k), numpy_dtype(dtype))
    spread[np.arange(len(first)), first * k + second] = 1
    mirror = np.zeros_like(spread)
    mirror[np.arange(len(first)), second * k + first] = 1
    flat = R.add(
        R.matmul(chance, Constant(spread)),
        R.matmul(R.subtract(scalar(1, dtype), chance), Constant(mirror)),
    )
    r = ctx.emit(R.reshape(flat, ShapeExpr((rows, k, k))))
    eye = Constant(np.eye(k, dtype=numpy_dtype(dtype))[None])
    turned = ctx.emit(R.permute_dims(r, [0, 2, 1]))
    squares = R.sum(R.multiply(r, r), [1], True)  # of r[j, t] over j
    q = ctx.emit(R.subtract(R.multiply(eye, squares), R.multiply(r, turned)))
    limit, eps = max(100, k), scalar(0.005 / k, dtype)

    def step(i: Expr, values: Sequence[Expr]) -> tuple[Sequence[Expr], Sequence[Expr]]:
        p, done = values
        qp = ctx.emit(R.squeeze(R.matmul(q, R.expand_dims(p, [2])), [2]))
        pqp = ctx.emit(R.sum(R.multiply(p, qp), [1], True))
        error = R.max(R.abs(R.subtract(qp, pqp)), [1], True)
        now = ctx.emit(R.logical_or(done, R.less(error, eps)))
        new = p
        one = scalar(1, dtype)
        for t in range(k):
            at = ctx.emit(R.squeeze(R.strided_slice(q, [1], [t], [t + 1]), [1]))
            diagonal = R.strided_slice(at, [1], [t], [t + 1])
            own = R.strided_slice(qp, [1], [t], [t + 1])
            diff = ctx.emit(R.divide(R.subtract(pqp, own), diagonal))
            unit = np.zeros((1, k), numpy_dtype(dtype))
            unit[0, t] = 1
            grown = ctx.emit(R.add(one, diff))
            inner = R.add(R.multiply(diff, diagonal), R.multiply(scalar(2, dtype), own))
            pqp = ctx.emit(R.divide(R.add(pqp, R.multiply(diff, inner)), R.multiply(grown, grown)))
            new = ctx.emit(R.divide(R.add(new, R.multiply(Constant(unit), diff)), grown))
            qp = ctx.emit(R.divide(R.add(qp, R.multiply(diff, at)), grown))
        return [R.where(now, p, new), now], []

    start = R.full(ShapeExpr((rows, k)), scalar(1 / k, dtype), dtype)
    never = R.zeros(ShapeExpr((rows, 1)), "bool")
    return loops.scan(ctx.builder, limit, step, [start, never], [])[0][0]
