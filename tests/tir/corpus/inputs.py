"""Arguments of a kernel of the corpus; nothing here imports either library."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

SIZE = 16
"""What a symbolic size is."""

WAYS = ("wide", "few", "sorted", "zeros", "ones")
"""How integers are drawn: kernels use them as values, as indices or as bounds of ranges.

Floats are normal, but in "zeros" between 0 and 1: the domain of logarithms, and 0 as an index.
"""

Parameter = Sequence[Any]
"""("buffer", shape, dtype), or ("number", dtype), where a size has its value before the dtype."""


def _numpy(dtype: str) -> np.dtype[Any]:
    if dtype == "bfloat16" or dtype.startswith("float8"):
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, dtype))
    return np.dtype(dtype)


def _integers(rng: np.random.Generator, shape: list[int], dtype: str, way: str) -> np.ndarray:
    if way == "zeros":
        return np.zeros(shape, dtype)
    if way == "ones":
        return np.ones(shape, dtype)
    if way == "wide":
        low, high = (0, 1 << 16) if dtype.startswith("u") else (-2, 3)
        if dtype == "uint8":
            high = 1 << 8
        return rng.integers(low, high, shape).astype(dtype)
    drawn = rng.integers(0, 2, shape).astype(dtype)
    return np.sort(drawn.reshape(-1)).reshape(shape) if way == "sorted" else drawn


def ways(parameters: Sequence[Parameter]) -> tuple[str, ...]:
    """The ways in which arguments of these parameters differ."""
    integers = any(p[0] == "number" or "int" in p[-1] for p in parameters)
    return WAYS if integers else ("wide", "zeros")


def arguments(parameters: Sequence[Parameter], way: str) -> list[Any]:
    """Arrays and numbers for the parameters; the same in each process."""
    rng = np.random.default_rng(11)
    made: list[Any] = []
    for kind, *rest in parameters:
        if kind == "number":
            small = 0.5 if "float" in rest[-1] else {"zeros": 0, "wide": 2}.get(way, 1)
            made.append(rest[0] if len(rest) == 2 else small)
            continue
        shape, dtype = rest
        if dtype == "bool":
            made.append(rng.integers(0, 2, shape).astype(bool))
        elif "float" in dtype:
            draw = rng.random if way == "zeros" else rng.standard_normal
            made.append(draw(shape).astype(_numpy(dtype)))
        else:
            made.append(_integers(rng, shape, dtype, way))
    return made


# ---- the same kernel without its roundings
_SMALL = r"\b(float16|bfloat16|float32)\b"
_DTYPE_AFTER = {"match_buffer": 2, "sblock_alloc_buffer": 1, "alloc_buffer": 1, "Buffer": 1}
"""How many arguments stand before the dtype, float32 where it is not said."""


def in_double(text: str) -> str:
    """A kernel with float64 in the place of smaller floats."""
    text = re.sub(_SMALL, "float64", text)
    names = "|".join(_DTYPE_AFTER)
    for found in reversed(list(re.finditer(rf"T\.({names})\(", text))):
        ends = _ends(text, found.end())
        place = _DTYPE_AFTER[found[1]]
        rest = text[ends[place - 1] : ends[-1]].lstrip(", ")
        if not rest.startswith('"') and "dtype=" not in rest:
            at = ends[place - 1]
            text = f'{text[:at]}, "float64"{text[at:]}'
    return text


def _ends(text: str, at: int) -> list[int]:
    """Where each argument of a call ends whose first one begins at ``at``."""
    ends: list[int] = []
    depth, quoted = 0, False
    for i in range(at, len(text)):
        c = text[i]
        quoted ^= c == '"'
        if quoted:
            continue
        if (c == "," and not depth) or (c == ")" and not depth):
            ends.append(i)
        if c == ")" and not depth:
            break
        depth += (c in "([{") - (c in ")]}")
    return ends


def doubled(given: Sequence[Any]) -> list[Any]:
    """Arguments for the kernel that :func:`in_double` gives."""
    return [
        a.astype("float64") if isinstance(a, np.ndarray) and a.dtype.kind not in "biu" else a
        for a in given
    ]
