"""Kernels whose indices are data: gathered, scattered, counted."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.stablehlo.loops.cases import array, ints, kernel_on, zeros

INDEXED = [
    kernel_on(
        "gather_rows",
        {"A": (9, 5), "I": (4, "int32"), "C": (4, 5)},
        """
        for i, j in T.grid(4, 5):
            C[i, j] = A[I[i], j]
        """,
        lambda r: [array(r, (9, 5)), ints(r, (4,), 9), zeros(4, 5)],
        lambda a, i, c: a[i],
        forms=("gather",),
    ),
    kernel_on(
        "gather_columns",
        {"A": (5, 9), "I": (4, "int32"), "C": (5, 4)},
        """
        for i, j in T.grid(5, 4):
            C[i, j] = A[i, I[j]]
        """,
        lambda r: [array(r, (5, 9)), ints(r, (4,), 9), zeros(5, 4)],
        lambda a, i, c: a[:, i],
    ),
    kernel_on(
        "gather_elements",
        {"A": (5, 9), "I": (5, 4, "int32"), "C": (5, 4)},
        """
        for i, j in T.grid(5, 4):
            C[i, j] = A[i, I[i, j]]
        """,
        lambda r: [array(r, (5, 9)), ints(r, (5, 4), 9), zeros(5, 4)],
        lambda a, i, c: np.take_along_axis(a, i, 1),
    ),
    kernel_on(
        "gather_nd",
        {"A": (9, 8), "I": (4, 2, "int32"), "C": (4,)},
        """
        for i in range(4):
            C[i] = A[I[i, 0], I[i, 1]]
        """,
        lambda r: [array(r, (9, 8)), ints(r, (4, 2), 8), zeros(4)],
        lambda a, i, c: a[i[:, 0], i[:, 1]],
    ),
    kernel_on(
        "gather_int64",
        {"A": (9, 5), "I": (4, "int64"), "C": (4, 5)},
        """
        for i, j in T.grid(4, 5):
            C[i, j] = A[I[i], j]
        """,
        lambda r: [array(r, (9, 5)), ints(r, (4,), 9).astype("int64"), zeros(4, 5)],
        lambda a, i, c: a[i],
    ),
    kernel_on(
        "gather_scalar_offset",
        {"A": (20,), "I": (1, "int32"), "C": (5,)},
        """
        for i in range(5):
            C[i] = A[I[0] + i]
        """,
        lambda r: [array(r, (20,)), ints(r, (1,), 15), zeros(5)],
        lambda a, i, c: a[i[0] : i[0] + 5],
    ),
    kernel_on(
        "gather_guarded",
        {"A": (9,), "I": (6, "int32"), "C": (6,)},
        """
        for i in range(6):
            C[i] = T.if_then_else(I[i] >= 0 and I[i] < 9, A[I[i]], T.float32(-1))
        """,
        lambda r: [array(r, (9,)), np.array([-5, 0, 3, 8, 9, 100], "int32"), zeros(6)],
        lambda a, i, c: np.where((i >= 0) & (i < 9), a[i.clip(0, 8)], -1),
    ),
    kernel_on(
        "gather_sum",
        {"A": (9, 5), "I": (4, 3, "int32"), "C": (4, 5)},
        """
        for i, j, k in T.grid(4, 5, 3):
            with T.block("C"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C[vi, vj] = T.float32(0)
                C[vi, vj] = C[vi, vj] + A[I[vi, vk], vj]
        """,
        lambda r: [array(r, (9, 5)), ints(r, (4, 3), 9), zeros(4, 5)],
        lambda a, i, c: a[i].sum(1),
    ),
    kernel_on(
        "one_hot",
        {"I": (6, "int32"), "C": (6, 9)},
        """
        for i, j in T.grid(6, 9):
            C[i, j] = T.Select(I[i] == j, T.float32(1), T.float32(0))
        """,
        lambda r: [ints(r, (6,), 9), zeros(6, 9)],
        lambda i, c: np.eye(9)[i],
    ),
    kernel_on(
        "scatter_rows",
        {"A": (3, 5), "I": (3, "int32"), "C": (9, 5)},
        """
        for i, j in T.grid(3, 5):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[I[vi], vj] = A[vi, vj]
        """,
        lambda r: [array(r, (3, 5)), np.array([7, 0, 4], "int32"), array(r, (9, 5))],
        lambda a, i, c: _put(c, i, a),
        forms=("scatter",),
    ),
    kernel_on(
        "scatter_parallel",
        {"A": (3,), "I": (3, "int32"), "C": (9,)},
        """
        for i in T.parallel(3):
            C[I[i]] = A[i]
        """,
        lambda r: [array(r, (3,)), np.array([7, 0, 4], "int32"), array(r, (9,))],
        lambda a, i, c: _put(c, i, a),
        forms=("scatter",),
    ),
    kernel_on(
        "scatter_serial_last_wins",
        {"A": (20,), "I": (20, "int32"), "C": (5,)},
        """
        for i in range(20):
            C[I[i]] = A[i]
        """,
        lambda r: [array(r, (20,)), ints(r, (20,), 5), array(r, (5,))],
        lambda a, i, c: _put(c, i, a),
        loops=1,
    ),
    kernel_on(
        "histogram",
        {"I": (50, "int32"), "C": (6, "int32")},
        """
        for i in range(50):
            C[I[i]] = C[I[i]] + 1
        """,
        lambda r: [ints(r, (50,), 6), zeros(6, "int32")],
        lambda i, c: np.bincount(i, minlength=6).astype("int32"),
        forms=("scatter",),
    ),
    kernel_on(
        "scatter_add_rows",
        {"A": (7, 5), "I": (7, "int32"), "C": (4, 5)},
        """
        for i, j in T.grid(7, 5):
            C[I[i], j] = C[I[i], j] + A[i, j]
        """,
        lambda r: [array(r, (7, 5)), ints(r, (7,), 4), array(r, (4, 5))],
        lambda a, i, c: _at(np.add, c, i, a),
    ),
    kernel_on(
        # Lanes of i and j meet in one row, in a column that only the data tells.
        "scatter_add_of_steps_that_meet",
        {"A": (3, 2), "I": (1, "int32"), "C": (5, 4)},
        """
        for i, j in T.grid(3, 2):
            C[j * 2 + i, I[0]] = C[j * 2 + i, I[0]] + A[i, j]
        """,
        lambda r: [array(r, (3, 2)), np.array([2], "int32"), array(r, (5, 4))],
        lambda a, i, c: _at(np.add, c, ([0, 2, 1, 3, 2, 4], [2] * 6), a.reshape(6)),
        forms=("scatter",),
    ),
    kernel_on(
        "scatter_max",
        {"A": (7,), "I": (7, "int32"), "C": (4,)},
        """
        for i in range(7):
            C[I[i]] = T.max(C[I[i]], A[i])
        """,
        lambda r: [array(r, (7,)), ints(r, (7,), 4), array(r, (4,))],
        lambda a, i, c: _at(np.maximum, c, i, a),
    ),
    kernel_on(
        "two_rows_in_one_scatter",
        {"I": (12, "int32"), "C": (4, "int32")},
        """
        for i in range(12):
            C[I[i]] = C[I[i]] + 1
            C[I[i]] = C[I[i]] * 2
        """,
        lambda r: [ints(r, (12,), 4), zeros(4, "int32")],
        lambda i, c: _twice(i),
        loops=1,
    ),
    kernel_on(
        "prefix_by_count",
        {"L": (4, "int32"), "A": (4, 6), "C": (4,)},
        """
        for i in range(4):
            C[i] = T.float32(0)
            for k in range(L[i]):
                C[i] = C[i] + A[i, k]
        """,
        lambda r: [np.array([0, 6, 2, 5], "int32"), array(r, (4, 6)), zeros(4)],
        lambda n, a, c: np.array([a[i, : n[i]].sum() for i in range(4)]),
        loops=1,
    ),
    kernel_on(
        "count_from_one_number",
        {"L": (1, "int32"), "A": (40,), "C": (40,)},
        """
        for k in range(L[0]):
            C[k] = A[k] * T.float32(2)
        """,
        lambda r: [np.array([17], "int32"), array(r, (40,)), zeros(40)],
        lambda n, a, c: np.where(np.arange(40) < n[0], a * 2, 0),
        loops=1,
    ),
    kernel_on(
        "csr_product",
        {"P": (5, "int32"), "J": (7, "int32"), "V": (7,), "X": (6,), "C": (4,)},
        """
        for i in range(4):
            C[i] = T.float32(0)
            for k in range(P[i + 1] - P[i]):
                C[i] = C[i] + V[P[i] + k] * X[J[P[i] + k]]
        """,
        lambda r: [
            np.array([0, 2, 2, 5, 7], "int32"),
            ints(r, (7,), 6),
            array(r, (7,)),
            array(r, (6,)),
            zeros(4),
        ],
        lambda p, j, v, x, c: np.array(
            [(v[p[i] : p[i + 1]] * x[j[p[i] : p[i + 1]]]).sum() for i in range(4)]
        ),
        loops=1,
    ),
    kernel_on(
        "paged_read",
        {"T_": (3, "int32"), "P": (8, 4, 2), "C": (10, 2)},
        """
        for t, d in T.grid(10, 2):
            C[t, d] = P[T_[t // 4], t % 4, d]
        """,
        lambda r: [np.array([5, 1, 7], "int32"), array(r, (8, 4, 2)), zeros(10, 2)],
        lambda t, p, c: p[t].reshape(12, 2)[:10],
    ),
]


def _put(c: np.ndarray, i: np.ndarray, a: np.ndarray) -> np.ndarray:
    c = c.copy()
    for k, at in enumerate(i):
        c[at] = a[k]
    return c


def _at(f: Any, c: np.ndarray, i: Any, a: np.ndarray) -> np.ndarray:
    c = c.copy()
    f.at(c, i, a)
    return c


def _twice(i: np.ndarray) -> np.ndarray:
    c = np.zeros(4, "int32")
    for at in i:
        c[at] = (c[at] + 1) * 2
    return c


CASES = INDEXED
