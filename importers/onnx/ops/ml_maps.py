# ruff: noqa: D103  (a converter's documentation is the ONNX schema; it says what differs)
"""ai.onnx.ml: maps, which the host keeps as dicts, and integers for strings."""

from __future__ import annotations

import numpy as np

from relax2xla import op as R
from relax2xla.importers.onnx.engine.context import Context, choice
from relax2xla.importers.onnx.engine.converters import onnx_op
from relax2xla.importers.onnx.engine.known_values import ndim_of
from relax2xla.importers.onnx.engine.objects import MAP, TEXT, Kind, held, kind_of, tensor_from
from relax2xla.importers.onnx.ops.strings import decoded, encoded, is_text, rank_of
from relax2xla.importers.shared.gaps import Unsupported
from relax2xla.ir import Expr

DOMAIN = "ai.onnx.ml"
Keys = tuple[tuple[int, ...], tuple[str, ...]]


def _keys(integers: list[int] | None, strings: list[str] | None) -> Keys:
    if bool(integers) == bool(strings):
        raise ValueError("it must have one list of keys, of integers or of strings")
    return tuple(integers or ()), tuple(strings or ())


def mapped(
    ctx: Context, x: Expr, words: list[str], numbers: np.ndarray, text: str, number: int
) -> Expr:
    """Strings as the numbers that stand for them, or numbers as their strings."""
    if len(words) != len(numbers):
        raise ValueError(f"{len(words)} strings and {len(numbers)} integers")
    if is_text(x):
        return encoded(ctx, x, words, numbers, number, rank_of(ctx, x))
    return decoded(ctx, x, numbers, words, text, ndim_of(x))


@onnx_op("CategoryMapper", domain=DOMAIN)
def category_mapper(
    ctx: Context,
    X: Expr,
    *,
    cats_int64s: list[int] | None = None,
    cats_strings: list[str] | None = None,
    default_int64: int = -1,
    default_string: str = "_Unused",
) -> Expr:
    numbers = np.array(cats_int64s or (), np.int64)
    return mapped(ctx, X, cats_strings or [], numbers, default_string, default_int64)


@onnx_op("LabelEncoder", domain=DOMAIN)
def label_encoder_places(
    ctx: Context,
    X: Expr,
    *,
    classes_strings: list[str] | None = None,
    default_int64: int = -1,
    default_string: str = "_Unused",
) -> Expr:
    words = classes_strings or []
    numbers = np.arange(len(words), dtype=np.int64)
    return mapped(ctx, X, words, numbers, default_string, default_int64)


@onnx_op("ZipMap", domain=DOMAIN)
def zip_map(
    ctx: Context,
    X: Expr,
    *,
    classlabels_int64s: list[int] | None = None,
    classlabels_strings: list[str] | None = None,
) -> Expr:
    integers, strings = _keys(classlabels_int64s, classlabels_strings)
    return held(ctx, R.maps.zip(X, integers, strings), Kind(True, dtype=MAP))


def _row(ctx: Context, x: Expr, dtype: str) -> Expr:
    return tensor_from(ctx, x, Kind(dtype=dtype or TEXT, ndim=2))


@onnx_op("DictVectorizer", domain=DOMAIN)
def dict_vectorizer(
    ctx: Context,
    X: Expr,
    *,
    int64_vocabulary: list[int] | None = None,
    string_vocabulary: list[str] | None = None,
) -> Expr:
    """One row, as in ONNX Runtime."""
    integers, strings = _keys(int64_vocabulary, string_vocabulary)
    dtype = _values_of(ctx, X)
    return _row(ctx, R.maps.vectorize(X, integers, strings, dtype), dtype)


@onnx_op("CastMap", domain=DOMAIN)
def cast_map(
    ctx: Context,
    X: Expr,
    *,
    cast_to: str = "TO_FLOAT",
    map_form: str = "DENSE",
    max_map: int = 1,
) -> Expr:
    """One row, as in ONNX Runtime."""
    choice(map_form, ("DENSE", "SPARSE"), "map_form")
    choice(cast_to, CASTS, "cast_to")
    _values_of(ctx, X)
    if map_form == "SPARSE" and max_map < 1:
        raise ValueError(f"max_map={max_map}")
    dtype = CASTS[cast_to]
    return _row(ctx, R.maps.cast(X, max_map if map_form == "SPARSE" else -1, dtype), dtype)


CASTS = {"TO_FLOAT": "float32", "TO_INT64": "int64", "TO_STRING": ""}


def _values_of(ctx: Context, x: Expr) -> str:
    """The dtype of the values of a map, "" for strings."""
    kind = kind_of(ctx, x)
    if not kind.dtype.startswith(MAP):
        raise Unsupported(f"expected a map, got {x.struct_info}")
    return kind.dtype.removeprefix(MAP).removeprefix(TEXT)
