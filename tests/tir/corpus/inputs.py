"""Arguments of a kernel of the corpus; nothing here imports either library."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

SIZE = 16
"""What a symbolic size is."""

WAYS = ("wide", "few", "sorted", "zeros", "ones")
"""How integers are drawn: kernels use them as values, as indices or as bounds of ranges."""

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
            made.append(rng.standard_normal(shape).astype(_numpy(dtype)))
        else:
            made.append(_integers(rng, shape, dtype, way))
    return made
