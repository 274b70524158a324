"""Kernels with indices from data, loops that depend on themselves, while, and threads."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.stablehlo.loops.cases import Case, array, arrays, buffers, script
from tests.stablehlo.loops.reductions import kernel


def _with(
    name: str,
    shapes: dict[str, Any],
    body: str,
    inputs: Any,
    expected: Any,
    outputs: int = 1,
    **more: Any,
) -> Case:
    """A kernel whose arguments ``inputs`` gives, all of them."""
    del outputs
    return Case(name, script(buffers(**shapes), body), inputs, expected, **more)


def _z(*shape: Any) -> np.ndarray:
    dtype = shape[-1] if shape and isinstance(shape[-1], str) else "float32"
    return np.zeros(tuple(d for d in shape if not isinstance(d, str)), dtype)


def _ints(rng: np.random.Generator, shape: tuple[int, ...], below: int) -> np.ndarray:
    return rng.integers(0, below, shape).astype("int32")


INDEXED = [
    _with(
        "gather_rows",
        {"A": (9, 5), "I": (4, "int32"), "C": (4, 5)},
        """
        for i, j in T.grid(4, 5):
            C[i, j] = A[I[i], j]
        """,
        lambda r: [array(r, (9, 5)), _ints(r, (4,), 9), _z(4, 5)],
        lambda a, i, c: a[i],
        forms=("gather",),
    ),
    _with(
        "gather_columns",
        {"A": (5, 9), "I": (4, "int32"), "C": (5, 4)},
        """
        for i, j in T.grid(5, 4):
            C[i, j] = A[i, I[j]]
        """,
        lambda r: [array(r, (5, 9)), _ints(r, (4,), 9), _z(5, 4)],
        lambda a, i, c: a[:, i],
    ),
    _with(
        "gather_elements",
        {"A": (5, 9), "I": (5, 4, "int32"), "C": (5, 4)},
        """
        for i, j in T.grid(5, 4):
            C[i, j] = A[i, I[i, j]]
        """,
        lambda r: [array(r, (5, 9)), _ints(r, (5, 4), 9), _z(5, 4)],
        lambda a, i, c: np.take_along_axis(a, i, 1),
    ),
    _with(
        "gather_nd",
        {"A": (9, 8), "I": (4, 2, "int32"), "C": (4,)},
        """
        for i in range(4):
            C[i] = A[I[i, 0], I[i, 1]]
        """,
        lambda r: [array(r, (9, 8)), _ints(r, (4, 2), 8), _z(4)],
        lambda a, i, c: a[i[:, 0], i[:, 1]],
    ),
    _with(
        "gather_int64",
        {"A": (9, 5), "I": (4, "int64"), "C": (4, 5)},
        """
        for i, j in T.grid(4, 5):
            C[i, j] = A[I[i], j]
        """,
        lambda r: [array(r, (9, 5)), _ints(r, (4,), 9).astype("int64"), _z(4, 5)],
        lambda a, i, c: a[i],
    ),
    _with(
        "gather_scalar_offset",
        {"A": (20,), "I": (1, "int32"), "C": (5,)},
        """
        for i in range(5):
            C[i] = A[I[0] + i]
        """,
        lambda r: [array(r, (20,)), _ints(r, (1,), 15), _z(5)],
        lambda a, i, c: a[i[0] : i[0] + 5],
    ),
    _with(
        "gather_guarded",
        {"A": (9,), "I": (6, "int32"), "C": (6,)},
        """
        for i in range(6):
            C[i] = T.if_then_else(I[i] >= 0 and I[i] < 9, A[I[i]], T.float32(-1))
        """,
        lambda r: [array(r, (9,)), np.array([-5, 0, 3, 8, 9, 100], "int32"), _z(6)],
        lambda a, i, c: np.where((i >= 0) & (i < 9), a[i.clip(0, 8)], -1),
    ),
    _with(
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
        lambda r: [array(r, (9, 5)), _ints(r, (4, 3), 9), _z(4, 5)],
        lambda a, i, c: a[i].sum(1),
    ),
    _with(
        "one_hot",
        {"I": (6, "int32"), "C": (6, 9)},
        """
        for i, j in T.grid(6, 9):
            C[i, j] = T.Select(I[i] == j, T.float32(1), T.float32(0))
        """,
        lambda r: [_ints(r, (6,), 9), _z(6, 9)],
        lambda i, c: np.eye(9)[i],
    ),
    _with(
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
    _with(
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
    _with(
        "scatter_serial_last_wins",
        {"A": (20,), "I": (20, "int32"), "C": (5,)},
        """
        for i in range(20):
            C[I[i]] = A[i]
        """,
        lambda r: [array(r, (20,)), _ints(r, (20,), 5), array(r, (5,))],
        lambda a, i, c: _put(c, i, a),
        loops=1,
    ),
    _with(
        "histogram",
        {"I": (50, "int32"), "C": (6, "int32")},
        """
        for i in range(50):
            C[I[i]] = C[I[i]] + 1
        """,
        lambda r: [_ints(r, (50,), 6), _z(6, "int32")],
        lambda i, c: np.bincount(i, minlength=6).astype("int32"),
        forms=("scatter",),
    ),
    _with(
        "scatter_add_rows",
        {"A": (7, 5), "I": (7, "int32"), "C": (4, 5)},
        """
        for i, j in T.grid(7, 5):
            C[I[i], j] = C[I[i], j] + A[i, j]
        """,
        lambda r: [array(r, (7, 5)), _ints(r, (7,), 4), array(r, (4, 5))],
        lambda a, i, c: _at(np.add, c, i, a),
    ),
    _with(
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
    _with(
        "scatter_max",
        {"A": (7,), "I": (7, "int32"), "C": (4,)},
        """
        for i in range(7):
            C[I[i]] = T.max(C[I[i]], A[i])
        """,
        lambda r: [array(r, (7,)), _ints(r, (7,), 4), array(r, (4,))],
        lambda a, i, c: _at(np.maximum, c, i, a),
    ),
    _with(
        "two_rows_in_one_scatter",
        {"I": (12, "int32"), "C": (4, "int32")},
        """
        for i in range(12):
            C[I[i]] = C[I[i]] + 1
            C[I[i]] = C[I[i]] * 2
        """,
        lambda r: [_ints(r, (12,), 4), _z(4, "int32")],
        lambda i, c: _twice(i),
        loops=1,
    ),
    _with(
        "prefix_by_count",
        {"L": (4, "int32"), "A": (4, 6), "C": (4,)},
        """
        for i in range(4):
            C[i] = T.float32(0)
            for k in range(L[i]):
                C[i] = C[i] + A[i, k]
        """,
        lambda r: [np.array([0, 6, 2, 5], "int32"), array(r, (4, 6)), _z(4)],
        lambda n, a, c: np.array([a[i, : n[i]].sum() for i in range(4)]),
        loops=1,
    ),
    _with(
        "count_from_one_number",
        {"L": (1, "int32"), "A": (40,), "C": (40,)},
        """
        for k in range(L[0]):
            C[k] = A[k] * T.float32(2)
        """,
        lambda r: [np.array([17], "int32"), array(r, (40,)), _z(40)],
        lambda n, a, c: np.where(np.arange(40) < n[0], a * 2, 0),
        loops=1,
    ),
    _with(
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
            _ints(r, (7,), 6),
            array(r, (7,)),
            array(r, (6,)),
            _z(4),
        ],
        lambda p, j, v, x, c: np.array(
            [(v[p[i] : p[i + 1]] * x[j[p[i] : p[i + 1]]]).sum() for i in range(4)]
        ),
        loops=1,
    ),
    _with(
        "paged_read",
        {"T_": (3, "int32"), "P": (8, 4, 2), "C": (10, 2)},
        """
        for t, d in T.grid(10, 2):
            C[t, d] = P[T_[t // 4], t % 4, d]
        """,
        lambda r: [np.array([5, 1, 7], "int32"), array(r, (8, 4, 2)), _z(10, 2)],
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


THREADS = [
    kernel(
        "threads_add",
        {"A": (64,), "C": (64,)},
        """
        for b in T.thread_binding(4, thread="blockIdx.x"):
            for t in T.thread_binding(16, thread="threadIdx.x"):
                C[b * 16 + t] = A[b * 16 + t] + T.float32(1)
        """,
        lambda a: a + 1,
    ),
    kernel(
        "threads_tail",
        {"A": (50,), "C": (50,)},
        """
        for b in T.thread_binding(4, thread="blockIdx.x"):
            for t in T.thread_binding(16, thread="threadIdx.x"):
                with T.block("C"):
                    v = T.axis.spatial(50, b * 16 + t)
                    T.where(b * 16 + t < 50)
                    C[v] = A[v] + T.float32(1)
        """,
        lambda a: a + 1,
    ),
    kernel(
        "threads_shared_reverse",
        {"A": (64,), "C": (64,)},
        """
        for b in T.thread_binding(4, thread="blockIdx.x"):
            S = T.alloc_buffer((16,), scope="shared")
            for t in T.thread_binding(16, thread="threadIdx.x"):
                S[t] = A[b * 16 + t]
                T.tvm_storage_sync("shared")
                C[b * 16 + t] = S[15 - t]
        """,
        lambda a: a.reshape(4, 16)[:, ::-1].reshape(64),
    ),
    kernel(
        "threads_tree_sum",
        {"A": (64,), "C": (4,)},
        """
        for b in T.thread_binding(4, thread="blockIdx.x"):
            S = T.alloc_buffer((16,), scope="shared")
            for t in T.thread_binding(16, thread="threadIdx.x"):
                S[t] = A[b * 16 + t]
                T.tvm_storage_sync("shared")
                for s in range(4):
                    if t < T.shift_right(8, s):
                        S[t] = S[t] + S[t + T.shift_right(8, s)]
                    T.tvm_storage_sync("shared")
                if t == 0:
                    C[b] = S[0]
        """,
        lambda a: a.reshape(4, 16).sum(1),
        tolerance=1e-4,
    ),
    kernel(
        "threads_local",
        {"A": (32, 5), "C": (32,)},
        """
        for b in T.thread_binding(2, thread="blockIdx.x"):
            for t in T.thread_binding(16, thread="threadIdx.x"):
                s = T.alloc_buffer((1,), scope="local")
                s[0] = T.float32(0)
                for k in range(5):
                    s[0] = s[0] + A[b * 16 + t, k]
                C[b * 16 + t] = s[0]
        """,
        lambda a: a.sum(1),
    ),
    kernel(
        "threads_matmul",
        {"A": (16, 32), "B": (32, 16), "C": (16, 16)},
        """
        for by in T.thread_binding(2, thread="blockIdx.y"):
            for bx in T.thread_binding(2, thread="blockIdx.x"):
                SA = T.alloc_buffer((8, 8), scope="shared")
                SB = T.alloc_buffer((8, 8), scope="shared")
                for ty in T.thread_binding(8, thread="threadIdx.y"):
                    for tx in T.thread_binding(8, thread="threadIdx.x"):
                        acc = T.alloc_buffer((1,), scope="local")
                        acc[0] = T.float32(0)
                        for ko in range(4):
                            T.tvm_storage_sync("shared")
                            SA[ty, tx] = A[by * 8 + ty, ko * 8 + tx]
                            SB[ty, tx] = B[ko * 8 + ty, bx * 8 + tx]
                            T.tvm_storage_sync("shared")
                            for ki in range(8):
                                acc[0] = acc[0] + SA[ty, ki] * SB[ki, tx]
                        C[by * 8 + ty, bx * 8 + tx] = acc[0]
        """,
        lambda a, b: a @ b,
        tolerance=1e-4,
    ),
    kernel(
        "threads_bound_reduction",
        {"A": (4, 32), "C": (4,)},
        """
        for b in T.thread_binding(4, thread="blockIdx.x"):
            for t in T.thread_binding(32, thread="threadIdx.x"):
                with T.block("C"):
                    vi, vk = T.axis.remap("SR", [b, t])
                    with T.init():
                        C[vi] = T.float32(0)
                    C[vi] = C[vi] + A[vi, vk]
        """,
        lambda a: a.sum(1),
        tolerance=1e-4,
    ),
    kernel(
        "threads_launched",
        {"A": (64,), "C": (64,)},
        """
        bx = T.launch_thread("blockIdx.x", 4)
        tx = T.launch_thread("threadIdx.x", 16)
        C[bx * 16 + tx] = A[bx * 16 + tx] * T.float32(2)
        """,
        lambda a: a * 2,
    ),
    kernel(
        "threads_strided",
        {"A": (50,), "C": (50,)},
        """
        for t in T.thread_binding(16, thread="threadIdx.x"):
            for s in range(4):
                if s * 16 + t < 50:
                    C[s * 16 + t] = A[s * 16 + t] + T.float32(1)
        """,
        lambda a: a + 1,
    ),
    kernel(
        "threads_one_value",
        {"A": (16,), "C": (1,)},
        """
        for t in T.thread_binding(16, thread="threadIdx.x"):
            if t < 4:
                C[0] = A[3]
        """,
        lambda a: a[3:4],
    ),
    kernel(
        "threads_softmax",
        {"A": (4, 16), "C": (4, 16)},
        """
        for b in T.thread_binding(4, thread="blockIdx.x"):
            R = T.alloc_buffer((16,), scope="shared")
            for t in T.thread_binding(16, thread="threadIdx.x"):
                m = T.alloc_buffer((1,), scope="local")
                s = T.alloc_buffer((1,), scope="local")
                R[t] = A[b, t]
                T.tvm_storage_sync("shared")
                m[0] = T.float32(-1e30)
                for k in range(16):
                    m[0] = T.max(m[0], R[k])
                s[0] = T.float32(0)
                for k in range(16):
                    s[0] = s[0] + T.exp(R[k] - m[0])
                C[b, t] = T.exp(A[b, t] - m[0]) / s[0]
        """,
        lambda a: np.exp(a) / np.exp(a).sum(1, keepdims=True),
    ),
]
LOCK_STEP = [
    _with(
        "threads_read_before_all_write_one_value",
        {"V": (2, 16), "S": (2,)},
        """
        for b in T.thread_binding(2, thread="blockIdx.x"):
            for t in T.thread_binding(4, thread="threadIdx.x"):
                with T.block("scale"):
                    s = T.alloc_buffer((1,), scope="local")
                    v = T.alloc_buffer((4,), scope="local")
                    s[0] = S[b]
                    for k in T.vectorized(4):
                        v[k] = V[b, t * 4 + k]
                    for k in T.vectorized(4):
                        V[b, t * 4 + k] = v[k] * s[0]
                    S[b] = s[0] + T.float32(1)
        """,
        arrays((2, 16), (2,)),
        lambda v, s: (v * s[:, None], s + 1),
        outputs=2,
    ),
]
# What only the sizes say: digits of a block's number, the scratch of each block, a shape.
SIZES = [
    Case(
        "threads_symbolic_digits",
        script(
            "a: T.handle, c: T.handle",
            """
            n, k = T.int64(), T.int64()
            A = T.match_buffer(a, (n, k))
            C = T.match_buffer(c, (n, k))
            S = T.alloc_buffer((n,), scope="shared")
            for b in T.thread_binding(n * k, thread="blockIdx.x"):
                for t in T.thread_binding(T.int64(8), thread="threadIdx.x"):
                    with T.block("sum"):
                        v0 = T.axis.spatial(n, b // k)
                        v1 = T.axis.reduce(k, t)
                        T.where(t < k)
                        with T.init():
                            S[v0] = T.float32(0)
                        S[v0] = S[v0] + A[v0, v1]
                for t in T.thread_binding(T.int64(8), thread="threadIdx.x"):
                    with T.block("share"):
                        v0 = T.axis.spatial(n, b // k)
                        v1 = T.axis.spatial(k, b % k)
                        C[v0, v1] = A[v0, v1] / S[v0]
            """,
        ),
        arrays((3, 5), (3, 5), low=1),
        lambda a, c: a / a.sum(1, keepdims=True),
    ),
    Case(
        "size_of_negative_divisor",
        script(
            "a: T.handle, c: T.handle, at: T.int64",
            """
            n = T.int64()
            A = T.match_buffer(a, (n,))
            C = T.match_buffer(c, ((n - n % T.int64(-4)) // T.int64(4), T.if_then_else(
                at < T.int64(0), at + n, at)))
            for i, j in T.grid((n - n % T.int64(-4)) // T.int64(4), T.if_then_else(
                    at < T.int64(0), at + n, at)):
                with T.block("copy"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    C[vi, vj] = A[vi + vj]
            """,
        ),
        lambda rng: [*arrays((7,), (2, 4))(rng), -3],
        lambda a, c, at: np.stack([a[:4], a[1:5]]),
    ),
]
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

CASES = [*INDEXED, *SEQUENTIAL, *THREADS, *LOCK_STEP, *SIZES, *EDGES]
