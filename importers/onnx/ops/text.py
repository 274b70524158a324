"""ai.onnx: counts of n-grams. Words that are strings are numbered on the host."""

from __future__ import annotations

import numpy as np

from relax2xla import op as R
from relax2xla.dtypes import numpy_dtype
from relax2xla.importers.onnx.engine.context import Context, choice
from relax2xla.importers.onnx.engine.converters import onnx_op
from relax2xla.importers.onnx.engine.known_values import Array, dims_of, dtype_of, ndim_of, scalar
from relax2xla.importers.onnx.ops.strings import encoded, rank_of
from relax2xla.importers.shared.dims import fold_dim, larger
from relax2xla.importers.shared.gaps import Unsupported
from relax2xla.ir import Constant, Expr, ShapeExpr
from relax2xla.tir import Dim


@onnx_op("TfIdfVectorizer", since=9)
def tf_idf_vectorizer(
    ctx: Context,
    X: Expr,
    *,
    max_gram_length: int,
    max_skip_count: int,
    min_gram_length: int,
    mode: str,
    ngram_counts: list[int],
    ngram_indexes: list[int],
    pool_int64s: list[int] | None = None,
    pool_strings: list[str] | None = None,
    weights: list[float] | None = None,
) -> Expr:
    """How often each n-gram of the pool occurs, its words up to ``max_skip_count`` apart."""
    if (pool_strings is None) == (pool_int64s is None):
        raise ValueError("it must have one pool, of strings or of integers")
    given, words = X, pool_int64s or []
    if pool_strings is not None:
        given, words = _numbered(ctx, X, pool_strings)
    choice(mode, ("TF", "IDF", "TFIDF"), "mode")
    if ndim_of(given) not in (1, 2):
        raise ValueError(f"X has the rank {ndim_of(given)}; it must be 1 or 2")
    size = max(ngram_indexes) + 1
    if min(ngram_indexes) < 0 or (weights and len(weights) < size):
        raise ValueError("ngram_indexes and weights do not fit each other")
    x = given if ndim_of(given) == 2 else R.expand_dims(given, [0])
    rows = dims_of(x)[0]
    width = dims_of(x)[1]
    total: Expr = R.zeros(ShapeExpr((rows, size)), "float32")
    for length, (grams, columns) in _pool(words, ngram_counts, ngram_indexes).items():
        if not min_gram_length <= length <= max_gram_length:
            continue
        # Words of one are no further apart than others: they are counted once.
        for step in range(1, 2 if length == 1 else max_skip_count + 2):
            count = fold_dim(width - step * (length - 1))
            if isinstance(count, int) and count < 1:
                break
            count = larger(count, 0)
            found = _occurrences(ctx, x, grams, step, count)
            index = R.broadcast_to(Constant(columns[None]), ShapeExpr((rows, len(columns))))
            total = ctx.emit(R.scatter_elements(total, index, found, 1, "add"))
    if mode == "IDF":
        total = R.astype(R.greater(total, scalar(0, "float32")), "float32")
    if mode != "TF" and weights:
        total = R.multiply(total, Constant(np.asarray(weights[:size], np.float32)))
    return total if ndim_of(given) == 2 else R.squeeze(total, [0])


def _numbered(ctx: Context, x: Expr, pool: list[str]) -> tuple[Expr, list[int]]:
    """Words as numbers, -1 for those that are not in the pool, and the pool's."""
    if rank_of(ctx, x) is None:
        raise Unsupported("words of unknown rank")
    names = list(dict.fromkeys(pool))
    numbers = {w: i for i, w in enumerate(names)}
    listed = np.arange(len(names), dtype=np.int64)
    return encoded(ctx, x, names, listed, -1, rank_of(ctx, x)), [numbers[w] for w in pool]


def _pool(
    words: list[int], starts: list[int], indexes: list[int]
) -> dict[int, tuple[Array, Array]]:
    """By length: n-grams (count, length), and the columns of the result that they are counted in.

    Of an n-gram that stands there twice the last one counts.
    """
    made: dict[int, tuple[Array, Array]] = {}
    number = 0
    for i, start in enumerate(starts):
        length = i + 1
        end = starts[i + 1] if i + 1 < len(starts) else len(words)
        if not 0 <= start <= end <= len(words):
            raise ValueError("ngram_counts does not fit the pool")
        last: dict[tuple[int, ...], int] = {}
        for at in range(start, end - length + 1, length):
            if number >= len(indexes):
                raise ValueError(f"{len(indexes)} ngram_indexes for more n-grams")
            last[tuple(words[at : at + length])] = indexes[number]
            number += 1
        if last:
            made[length] = np.array(list(last), np.int64), np.array(list(last.values()), np.int64)
    return made


def _occurrences(ctx: Context, x: Expr, grams: Array, step: int, count: Dim) -> Expr:
    """How often each n-gram starts at one of ``count`` words: (rows, n-grams), float32."""
    kind = dtype_of(x)
    same: Expr | None = None
    for k in range(grams.shape[1]):
        part = R.strided_slice(x, [1], [k * step], [fold_dim(count + k * step)])
        if not isinstance(count, int):
            part = ctx.pinned(part, [dims_of(x)[0], count])
        part = R.expand_dims(part, [2])
        words = Constant(grams[:, k].astype(numpy_dtype(kind)))
        own = R.equal(part, words)
        same = own if same is None else R.logical_and(same, own)
    assert same is not None
    return R.sum(R.astype(same, "float32"), [1])
