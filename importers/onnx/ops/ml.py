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
    product,
    scalar,
    static,
)
from relax2xla.importers.onnx.ops.strings import known_rank, made, rank_of, strings_too
from relax2xla.importers.shared.gaps import Unsupported
from relax2xla.importers.shared.index import joined
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
@strings_too
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
        length = R.sqrt(R.sum(R.multiply(x, x), last, True))
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
    if cats_int64s is None or cats_strings is not None:
        raise Unsupported("categories that are strings")
    if not zeros:
        raise Unsupported("zeros=0: an error for categories that are not listed")
    x = R.expand_dims(ctx.cast(X, "int64"), [ndim_of(X)])
    return R.astype(R.equal(x, vector(cats_int64s, "int64")), "float32")


@onnx_op("LabelEncoder", since=2, domain=DOMAIN)
def label_encoder_lists(
    ctx: Context,
    X: Expr,
    *,
    default_float: float = 0.0,
    default_int64: int = -1,
    default_string: str = "_Unused",
    keys_floats: list[float] | None = None,
    keys_int64s: list[int] | None = None,
    keys_strings: list[str] | None = None,
    values_floats: list[float] | None = None,
    values_int64s: list[int] | None = None,
    values_strings: list[str] | None = None,
) -> Expr:
    if keys_strings is not None or values_strings is not None:
        numbers = keys_floats if keys_floats is not None else keys_int64s
        kind = "int64" if values_int64s is not None else "float32"
        found = values_int64s if values_int64s is not None else values_floats
        fill = default_int64 if kind == "int64" else default_float
        values = None if found is None else np.asarray(found, numpy_dtype(kind))
        return _labels(ctx, X, keys_strings, numbers, values_strings, values, default_string, fill)
    keys = _one_of(keys_floats, keys_int64s, "keys")
    values = _one_of(values_floats, values_int64s, "values")
    kind = "int64" if values_int64s is not None else "float32"
    default = default_int64 if kind == "int64" else default_float
    return _encoded(ctx, X, np.asarray(keys), vector(values, kind).data, default)


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
    if keys_tensor is None and values_tensor is None:
        return label_encoder_lists(
            ctx,
            X,
            default_float=default_float,
            default_int64=default_int64,
            default_string=default_string,
            keys_floats=keys_floats,
            keys_int64s=keys_int64s,
            keys_strings=keys_strings,
            values_floats=values_floats,
            values_int64s=values_int64s,
            values_strings=values_strings,
        )
    texts = [
        _strings(t, s) for t, s in ((keys_tensor, keys_strings), (values_tensor, values_strings))
    ]
    if texts[0] is not None or texts[1] is not None:
        numbers = None if texts[0] is not None else keys_tensor
        if numbers is None and texts[0] is None:
            numbers = np.asarray(_one_of(keys_floats, keys_int64s, "keys"))
        plain = values_tensor
        if texts[1] is not None:
            plain = None
        elif plain is None:
            plain = np.asarray(_one_of(values_floats, values_int64s, "values"))
            plain = plain.astype(np.int64 if values_int64s is not None else np.float32)
        fill = default_float if plain is None or plain.dtype.kind == "f" else default_int64
        if default_tensor is not None:
            fill = default_tensor.reshape(-1)[0]
        word = str(fill) if default_tensor is not None and plain is None else default_string
        return _labels(ctx, X, texts[0], numbers, texts[1], plain, word, fill)
    keys = keys_tensor if keys_tensor is not None else _one_of(keys_floats, keys_int64s, "keys")
    if values_tensor is None:
        kind = "int64" if values_int64s is not None else "float32"
        values = vector(_one_of(values_floats, values_int64s, "values"), kind).data
        default: Any = default_int64 if kind == "int64" else default_float
    else:
        values = values_tensor
        default = default_int64 if values.dtype.kind in "iu" else default_float
    if default_tensor is not None:
        default = default_tensor.reshape(-1)[0]
    return _encoded(ctx, X, np.asarray(keys), values, default)


def _strings(tensor: Array | None, words: list[str] | None) -> list[str] | None:
    """Strings that are an attribute, as a tensor or a list."""
    if tensor is not None and tensor.dtype == object:
        return [str(v) for v in tensor.reshape(-1).tolist()]
    return words


def _labels(
    ctx: Context,
    x: Expr,
    words: list[str] | None,
    keys: Any,
    labels: list[str] | None,
    values: Array | None,
    default: str,
    fill: Any,
) -> Expr:
    """A look-up where the keys, the values or both are strings."""
    if words is not None and values is not None:
        entries = Constant(values.reshape(-1))
        other = Constant(np.asarray(fill, values.dtype))
        if len(words) != values.size:
            raise ValueError(f"{len(words)} keys and {values.size} values")
        return known_rank(ctx, R.text.encode(x, entries, other, tuple(words)), rank_of(ctx, x))
    if labels is None:
        raise ValueError("it must have one list of values; it has none")
    if words is not None:
        # By the place among the keys.
        places = Constant(np.arange(len(words), dtype=np.int64))
        if len(words) != len(labels):
            raise ValueError(f"{len(words)} keys and {len(labels)} values")
        at = ctx.emit(R.text.encode(x, places, Constant(np.array(-1, np.int64)), tuple(words)))
        return made(ctx, R.text.decode(at, places, tuple(labels), default), rank_of(ctx, x))
    if keys is None:
        raise ValueError("it must have one list of keys; it has none")
    listed = np.asarray(keys).reshape(-1).astype(numpy_dtype(dtype_of(x)))
    if len(labels) != listed.size:
        raise ValueError(f"{listed.size} keys and {len(labels)} values")
    made_ = R.text.decode(x, Constant(listed), tuple(labels), default)
    return made(ctx, made_, ndim_of(x))


def _one_of(a: Any, b: Any, what: str) -> Any:
    given = [v for v in (a, b) if v is not None]
    if len(given) != 1:
        raise ValueError(f"it must have one list of {what}; it has {len(given)}")
    return given[0]


def _encoded(ctx: Context, x: Expr, keys: Array, values: Array, default: Any) -> Expr:
    """The value of the last key that equals an element (NaN equals NaN), else the default."""
    if len(keys) != len(values):
        raise ValueError(f"{len(keys)} keys and {len(values)} values")
    kind = dtype_of(x)
    listed = Constant(keys.reshape(-1).astype(numpy_dtype(kind)))
    wide = ctx.emit(R.expand_dims(x, [ndim_of(x)]))
    same = R.equal(wide, listed)
    if is_float(kind) and np.isnan(keys.astype(np.float64)).any():
        same = R.logical_or(same, R.logical_and(R.isnan(wide), R.isnan(listed)))
    same = ctx.emit(R.astype(same, "int32"))
    # The last position that is equal: one of growing numbers, 0 for none.
    order = Constant(np.arange(1, len(keys) + 1, dtype=np.int32))
    found = R.max(R.multiply(same, order), [ndim_of(x)])
    table = np.concatenate([np.asarray([default]).astype(values.dtype), values.reshape(-1)])
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
        places = Constant(np.arange(len(strings), dtype=np.int64))
        return made(ctx, R.text.decode(ctx.cast(index, "int64"), places, tuple(strings)), 1)
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
