# ruff: noqa: D103  (a converter's documentation is the ONNX schema; it says what differs)
"""ai.onnx: tensors of strings, which the machine keeps on the host (``R.text``)."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from relax2xla import op as R
from relax2xla.importers.onnx.engine.context import Context, choice
from relax2xla.importers.onnx.engine.converters import onnx_op
from relax2xla.importers.onnx.engine.known_values import Array, dims_of, ndim_of
from relax2xla.importers.onnx.engine.objects import TEXT, Kind, held
from relax2xla.importers.shared.dims import fold_dim, product
from relax2xla.importers.shared.gaps import Unsupported
from relax2xla.importers.shared.loops import number
from relax2xla.ir import Call, Constant, Expr, ObjectStructInfo, TupleStructInfo, Var

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


def parsed(ctx: Context, x: Expr, dtype: str) -> Expr:
    """Strings as the numbers that they are the text of."""
    return known_rank(ctx, R.text.parse(_text(x), dtype), rank_of(ctx, x))


def written(ctx: Context, x: Expr) -> Expr:
    """Numbers as text."""
    return x if is_text(x) else made(ctx, R.text.write(x), ndim_of(x))


def strings_too(*at: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """What makes of a converter that moves elements and computes none one that moves strings, too.

    ``at``: which of its inputs may be strings; without any, all. What moves are the places of the
    strings, which the host looks up in the end, or, of a classifier's labels, the numbers that
    stand for them. So a ``reduction`` is refused, which would compute with these.
    """

    def decorate(converter: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(converter)
        def convert(ctx: Context, *args: Any, **kwargs: Any) -> Any:
            own = [i for i in at or range(len(args)) if i < len(args)]
            text = [i for i in own if isinstance(args[i], Expr) and is_text(args[i])]
            if not text:
                return converter(ctx, *args, **kwargs)
            if len(text) < len(own):
                raise ValueError("it is given strings and numbers, which are of different types")
            if kwargs.get("reduction", "none") != "none":
                raise Unsupported(f"a reduction of strings ({kwargs['reduction']})")
            pool, numbered = _numbered(ctx, [args[i] for i in own])
            given = list(args)
            for i, numbers in zip(own, numbered, strict=True):
                given[i] = numbers
            results = converter(ctx, *given, **kwargs)
            if isinstance(results, Expr):
                results = ctx.emit(results)
                info = results.struct_info
                if not isinstance(info, TupleStructInfo):
                    return _looked_up(ctx, pool, results)
                results = [results[i] for i in range(len(info.fields))]
            return [_looked_up(ctx, pool, x) for x in results]

        return convert

    return decorate


Lookup = Callable[[Expr], Call]


def _numbered(ctx: Context, given: Sequence[Expr]) -> tuple[Lookup, list[Expr]]:
    """Tensors of numbers that stand for strings, and what says which string a number stands for."""
    if len(given) == 1:
        call = ctx.builder.lookup_binding(given[0]) if isinstance(given[0], Var) else given[0]
        if isinstance(call, Call) and call.op is R.text.decode:
            index, keys = call.args
            words, other = call.attrs["values"], call.attrs["default"]
            return lambda x: R.text.decode(x, keys, words, other), [index]
    pool, before, numbered = given[0], 0, list[Expr]()
    for i, x in enumerate(given):
        places = ctx.emit(shaped(ctx, x))
        numbered.append(R.add(places, number(before)) if i else places)
        pool = ctx.emit(R.text.join(pool, x)) if i else pool
        before = fold_dim(before + product(dims_of(places))) if i + 1 < len(given) else 0
    return lambda x: R.text.take(pool, x), numbered


def shaped(ctx: Context, x: Expr) -> Expr:
    """A tensor of numbers of the shape of ``x``, which may hold strings."""
    if not is_text(x):
        return x
    call = ctx.builder.lookup_binding(x) if isinstance(x, Var) else x
    if isinstance(call, Call) and call.op is R.text.constant:
        shape = call.attrs["shape"]
        return Constant(np.arange(math.prod(shape), dtype=np.int64).reshape(shape))
    return known_rank(ctx, R.text.places(x), rank_of(ctx, x))


def _looked_up(ctx: Context, pool: Lookup, moved: Expr) -> Expr:
    moved = ctx.emit(moved)
    return made(ctx, pool(moved), ndim_of(moved))


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
