"""How the host runs ``relax.text``: tensors of strings as numpy arrays of dtype object."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from relax2xla import budget
from relax2xla.dtypes import is_float, limits, numpy_dtype
from relax2xla.errors import CallError
from relax2xla.vm.host import regex
from relax2xla.vm.host.operators import Array, host


def strings(x: Any, what: str) -> Array:
    """``x`` as an array of Python strings; bytes are UTF-8. CallError for anything else."""
    array = np.asarray(x)
    if array.dtype.kind not in "OSUT":
        raise CallError(f"{what} must hold strings; got {array.dtype.name}")
    made = np.empty(array.shape, object)
    for at, v in enumerate(array.reshape(-1).tolist()):
        text = v.decode("utf-8", "surrogateescape") if isinstance(v, bytes) else v
        if not isinstance(text, str):
            raise CallError(f"{what} must hold strings; got {type(v).__name__}")
        made.reshape(-1)[at] = text
    return made


def _each(x: Array, rule: Callable[[str], Any], dtype: Any) -> Array:
    made = np.empty(x.shape, dtype)
    made.reshape(-1)[:] = [rule(v) for v in x.reshape(-1).tolist()]
    return made


def _objects(values: Sequence[str], shape: Sequence[int]) -> Array:
    made = np.empty(len(values), object)
    made[:] = list(values)
    return made.reshape(tuple(shape))


# Bytes of a short string of Python's, and of what points to it.
_PIECE: Final = 64
# What Python splits at without a delimiter; none is behind U+3000.
_SPACES: Final = [c for c in map(chr, range(0x3001)) if c.isspace()]


@host("relax.text.constant")
def constant(values: Sequence[str], shape: Sequence[int]) -> Array:
    """The strings in their shape."""
    return _objects(values, shape)


@host("relax.text.concat")
def concat(x1: Any, x2: Any) -> Array:
    """Element by element. BudgetError where they would be beyond memory: twice thirty times is."""
    a, b = strings(x1, "x1"), strings(x2, "x2")
    lengths = np.asarray(_each(a, len, np.int64) + _each(b, len, np.int64))
    budget.check_on_host(int(lengths.sum()), "the strings of StringConcat")
    return np.asarray(a + b, object)


@host("relax.text.equal")
def equal(x1: Any, x2: Any) -> Array:
    """Element by element."""
    return np.asarray(strings(x1, "x1") == strings(x2, "x2"), bool)


@host("relax.text.regex_full_match")
def regex_full_match(x: Any, pattern: str = "") -> Array:
    """See :mod:`relax2xla.vm.host.regex`. CallError for a pattern that is none."""
    found = regex.compiled(pattern)
    return _each(strings(x, "x"), found.fullmatch, bool)


_CHANGES: dict[str, Callable[[str], str]] = {
    "NONE": lambda v: v,
    "LOWER": str.lower,
    "UPPER": str.upper,
}


@host("relax.text.normalize")
def normalize(
    x: Any, case: str = "NONE", case_sensitive: int = 0, stopwords: Sequence[str] = ()
) -> Array:
    """Stop words go, then the case changes."""
    array = strings(x, "x")
    if array.ndim == 0 or array.ndim > 2 or (array.ndim == 2 and array.shape[0] != 1):
        raise CallError(f"normalize takes the shape (c,) or (1, c); got {array.shape}")
    folded: Callable[[str], str] = _CHANGES["NONE"] if case_sensitive else str.lower
    gone = {folded(w) for w in stopwords}
    kept = [_CHANGES[case](v) for v in array.reshape(-1).tolist() if folded(v) not in gone]
    kept = kept or [""]
    return _objects(kept, (len(kept),) if array.ndim == 1 else (1, len(kept)))


@host("relax.text.split")
def split(x: Any, delimiter: str = "", maxsplit: int = -1) -> tuple[Array, Array]:
    """Python's, with None for an empty delimiter."""
    array = strings(x, "x")
    ends = [delimiter] if delimiter else _SPACES
    counted = (sum(map(v.count, ends)) for v in array.reshape(-1).tolist())
    most = 1 + max(counted, default=0)
    most = most if maxsplit < 0 else min(most, maxsplit + 1)
    budget.check_on_host(_PIECE * most * array.size, "the parts of StringSplit")
    parts = [v.split(delimiter or None, maxsplit) for v in array.reshape(-1).tolist()]
    width = max(map(len, parts), default=0)
    flat = [p for row in parts for p in (*row, *[""] * (width - len(row)))]
    counts = np.array([len(p) for p in parts], np.int64).reshape(array.shape)
    return _objects(flat, (*array.shape, width)), counts


@host("relax.text.encode")
def encode(x: Any, values: Array, default: Array, keys: Sequence[str] = ()) -> Array:
    """A look-up; of equal keys the last one counts."""
    table = dict(zip(keys, values.reshape(-1), strict=True))
    other = default.reshape(())[()]
    return _each(strings(x, "x"), lambda v: table.get(v, other), values.dtype)


@host("relax.text.decode")
def decode(x: Array, keys: Array, values: Sequence[str] = (), default: str = "") -> Array:
    """A look-up; NaN is a key like others, and of equal keys the last one counts."""
    table = dict(zip(map(_key, keys.reshape(-1).tolist()), values, strict=True))
    flat = [table.get(_key(v), default) for v in x.reshape(-1).tolist()]
    return _objects(flat, x.shape)


def _key(value: Any) -> Any:
    return "nan" if value != value else value


@host("relax.text.places")
def places(x: Any) -> Array:
    """Counted, not looked at."""
    array = strings(x, "x")
    return np.arange(array.size, dtype=np.int64).reshape(array.shape)


@host("relax.text.ranks")
def ranks(x: Any) -> Array:
    """Python's order, of code points, which is that of their bytes in UTF-8."""
    array = strings(x, "x")
    flat = array.reshape(-1).tolist()
    before = {word: i for i, word in enumerate(sorted(set(flat)))}
    return np.array([before[word] for word in flat], np.int64).reshape(array.shape)


@host("relax.text.take")
def take(x: Any, at: Array) -> Array:
    """A look-up. CallError for a place that is not there, which XLA would have clamped."""
    flat, places = strings(x, "x").reshape(-1), np.asarray(at)
    if places.size and (places.min() < 0 or places.max() >= flat.size):
        raise CallError(f"there are {flat.size} strings to take; one asked for is beyond them")
    return np.asarray(flat[places], object)


@host("relax.text.join")
def join(x1: Any, x2: Any) -> Array:
    """Both flat."""
    return np.concatenate([strings(x1, "x1").reshape(-1), strings(x2, "x2").reshape(-1)])


@host("relax.text.parse")
def parse(x: Any, dtype: str) -> Array:
    """Python's numbers, and C's in hexadecimal. CallError for what is none, or does not fit."""
    array = strings(x, "x")
    if is_float(dtype):
        return _each(array, _float, np.float64).astype(numpy_dtype(dtype))
    low, high = (-(2**63), 2**64 - 1) if dtype == "bool" else limits(dtype)

    def whole(text: str) -> Any:
        value = _number(text, int, "an integer")
        if not low <= value <= high:
            raise CallError(f"{text!r} does not fit {dtype}")
        return value != 0 if dtype == "bool" else value

    return _each(array, whole, numpy_dtype(dtype))


def _float(text: str) -> float:
    return _number(text, float.fromhex if "x" in text.lower() else float, "a number")


def _number(text: str, rule: Callable[[str], Any], what: str) -> Any:
    try:
        if "_" not in text:  # which Python takes between digits
            return rule(text)
    except (ValueError, OverflowError):
        pass
    raise CallError(f"the string {text!r} is not {what}, which Cast was to make of it")


@host("relax.text.write")
def write(x: Array) -> Array:
    """C's ``%.8g`` for floats."""
    array = np.asarray(x)
    if array.dtype.kind in "biu":
        flat = [str(int(v)) for v in array.reshape(-1).tolist()]
    else:
        flat = [_digits(v) for v in array.astype(np.float64).reshape(-1).tolist()]
    return _objects(flat, array.shape)


def _digits(value: float) -> str:
    if value != value:
        return "NaN"
    return f"{value:.8g}".upper() if np.isinf(value) else f"{value:.8g}"
