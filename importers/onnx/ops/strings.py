# ruff: noqa: D103  (a converter's documentation is the ONNX schema; it says what differs)
"""ai.onnx: tensors of strings, which the machine keeps on the host (``R.text``)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from relax2xla import op as R
from relax2xla.importers.onnx.engine.context import Context, choice
from relax2xla.importers.onnx.engine.converters import onnx_op
from relax2xla.importers.onnx.engine.known_values import Array, ndim_of
from relax2xla.importers.onnx.engine.objects import TEXT, Kind, held
from relax2xla.importers.shared.gaps import Unsupported
from relax2xla.ir import Call, Constant, Expr, ObjectStructInfo, Var

CASES = ("NONE", "LOWER", "UPPER")


def is_text(x: Expr) -> bool:
    """Whether ``x`` holds strings."""
    return isinstance(x.struct_info_, ObjectStructInfo)


def _text(x: Expr) -> Expr:
    if not is_text(x):
        raise Unsupported(f"expected strings, got {x.struct_info}")
    return x


def rank_of(ctx: Context, x: Expr) -> int | None:
    """The rank of a tensor of strings, None where it is not known."""
    if isinstance(x, Call) and "shape" in x.attrs:
        return len(x.attrs["shape"])
    found = ctx.kinds.get(x)
    return None if found is None or found.ndim < 0 else found.ndim


def made(ctx: Context, x: Expr, rank: int | None) -> Expr:
    """A tensor of strings, bound, with its rank."""
    return held(ctx, x, Kind(dtype=TEXT, ndim=-1 if rank is None else rank))


def known_rank(ctx: Context, x: Expr, rank: int | None) -> Expr:
    """A tensor of numbers that comes of strings, with its rank."""
    return x if rank is None or not ctx.binds else ctx.pinned(x, [None] * rank)


def encoded(
    ctx: Context, x: Expr, words: Sequence[str], numbers: Array, other: Any, rank: int | None
) -> Expr:
    """Strings as the numbers that stand for them, ``other`` for those that are not listed."""
    fill = Constant(np.asarray(other, numbers.dtype))
    return known_rank(ctx, R.text.encode(x, Constant(numbers), fill, tuple(words)), rank)


def decoded(
    ctx: Context, x: Expr, numbers: Array, words: Sequence[str], other: str, rank: int | None
) -> Expr:
    """Numbers as the strings that they stand for; the reverse of :func:`encoded`."""
    return made(ctx, R.text.decode(x, Constant(numbers), tuple(words), other), rank)


def strings_too(converter: Callable[..., Any]) -> Callable[..., Any]:
    """``converter``, which moves elements and computes none, for strings that numbers stand for.

    Labels of classifiers are such: what moves is the numbers that they are looked up by.
    """

    @functools.wraps(converter)
    def convert(ctx: Context, x: Expr, *args: Any, **kwargs: Any) -> Any:
        if not is_text(x):
            return converter(ctx, x, *args, **kwargs)
        call = ctx.builder.lookup_binding(x) if isinstance(x, Var) else x
        if not isinstance(call, Call) or call.op not in (R.text.constant, R.text.decode):
            raise Unsupported("strings that are no labels: nothing looks them up by numbers")
        values: tuple[str, ...] = call.attrs["values"]
        if call.op is R.text.constant:
            places = np.arange(len(values), dtype=np.int64)
            index: Expr = Constant(places.reshape(call.attrs["shape"]))
            keys: Expr = Constant(places)
        else:
            index, keys = call.args
        moved = ctx.emit(converter(ctx, index, *args, **kwargs))
        default = call.attrs.get("default", "")
        return made(ctx, R.text.decode(moved, keys, values, default), ndim_of(moved))

    return convert


def widest(ctx: Context, *xs: Expr) -> int | None:
    """The rank of tensors that are broadcast with each other."""
    ranks = [rank_of(ctx, x) for x in xs]
    return None if None in ranks else max(r for r in ranks if r is not None)


@onnx_op("StringConcat", since=20)
def string_concat(ctx: Context, X: Expr, Y: Expr) -> Expr:
    return made(ctx, R.text.concat(_text(X), _text(Y)), widest(ctx, X, Y))


@onnx_op("RegexFullMatch", since=20)
def regex_full_match(ctx: Context, X: Expr, *, pattern: str | None = None) -> Expr:
    """As RE2 matches, without Unicode classes."""
    if pattern is None:
        raise ValueError("it has no pattern")
    return known_rank(ctx, R.text.regex_full_match(_text(X), pattern), rank_of(ctx, X))


@onnx_op("StringSplit", since=20)
def string_split(
    ctx: Context, X: Expr, *, delimiter: str = "", maxsplit: int | None = None
) -> list[Expr]:
    rank = rank_of(ctx, X)
    both = ctx.emit(R.text.split(_text(X), delimiter, -1 if maxsplit is None else maxsplit))
    parts = made(ctx, both[0], None if rank is None else rank + 1)
    return [parts, known_rank(ctx, both[1], rank)]


@onnx_op("StringNormalizer", since=10)
def string_normalizer(
    ctx: Context,
    X: Expr,
    *,
    case_change_action: str = "NONE",
    is_case_sensitive: int = 0,
    locale: str | None = None,
    stopwords: list[str] | None = None,
) -> Expr:
    """Case changes are those of Unicode, whatever ``locale``."""
    case = choice(case_change_action, CASES, "case_change_action")
    words = tuple(stopwords or ())
    return made(ctx, R.text.normalize(_text(X), case, is_case_sensitive, words), rank_of(ctx, X))
