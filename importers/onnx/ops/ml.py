# ruff: noqa: D103  (a converter's documentation is the ONNX schema; it says what differs)
"""ai.onnx.ml: features and linear models of numbers.

Semantics: the operator specifications and, where they are open, ONNX Runtime.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from relax2xla import op as R
from relax2xla.dtypes import is_float, numpy_dtype
from relax2xla.importers.onnx.engine.context import Context, choice
from relax2xla.importers.onnx.engine.converters import onnx_op
from relax2xla.importers.onnx.engine.known_values import (
    Array,
    dims_of,
    dtype_of,
    ndim_of,
    scalar,
    static,
)
from relax2xla.importers.onnx.ops.strings import decoded, encoded, rank_of, strings_too
from relax2xla.importers.shared.dims import product
from relax2xla.importers.shared.gaps import Unsupported
from relax2xla.importers.shared.index import joined
from relax2xla.importers.shared.reductions import marked_root
from relax2xla.ir import Constant, Expr, ShapeExpr

DOMAIN = "ai.onnx.ml"
ML = {"domain": DOMAIN}


def vector(values: Sequence[Any], dtype: str) -> Constant:
    """Attributes as a constant."""
    return Constant(np.asarray(values, numpy_dtype(dtype)))


def floats(ctx: Context, x: Expr) -> Expr:
    """Features as floats: float64 stays, everything else is float32."""
    return x if dtype_of(x) == "float64" else ctx.cast(x, "float32")


def rows_of(x: Expr) -> Expr:
    """Features as a matrix: a vector is one row."""
    return R.expand_dims(x, [0]) if ndim_of(x) == 1 else x


# -- features ------------------------------------------------------------------------------------
@onnx_op("ArrayFeatureExtractor", domain=DOMAIN)
@strings_too(0)
def array_feature_extractor(ctx: Context, X: Expr, Y: Expr) -> Expr:
    """Entries of the last axis; of a vector as one row."""
    index = R.flatten(Y) if ndim_of(Y) > 1 else R.reshape(Y, ShapeExpr((product(dims_of(Y)),)))
    return R.take(rows_of(X), index, max(ndim_of(X), 2) - 1)


@onnx_op("Binarizer", domain=DOMAIN)
def binarizer(ctx: Context, X: Expr, *, threshold: float = 0.0) -> Expr:
    kind = dtype_of(X)
    if is_float(kind):
        above = R.greater(X, scalar(threshold, kind))
    else:
        above = R.greater(ctx.cast(X, "float64"), scalar(threshold, "float64"))
    return ctx.cast(above, kind)


@onnx_op("FeatureVectorizer", domain=DOMAIN)
def feature_vectorizer(ctx: Context, *X: Expr, inputdimensions: list[int] | None = None) -> Expr:
    """Columns side by side as float32, each input cut or filled with zeros to its dimension."""
    sizes = inputdimensions or []
    if len(sizes) != len(X):
        raise ValueError(f"{len(sizes)} inputdimensions for {len(X)} inputs")
    parts: list[Expr] = []
    for x, size in zip(X, sizes, strict=True):
        x = ctx.cast(R.expand_dims(x, [1]) if ndim_of(x) == 1 else x, "float32")
        have = static(dims_of(x)[1], "the number of features")
        if have > size:
            x = R.strided_slice(x, [1], [0], [size])
        elif have < size:
            x = R.nn.pad(x, [0, 0, 0, size - have])
        parts.append(x)
    return joined(parts, 1)


@onnx_op("Imputer", domain=DOMAIN)
def imputer(
    ctx: Context,
    X: Expr,
    *,
    imputed_value_floats: list[float] | None = None,
    imputed_value_int64s: list[int] | None = None,
    replaced_value_float: float = 0.0,
    replaced_value_int64: int = 0,
) -> Expr:
    kind = dtype_of(X)
    values: Sequence[Any] | None = imputed_value_floats if is_float(kind) else imputed_value_int64s
    replaced = replaced_value_float if is_float(kind) else replaced_value_int64
    if not values:
        raise ValueError(f"it has no values for {kind}")
    if isinstance(replaced, float) and math.isnan(replaced):
        missing = R.isnan(X)
    else:
        missing = R.equal(X, scalar(replaced, kind))
    filler = scalar(values[0], kind) if len(values) == 1 else vector(values, kind)
    return R.where(missing, filler, X)


@onnx_op("Scaler", domain=DOMAIN)
def scaler(
    ctx: Context,
    X: Expr,
    *,
    offset: list[float] | None = None,
    scale: list[float] | None = None,
) -> Expr:
    kind = "float32"
    if not offset or not scale:
        raise ValueError("it needs offset and scale")
    x = R.subtract(ctx.cast(X, kind), vector(offset, kind))
    return R.multiply(x, vector(scale, kind))


@onnx_op("Normalizer", domain=DOMAIN)
def normalizer(ctx: Context, X: Expr, *, norm: str = "MAX") -> Expr:
    """Rows divided by their norm; a row of zeros stays."""
    choice(norm, ("MAX", "L1", "L2"), "norm")
    kind = "float32"
    x = ctx.emit(ctx.cast(X, kind))
    last = [ndim_of(x) - 1]
    if norm == "MAX":
        length = R.max(R.abs(x), last, True)
    elif norm == "L1":
        length = R.sum(R.abs(x), last, True)
    else:
        length = marked_root(ctx.emit(R.sum(R.multiply(x, x), last, True)))
    return R.divide(x, R.maximum(length, scalar(1e-30, kind)))


@onnx_op("OneHotEncoder", domain=DOMAIN)
def one_hot_encoder(
    ctx: Context,
    X: Expr,
    *,
    cats_int64s: list[int] | None = None,
    cats_strings: list[str] | None = None,
    zeros: int = 1,
) -> Expr:
    """``zeros=0`` makes an unknown category an error, which a program of XLA cannot raise."""
    if (cats_int64s is None) == (cats_strings is None):
        raise ValueError("it must have one list of categories, of integers or of strings")
    if not zeros:
        raise Unsupported("zeros=0: an error for categories that are not listed")
    if cats_strings is None:
        given, listed = ctx.cast(X, "int64"), vector(cats_int64s or (), "int64")
    else:
        # By the place among the categories.
        places = np.arange(len(cats_strings), dtype=np.int64)
        given = ctx.emit(encoded(ctx, X, cats_strings, places, -1, rank_of(ctx, X)))
        listed = Constant(places)
    return R.astype(R.equal(R.expand_dims(given, [ndim_of(given)]), listed), "float32")


@onnx_op("LabelEncoder", since=2, domain=DOMAIN, lacks="default_tensor keys_tensor values_tensor")
@onnx_op("LabelEncoder", since=4, domain=DOMAIN)
def label_encoder(
    ctx: Context,
    X: Expr,
    *,
    default_float: float = 0.0,
    default_int64: int = -1,
    default_string: str = "_Unused",
    default_tensor: Array | None = None,
    keys_floats: list[float] | None = None,
    keys_int64s: list[int] | None = None,
    keys_strings: list[str] | None = None,
    keys_tensor: Array | None = None,
    values_floats: list[float] | None = None,
    values_int64s: list[int] | None = None,
    values_strings: list[str] | None = None,
    values_tensor: Array | None = None,
) -> Expr:
    words, labels = _strings(keys_tensor, keys_strings), _strings(values_tensor, values_strings)
    keys = values = np.empty(0)
    if words is None:
        keys = _numbers(keys_tensor, keys_floats, keys_int64s, "keys")
    if labels is None:
        values = _numbers(values_tensor, values_floats, values_int64s, "values")
    is_whole = labels is None and values.dtype.kind in "iu"
    default: Any = default_int64 if is_whole else default_float
    if default_tensor is not None:
        default = default_tensor.reshape(-1)[0]
        default_string = str(default)
    count = keys.size if words is None else len(words)
    of_values = values.size if labels is None else len(labels)
    if count != of_values:
        raise ValueError(f"{count} keys and {of_values} values")
    if words is not None and labels is not None:
        # By the place among the keys.
        places = np.arange(count, dtype=np.int64)
        at = ctx.emit(encoded(ctx, X, words, places, -1, None))
        return decoded(ctx, at, places, labels, default_string, rank_of(ctx, X))
    if words is not None:
        return encoded(ctx, X, words, values, default, rank_of(ctx, X))
    listed = keys.astype(numpy_dtype(dtype_of(X)))
    if labels is not None:
        return decoded(ctx, X, listed, labels, default_string, ndim_of(X))
    return _looked_up(X, listed, values, default)


def _strings(tensor: Array | None, words: list[str] | None) -> list[str] | None:
    """Strings that are an attribute, as a tensor or a list."""
    if tensor is not None and tensor.dtype == object:
        return [str(v) for v in tensor.reshape(-1).tolist()]
    return words


def _numbers(
    tensor: Array | None, floats: list[float] | None, ints: list[int] | None, what: str
) -> Array:
    """Numbers that are an attribute, as a tensor or in one of two lists."""
    if tensor is not None:
        return tensor.reshape(-1)
    count = (floats is not None) + (ints is not None)
    if count != 1:
        raise ValueError(f"it must have one list of {what}; it has {count}")
    return np.asarray(floats, np.float32) if ints is None else np.asarray(ints, np.int64)


def _looked_up(x: Expr, keys: Array, values: Array, default: Any) -> Expr:
    """The value of the last key that equals an element (NaN equals NaN), else the default."""
    listed = Constant(keys)
    wide = R.expand_dims(x, [ndim_of(x)])
    same = R.equal(wide, listed)
    if is_float(dtype_of(x)) and np.isnan(keys.astype(np.float64)).any():
        same = R.logical_or(same, R.logical_and(R.isnan(wide), R.isnan(listed)))
    # The last position that is equal: one of growing numbers, 0 for none.
    order = Constant(np.arange(1, len(keys) + 1, dtype=np.int32))
    found = R.max(R.multiply(R.astype(same, "int32"), order), [ndim_of(x)])
    table = np.concatenate([np.asarray([default]).astype(values.dtype), values])
    return R.take(Constant(table), found, 0)


# -- scores --------------------------------------------------------------------------------------
TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


def _softmax_zero(x: Expr) -> Expr:
    """A softmax to which scores of zero contribute nothing."""
    kind = dtype_of(x)
    zero = scalar(0, kind)
    top = R.max(x, [1], True)
    grown = R.where(
        R.greater(R.abs(x), scalar(1e-7, kind)),
        R.exp(R.subtract(x, top)),
        R.multiply(x, R.exp(R.negative(top))),
    )
    total = R.sum(grown, [1], True)
    return R.where(R.equal(total, zero), scalar(0.5, kind), R.divide(grown, total))


def _probit(x: Expr) -> Expr:
    """The normal distribution's quantile by Winitzki's approximation of erf's inverse."""
    kind = dtype_of(x)
    y = R.subtract(R.multiply(x, scalar(2, kind)), scalar(1, kind))
    rest = R.subtract(scalar(1, kind), R.multiply(y, y))
    log = R.log(rest)
    v = R.add(scalar(2 / (math.pi * 0.147), kind), R.multiply(log, scalar(0.5, kind)))
    inner = R.subtract(R.multiply(v, v), R.multiply(log, scalar(1 / 0.147, kind)))
    root = R.sqrt(R.subtract(R.sqrt(inner), v))
    made = R.multiply(R.multiply(R.sign(y), root), scalar(1.41421356, kind))
    return R.where(R.equal(rest, scalar(0, kind)), scalar(0, kind), made)


_POST: dict[str, Callable[[Expr], Expr]] = {
    "NONE": lambda x: x,
    "SOFTMAX": lambda x: R.nn.softmax(x, 1),
    "LOGISTIC": R.sigmoid,
    "SOFTMAX_ZERO": _softmax_zero,
    "PROBIT": _probit,
}


def transformed(scores: Expr, post_transform: str) -> Expr:
    """Scores (rows, classes) after ``post_transform``."""
    return _POST[choice(post_transform, TRANSFORMS, "post_transform")](scores)


def labels_of(
    ctx: Context, index: Expr, ints: Sequence[int] | None, strings: Sequence[str] | None
) -> Expr | None:
    """Labels by their positions, strings on the host; None where nobody asks for them."""
    if strings:
        if not ctx.wants(0):
            return None
        places = np.arange(len(strings), dtype=np.int64)
        return decoded(ctx, ctx.cast(index, "int64"), places, strings, "", 1)
    if not ints:
        return ctx.cast(index, "int64")
    return R.take(vector(ints, "int64"), index, 0)


# -- linear models -------------------------------------------------------------------------------
def _affine(
    ctx: Context, x: Expr, coefficients: Sequence[float], intercepts: Sequence[float] | None
) -> Expr:
    """Scores (rows, outputs)."""
    kind = dtype_of(x)
    features = static(dims_of(x)[1], "the number of features")
    if not features or len(coefficients) % features:
        raise ValueError(f"{len(coefficients)} coefficients for {features} features")
    matrix = np.asarray(coefficients, numpy_dtype(kind)).reshape(-1, features)
    made = R.matmul(x, Constant(np.ascontiguousarray(matrix.T)))
    return made if not intercepts else R.add(made, vector(intercepts, kind))


@onnx_op("LinearRegressor", domain=DOMAIN)
def linear_regressor(
    ctx: Context,
    X: Expr,
    *,
    coefficients: list[float] | None = None,
    intercepts: list[float] | None = None,
    post_transform: str = "NONE",
    targets: int = 1,
) -> Expr:
    made = _affine(ctx, floats(ctx, rows_of(X)), coefficients or [], intercepts)
    if static(dims_of(made)[1], "the targets") != targets:
        raise ValueError(f"{len(coefficients or [])} coefficients for {targets} targets")
    return ctx.cast(transformed(made, post_transform), "float32")


@onnx_op("LinearClassifier", domain=DOMAIN)
def linear_classifier(
    ctx: Context,
    X: Expr,
    *,
    classlabels_ints: list[int] | None = None,
    classlabels_strings: list[str] | None = None,
    coefficients: list[float],
    intercepts: list[float] | None = None,
    multi_class: int = 0,
    post_transform: str = "NONE",
) -> list[Expr | None]:
    """One score for two classes is that of the second; the first one's is its negative.

    ``multi_class`` says how the model was trained; it changes no score.
    """
    scores = ctx.emit(_affine(ctx, floats(ctx, rows_of(X)), coefficients, intercepts))
    classes = len(classlabels_ints or classlabels_strings or [])
    count = static(dims_of(scores)[1], "the number of scores")
    kind = dtype_of(scores)
    if count == 1 and classes == 2:
        scores = ctx.emit(R.concat([R.negative(scores), scores], 1))
        count = 2
    # Every transform keeps the order, so that the label is that of the largest score.
    if count > 1:
        index = R.argmax(scores, axis=1)
        labels = labels_of(ctx, index, classlabels_ints, classlabels_strings)
    else:
        above = R.greater(R.reshape(scores, ShapeExpr((dims_of(scores)[0],))), scalar(0, kind))
        pair = [0, classlabels_ints[0]] if classlabels_ints else None
        if classlabels_strings and ctx.wants(0):
            raise Unsupported("one score for labels that are strings, of which there are not two")
        labels = labels_of(ctx, R.astype(above, "int64"), pair, classlabels_strings)
    return [labels, ctx.cast(transformed(scores, post_transform), "float32")]
