"""Kernels that reduce: sums, extrema, argmax, and totals written by hand."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.stablehlo.loops.cases import Case, kernel


def _row_total(name: str, start: str, step: str, expected: Any, **more: Any) -> Case:
    return kernel(
        name,
        {"A": (4, 6), "C": (4,)},
        f"""
        for i, k in T.grid(4, 6):
            with T.block("C"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    C[vi] = {start}
                C[vi] = {step}
        """,
        expected,
        **more,
    )


TOTALS = [
    _row_total("sum", "T.float32(0)", "C[vi] + A[vi, vk]", lambda a: a.sum(1)),
    _row_total("sum_started", "T.float32(3)", "C[vi] + A[vi, vk]", lambda a: a.sum(1) + 3),
    _row_total("sum_turned", "T.float32(0)", "A[vi, vk] + C[vi]", lambda a: a.sum(1)),
    _row_total(
        "sum_of_squares", "T.float32(0)", "C[vi] + A[vi, vk] * A[vi, vk]", lambda a: (a * a).sum(1)
    ),
    _row_total(
        "sum_of_exp", "T.float32(0)", "C[vi] + T.exp(A[vi, vk])", lambda a: np.exp(a).sum(1)
    ),
    _row_total("less", "T.float32(0)", "C[vi] - A[vi, vk]", lambda a: -a.sum(1)),
    _row_total("product", "T.float32(1)", "C[vi] * A[vi, vk]", lambda a: a.prod(1)),
    _row_total("max", "T.float32(-1000)", "T.max(C[vi], A[vi, vk])", lambda a: a.max(1)),
    _row_total("min", "T.float32(1000)", "T.min(C[vi], A[vi, vk])", lambda a: a.min(1)),
    _row_total(
        "sum_where",
        "T.float32(0)",
        "T.if_then_else(A[vi, vk] > T.float32(0), C[vi] + A[vi, vk], C[vi])",
        lambda a: np.where(a > 0, a, 0).sum(1),
    ),
    _row_total(
        "three_terms",
        "T.float32(0)",
        "C[vi] + A[vi, vk] + T.float32(1)",
        lambda a: (a + 1).sum(1),
    ),
    _row_total("last_writer", "T.float32(0)", "A[vi, vk]", lambda a: a[:, -1], loops=1),
    _row_total(
        "horner",
        "T.float32(0)",
        "C[vi] * T.float32(0.5) + A[vi, vk]",
        lambda a: _horner(a),
        loops=1,
    ),
    kernel(
        "sum_all",
        {"A": (4, 6), "C": ()},
        """
        for i, k in T.grid(4, 6):
            with T.block("C"):
                vi, vk = T.axis.remap("RR", [i, k])
                with T.init():
                    C[()] = T.float32(0)
                C[()] = C[()] + A[vi, vk]
        """,
        lambda a: a.sum(),
    ),
    kernel(
        "sum_without_block",
        {"A": (4, 6), "C": (4,)},
        """
        for i in range(4):
            C[i] = T.float32(0)
            for k in range(6):
                C[i] = C[i] + A[i, k]
        """,
        lambda a: a.sum(1),
    ),
    kernel(
        "sum_first",
        {"A": (4, 6), "C": (6,)},
        """
        for i, k in T.grid(6, 4):
            with T.block("C"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    C[vi] = T.float32(0)
                C[vi] = C[vi] + A[vk, vi]
        """,
        lambda a: a.sum(0),
    ),
    kernel(
        "split_reduction",
        {"A": (4, 24), "C": (4,)},
        """
        for i, ko, ki in T.grid(4, 6, 4):
            with T.block("C"):
                vi = T.axis.spatial(4, i)
                vk = T.axis.reduce(24, ko * 4 + ki)
                with T.init():
                    C[vi] = T.float32(0)
                C[vi] = C[vi] + A[vi, vk]
        """,
        lambda a: a.sum(1),
    ),
    kernel(
        "split_with_tail",
        {"A": (4, 22), "C": (4,)},
        """
        for i, ko, ki in T.grid(4, 6, 4):
            with T.block("C"):
                vi = T.axis.spatial(4, i)
                vk = T.axis.reduce(22, ko * 4 + ki)
                T.where(ko * 4 + ki < 22)
                with T.init():
                    C[vi] = T.float32(0)
                C[vi] = C[vi] + A[vi, vk]
        """,
        lambda a: a.sum(1),
    ),
    kernel(
        "product_with_tail",
        {"A": (4, 22), "B": (22, 3), "C": (4, 3)},
        """
        for i, j, ko, ki in T.grid(4, 3, 6, 4):
            with T.block("C"):
                vi = T.axis.spatial(4, i)
                vj = T.axis.spatial(3, j)
                vk = T.axis.reduce(22, ko * 4 + ki)
                T.where(ko * 4 + ki < 22)
                with T.init():
                    C[vi, vj] = T.float32(0)
                C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
        """,
        lambda a, b: a @ b,
        forms=("dot_general",),
    ),
    kernel(
        "any_all",
        {"A": (4, 6, "bool"), "B": (4, "bool"), "C": (4, "bool")},
        """
        for i, k in T.grid(4, 6):
            with T.block("any"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    B[vi] = T.bool(False)
                B[vi] = B[vi] or A[vi, vk]
        for i, k in T.grid(4, 6):
            with T.block("all"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    C[vi] = T.bool(True)
                C[vi] = C[vi] and A[vi, vk]
        """,
        lambda a: (a.any(1), a.all(1)),
        outputs=2,
    ),
    kernel(
        "xor",
        {"A": (4, 6, "int32"), "C": (4, "int32")},
        """
        for i, k in T.grid(4, 6):
            with T.block("C"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    C[vi] = 0
                C[vi] = T.bitwise_xor(C[vi], A[vi, vk])
        """,
        lambda a: np.bitwise_xor.reduce(a, 1),
        low=0,
        high=99,
    ),
    kernel(
        "count",
        {"A": (4, 6), "C": (4, "int32")},
        """
        for i, k in T.grid(4, 6):
            with T.block("C"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    C[vi] = 0
                C[vi] = C[vi] + T.Cast("int32", A[vi, vk] > T.float32(0))
        """,
        lambda a: (a > 0).sum(1).astype("int32"),
    ),
    kernel(
        "constant_term",
        {"C": (4, "int8")},
        """
        for i, k in T.grid(4, 300):
            with T.block("C"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    C[vi] = T.int8(0)
                C[vi] = C[vi] + T.int8(1)
        """,
        lambda: np.full(4, 300).astype("int8"),
    ),
    kernel(
        "argmax",
        {"A": (4, 6), "V": (4,), "I": (4, "int32")},
        """
        for i, k in T.grid(4, 6):
            with T.block("argmax"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    V[vi] = T.float32(-1000)
                    I[vi] = -1
                v: T.float32 = T.Select(V[vi] >= A[vi, vk], V[vi], A[vi, vk])
                n: T.int32 = T.Select(V[vi] >= A[vi, vk], I[vi], vk)
                V[vi] = v
                I[vi] = n
        """,
        lambda a: (a.max(1), a.argmax(1).astype("int32")),
        outputs=2,
        forms=("reduce",),
    ),
    kernel(
        "argmin_last",
        {"A": (4, 6, "int32"), "V": (4, "int32"), "I": (4, "int32")},
        """
        for i, k in T.grid(4, 6):
            with T.block("argmin"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    V[vi] = 1000
                    I[vi] = -1
                v: T.int32 = T.Select(V[vi] < A[vi, vk], V[vi], A[vi, vk])
                n: T.int32 = T.Select(V[vi] < A[vi, vk], I[vi], vk)
                V[vi] = v
                I[vi] = n
        """,
        lambda a: (a.min(1), (5 - a[:, ::-1].argmin(1)).astype("int32")),
        outputs=2,
        low=-3,
        high=3,
    ),
    kernel(
        "argmax_with_tail",
        {"A": (4, 22), "V": (4,), "I": (4, "int32")},
        """
        for i, ko, ki in T.grid(4, 6, 4):
            with T.block("argmax"):
                vi = T.axis.spatial(4, i)
                vk = T.axis.reduce(22, ko * 4 + ki)
                T.where(ko * 4 + ki < 22)
                with T.init():
                    V[vi] = T.float32(-1000)
                    I[vi] = -1
                v: T.float32 = T.Select(V[vi] >= A[vi, vk], V[vi], A[vi, vk])
                n: T.int32 = T.Select(V[vi] >= A[vi, vk], I[vi], vk)
                V[vi] = v
                I[vi] = n
        """,
        lambda a: (a.max(1), a.argmax(1).astype("int32")),
        outputs=2,
        low=-2.0,
        high=-1.0,
        forms=("reduce",),
    ),
    kernel(
        "moments",
        {"A": (4, 6), "S": (4,), "Q": (4,)},
        """
        for i, k in T.grid(4, 6):
            with T.block("moments"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    S[vi] = T.float32(0)
                    Q[vi] = T.float32(0)
                s: T.float32 = S[vi] + A[vi, vk]
                q: T.float32 = Q[vi] + A[vi, vk] * A[vi, vk]
                S[vi] = s
                Q[vi] = q
        """,
        lambda a: (a.sum(1), (a * a).sum(1)),
        outputs=2,
    ),
    kernel(
        "dependent_totals",
        {"A": (4, 6), "S": (4,), "Q": (4,)},
        """
        for i, k in T.grid(4, 6):
            with T.block("both"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    S[vi] = T.float32(0)
                    Q[vi] = T.float32(0)
                S[vi] = S[vi] + A[vi, vk]
                Q[vi] = Q[vi] + S[vi]
        """,
        lambda a: (a.sum(1), a.cumsum(1).sum(1)),
        outputs=2,
        loops=1,
    ),
]


def _horner(a: np.ndarray) -> np.ndarray:
    total = np.zeros(4, "float32")
    for k in range(6):
        total = total * np.float32(0.5) + a[:, k]
    return total


CASES = TOTALS
