"""Kernels with loops that depend on themselves, while, and steps apart from the others."""

from __future__ import annotations

import numpy as np

from tests.stablehlo.loops.cases import kernel

SEQUENTIAL = [
    kernel(
        "recurrence_vector",
        {"A": (30, 4), "C": (30, 4)},
        """
        for j in range(4):
            C[0, j] = A[0, j]
        for t, j in T.grid(29, 4):
            C[t + 1, j] = C[t, j] * T.float32(0.9) + A[t + 1, j]
        """,
        lambda a: _leaky(a),
        loops=1,
        tolerance=1e-4,
    ),
    kernel(
        "insertion_sort",
        {"A": (3, 9), "C": (3, 9)},
        """
        for b, i in T.grid(3, 9):
            C[b, i] = A[b, i]
        for b in range(3):
            for i in range(9):
                for j in range(8):
                    if C[b, j] > C[b, j + 1]:
                        t: T.float32 = C[b, j]
                        C[b, j] = C[b, j + 1]
                        C[b, j + 1] = t
        """,
        lambda a: np.sort(a, 1),
        loops=2,
    ),
    kernel(
        "top_two",
        {"A": (3, 9), "V": (3, 2), "I": (3, 2, "int32")},
        """
        for b in T.parallel(3):
            V[b, 0] = T.float32(-1e30)
            V[b, 1] = T.float32(-1e30)
            for k in range(9):
                if A[b, k] > V[b, 0]:
                    V[b, 1] = V[b, 0]
                    I[b, 1] = I[b, 0]
                    V[b, 0] = A[b, k]
                    I[b, 0] = k
                elif A[b, k] > V[b, 1]:
                    V[b, 1] = A[b, k]
                    I[b, 1] = k
        """,
        lambda a: (np.sort(a, 1)[:, :-3:-1], np.argsort(a, 1)[:, :-3:-1].astype("int32")),
        outputs=2,
        loops=1,
    ),
    kernel(
        "collatz",
        {"A": (6, "int32"), "C": (6, "int32")},
        """
        for i in range(6):
            x = T.alloc_buffer((1,), "int32")
            x[0] = A[i]
            C[i] = 0
            while x[0] > 1:
                x[0] = T.if_then_else(x[0] % 2 == 0, x[0] // 2, x[0] * 3 + 1)
                C[i] = C[i] + 1
        """,
        lambda a: np.array([_collatz(int(x)) for x in a], "int32"),
        low=1,
        high=30,
        loops=1,
    ),
    kernel(
        "binary_search",
        {"A": (16,), "B": (5,), "C": (5, "int32")},
        """
        S = T.alloc_buffer((16,))
        for i in range(16):
            S[i] = T.Cast("float32", i) + T.fabs(A[i]) * T.float32(0.1)
        for q in range(5):
            low = T.alloc_buffer((1,), "int32")
            high = T.alloc_buffer((1,), "int32")
            low[0] = 0
            high[0] = 16
            while low[0] < high[0]:
                if S[(low[0] + high[0]) // 2] < B[q] * T.float32(4) + T.float32(8):
                    low[0] = (low[0] + high[0]) // 2 + 1
                else:
                    high[0] = (low[0] + high[0]) // 2
            C[q] = low[0]
        """,
        lambda a, b: np.searchsorted(
            np.arange(16, dtype="float32") + abs(a) * np.float32(0.1), b * 4 + 8
        ).astype("int32"),
        loops=1,
    ),
    kernel(
        "power_iteration",
        {"A": (4, 4), "C": (4,)},
        """
        N = T.alloc_buffer((4,))
        for i in range(4):
            C[i] = T.float32(1)
        for s in range(12):
            for i in range(4):
                N[i] = T.float32(0)
                for k in range(4):
                    N[i] = N[i] + A[i, k] * C[k]
            for i in range(4):
                C[i] = N[i] * T.float32(0.25)
        """,
        lambda a: _iterated(a),
        loops=1,
        tolerance=1e-3,
    ),
    kernel(
        "rows_depend",
        {"A": (12, 12), "C": (12, 12)},
        """
        for i, j in T.grid(12, 12):
            C[i, j] = A[i, j]
        for k in range(11):
            for j in range(12):
                C[k + 1, j] = C[k + 1, j] - C[k, j] * T.float32(0.5)
        """,
        lambda a: _eliminate(a),
        loops=1,
        tolerance=1e-4,
    ),
    kernel(
        "stencil_steps",
        {"A": (20,), "C": (20,)},
        """
        B = T.alloc_buffer((20,))
        for i in range(20):
            C[i] = A[i]
        for s in range(10):
            for i in range(18):
                B[i + 1] = (C[i] + C[i + 1] + C[i + 2]) / T.float32(3)
            for i in range(18):
                C[i + 1] = B[i + 1]
        """,
        lambda a: _smooth(a),
        loops=1,
    ),
    kernel(
        "sweep_in_place",
        {"A": (20,), "C": (20,)},
        """
        for i in range(20):
            C[i] = A[i]
        for i in range(18):
            C[i + 1] = (C[i] + C[i + 1] + C[i + 2]) / T.float32(3)
        """,
        lambda a: _sweep(a),
        loops=1,
    ),
    kernel(
        "shift_left_in_place",
        {"A": (20,), "C": (20,)},
        """
        for i in range(20):
            C[i] = A[i]
        for i in range(19):
            C[i] = C[i + 1]
        """,
        lambda a: np.append(a[1:], a[-1]),
        loops=1,
    ),
    kernel(
        "copy_first_everywhere",
        {"A": (20,), "C": (20,)},
        """
        for i in range(20):
            C[i] = A[i]
        for i in range(19):
            C[i + 1] = C[i]
        """,
        lambda a: np.full(20, a[0]),
        loops=1,
    ),
    kernel(
        "reads_the_total",
        {"A": (20,), "C": (20,)},
        """
        s = T.alloc_buffer((1,))
        s[0] = T.float32(0)
        for i in range(20):
            s[0] = s[0] + A[i]
            C[i] = s[0]
        """,
        lambda a: a.cumsum(),
        loops=1,
        tolerance=1e-4,
    ),
    kernel(
        "if_on_a_number",
        {"A": (6,), "C": (6,)},
        """
        if A[0] > T.float32(100):
            for i in range(6):
                C[i] = A[i]
        else:
            for i in range(6):
                C[i] = T.float32(0) - A[i]
        """,
        lambda a: -a,
    ),
    kernel(
        "conditional_loop",
        {"A": (30,), "C": (1,)},
        """
        C[0] = T.float32(0)
        for i in range(30):
            if A[i] > T.float32(0):
                C[0] = C[0] + A[i]
        """,
        lambda a: np.array([a[a > 0].sum()]),
        tolerance=1e-4,
    ),
    kernel(
        "compaction",
        {"A": (30,), "C": (30,), "N": (1, "int32")},
        """
        N[0] = 0
        for i in range(30):
            if A[i] > T.float32(0):
                C[N[0]] = A[i]
                N[0] = N[0] + 1
        """,
        lambda a: (
            np.append(a[a > 0], np.zeros((a <= 0).sum(), "float32")),
            np.array([(a > 0).sum()], "int32"),
        ),
        outputs=2,
        loops=1,
    ),
    kernel(
        "unrolled_small",
        {"A": (4, 5), "C": (4, 5)},
        """
        for j in range(5):
            C[0, j] = A[0, j]
        for t in T.unroll(3):
            for j in range(5):
                C[t + 1, j] = C[t, j] + A[t + 1, j]
        """,
        lambda a: a.cumsum(0),
    ),
]


def _leaky(a: np.ndarray) -> np.ndarray:
    out = a.copy()
    for t in range(29):
        out[t + 1] = out[t] * np.float32(0.9) + a[t + 1]
    return out


def _collatz(x: int) -> int:
    steps = 0
    while x > 1:
        x = x // 2 if x % 2 == 0 else 3 * x + 1
        steps += 1
    return steps


def _iterated(a: np.ndarray) -> np.ndarray:
    x = np.ones(4, "float32")
    for _ in range(12):
        x = (a @ x) * np.float32(0.25)
    return x


def _eliminate(a: np.ndarray) -> np.ndarray:
    c = a.copy()
    for k in range(11):
        c[k + 1] -= c[k] * np.float32(0.5)
    return c


def _smooth(a: np.ndarray) -> np.ndarray:
    c = a.copy()
    for _ in range(10):
        c[1:-1] = (c[:-2] + c[1:-1] + c[2:]) / np.float32(3)
    return c


def _sweep(a: np.ndarray) -> np.ndarray:
    c = a.copy()
    for i in range(18):
        c[i + 1] = (c[i] + c[i + 1] + c[i + 2]) / np.float32(3)
    return c


# A condition that tells one step apart holds the others back no more.
EDGES = [
    kernel(
        "first_step_apart_scan",
        {"A": (3, 40), "C": (3, 40)},
        """
        for i in range(3):
            for j in range(40):
                if j == 0:
                    C[i, 0] = A[i, 0]
                else:
                    C[i, j] = C[i, j - 1] + A[i, j]
        """,
        lambda a: a.cumsum(1, dtype="float32"),
        forms=("scan",),
        tolerance=1e-4,
    ),
    kernel(
        "first_step_chosen_scan",
        {"A": (40,), "C": (40,)},
        """
        for j in range(40):
            C[j] = T.max(A[j], T.if_then_else(j > 0, C[j - 1], A[j]))
        """,
        np.maximum.accumulate,
        loops=1,
    ),
    kernel(
        "first_step_starts_a_sum",
        {"A": (4, 40), "C": (4,)},
        """
        for i, k in T.grid(4, 40):
            if k == 0:
                C[i] = T.float32(1)
            C[i] = C[i] + A[i, k]
        """,
        lambda a: 1 + a.sum(1, dtype="float32"),
        tolerance=1e-4,
    ),
    kernel(
        "last_step_ends_a_sum",
        {"A": (4, 40), "C": (4,)},
        """
        for i, k in T.grid(4, 40):
            C[i] = C[i] + A[i, k]
            if k == 39:
                C[i] = C[i] * T.float32(2)
        """,
        lambda a: 2 * a.sum(1, dtype="float32"),
        tolerance=1e-4,
    ),
]

CASES = [*SEQUENTIAL, *EDGES]
