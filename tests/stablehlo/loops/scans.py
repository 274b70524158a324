"""Kernels in which each step takes the one before: running totals, recurrences."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.stablehlo.loops.cases import Case, kernel


def _scan(name: str, step: str, expected: Any, dtype: str = "float32", **more: Any) -> Case:
    return kernel(
        name,
        {"A": (3, 40, dtype), "C": (3, 40, dtype)},
        f"""
        for i in T.parallel(3):
            C[i, 0] = A[i, 0]
            for k in range(39):
                C[i, k + 1] = {step}
        """,
        expected,
        **more,
    )


SCANS = [
    _scan(
        "cumsum", "C[i, k] + A[i, k + 1]", lambda a: a.cumsum(1), forms=("scan",), tolerance=1e-4
    ),
    _scan(
        "cumsum_int",
        "C[i, k] + A[i, k + 1]",
        lambda a: a.cumsum(1, dtype="int32"),
        "int32",
        forms=("scan",),
    ),
    _scan(
        "cumprod", "A[i, k + 1] * C[i, k]", lambda a: a.cumprod(1), forms=("scan",), tolerance=1e-4
    ),
    _scan(
        "cummax",
        "T.max(C[i, k], A[i, k + 1])",
        lambda a: np.maximum.accumulate(a, 1),
        forms=("scan",),
    ),
    _scan("decay", "C[i, k] * T.float32(0.5) + A[i, k + 1]", lambda a: _decay(a), loops=1),
    kernel(
        "cumsum_flat",
        {"A": (60,), "C": (60,)},
        """
        for f in T.parallel(3):
            C[f * 20] = A[f * 20]
            for k in range(19):
                C[f * 20 + (k + 1)] = C[f * 20 + (k + 1) - 1] + A[f * 20 + (k + 1)]
        """,
        lambda a: a.reshape(3, 20).cumsum(1).reshape(60),
        forms=("scan",),
    ),
    kernel(
        "cumsum_if",
        {"A": (40,), "C": (40,)},
        """
        for k in range(40):
            if k == 0:
                C[k] = A[k]
            else:
                C[k] = C[k - 1] + A[k]
        """,
        lambda a: a.cumsum(),
        loops=1,
    ),
    kernel(
        "fibonacci",
        {"C": (20, "int32")},
        """
        C[0] = 1
        C[1] = 1
        for k in range(18):
            C[k + 2] = C[k + 1] + C[k]
        """,
        lambda: np.array([_fibonacci(k) for k in range(20)], "int32"),
        loops=1,
    ),
    kernel(
        "cumsum_backwards",
        {"A": (20,), "C": (20,)},
        """
        C[19] = A[19]
        for k in range(19):
            C[18 - k] = C[19 - k] + A[18 - k]
        """,
        lambda a: a[::-1].cumsum()[::-1],
        loops=1,
    ),
]


def _fibonacci(n: int) -> int:
    a, b = 1, 1
    for _ in range(n):
        a, b = b, a + b
    return a


def _decay(a: np.ndarray) -> np.ndarray:
    out = a.copy()
    for k in range(39):
        out[:, k + 1] = out[:, k] * np.float32(0.5) + a[:, k + 1]
    return out


CASES = SCANS
