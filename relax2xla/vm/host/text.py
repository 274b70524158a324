"""How the host runs ``relax.text``: tensors of strings as numpy arrays of dtype object."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

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


@host("relax.text.constant")
def constant(values: Sequence[str], shape: Sequence[int]) -> Array:
    """The strings in their shape."""
    return _objects(values, shape)


@host("relax.text.concat")
def concat(x1: Any, x2: Any) -> Array:
    """Element by element."""
    made = np.asarray(strings(x1, "x1") + strings(x2, "x2"), object)
    return made


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
