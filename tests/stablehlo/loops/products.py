# ruff: noqa: E501  (lines of kernels are as long as they are)
"""Kernels that contract: products of matrices in every order of axes."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.stablehlo.loops.cases import Case, kernel


def _product(
    name: str,
    a: Any,
    b: Any,
    c: Any,
    loops: str,
    axes: str,
    left: str,
    right: str,
    out: str,
    expected: Any,
    dtype: str = "float32",
    **more: Any,
) -> Case:
    names = [w.strip() for w in axes.split(",")]
    kinds = "".join("R" if n in more.get("reduced", ("k",)) else "S" for n in names)
    more.pop("reduced", None)
    return kernel(
        name,
        {"A": a, "B": b, "C": c},
        f"""
        for {axes} in T.grid({loops}):
            with T.block("C"):
                {", ".join("v" + n for n in names)} = T.axis.remap("{kinds}", [{axes}])
                with T.init():
                    C[{out}] = T.{dtype}(0)
                C[{out}] = C[{out}] + {left} * {right}
        """,
        expected,
        forms=("dot_general",),
        **more,
    )


PRODUCTS = [
    _product(
        "matmul",
        (4, 5),
        (5, 6),
        (4, 6),
        "4, 6, 5",
        "i, j, k",
        "A[vi, vk]",
        "B[vk, vj]",
        "vi, vj",
        lambda a, b: a @ b,
    ),
    _product(
        "matmul_nt",
        (4, 5),
        (6, 5),
        (4, 6),
        "4, 6, 5",
        "i, j, k",
        "A[vi, vk]",
        "B[vj, vk]",
        "vi, vj",
        lambda a, b: a @ b.T,
    ),
    _product(
        "matmul_tn",
        (5, 4),
        (5, 6),
        (4, 6),
        "4, 6, 5",
        "i, j, k",
        "A[vk, vi]",
        "B[vk, vj]",
        "vi, vj",
        lambda a, b: a.T @ b,
    ),
    _product(
        "matmul_reordered",
        (4, 5),
        (5, 6),
        (4, 6),
        "5, 6, 4",
        "k, j, i",
        "A[vi, vk]",
        "B[vk, vj]",
        "vi, vj",
        lambda a, b: a @ b,
    ),
    _product(
        "matmul_out_turned",
        (4, 5),
        (5, 6),
        (6, 4),
        "4, 6, 5",
        "i, j, k",
        "A[vi, vk]",
        "B[vk, vj]",
        "vj, vi",
        lambda a, b: (a @ b).T,
    ),
    _product(
        "matvec", (4, 5), (5,), (4,), "4, 5", "i, k", "A[vi, vk]", "B[vk]", "vi", lambda a, b: a @ b
    ),
    _product(
        "batched",
        (3, 4, 5),
        (3, 5, 6),
        (3, 4, 6),
        "3, 4, 6, 5",
        "b, i, j, k",
        "A[vb, vi, vk]",
        "B[vb, vk, vj]",
        "vb, vi, vj",
        lambda a, b: a @ b,
    ),
    _product(
        "batched_shared",
        (3, 4, 5),
        (5, 6),
        (3, 4, 6),
        "3, 4, 6, 5",
        "b, i, j, k",
        "A[vb, vi, vk]",
        "B[vk, vj]",
        "vb, vi, vj",
        lambda a, b: a @ b,
    ),
    _product(
        "grouped_heads",
        (6, 4, 5),
        (2, 7, 5),
        (6, 4, 7),
        "6, 4, 7, 5",
        "h, i, j, k",
        "A[vh, vi, vk]",
        "B[vh // 3, vj, vk]",
        "vh, vi, vj",
        lambda a, b: a @ np.repeat(b, 3, 0).transpose(0, 2, 1),
    ),
    _product(
        "two_sums",
        (4, 5, 3),
        (5, 3, 6),
        (4, 6),
        "4, 6, 5, 3",
        "i, j, k, l",
        "A[vi, vk, vl]",
        "B[vk, vl, vj]",
        "vi, vj",
        lambda a, b: np.tensordot(a, b, 2),
        reduced=("k", "l"),
    ),
    _product(
        "matmul_int8",
        (4, 5, "int8"),
        (5, 6, "int8"),
        (4, 6, "int32"),
        "4, 6, 5",
        "i, j, k",
        'T.Cast("int32", A[vi, vk])',
        'T.Cast("int32", B[vk, vj])',
        "vi, vj",
        lambda a, b: a.astype("int32") @ b.astype("int32"),
        dtype="int32",
        low=-99,
        high=99,
    ),
    _product(
        "matmul_half",
        (4, 5, "float16"),
        (5, 6, "float16"),
        (4, 6),
        "4, 6, 5",
        "i, j, k",
        'T.Cast("float32", A[vi, vk])',
        'T.Cast("float32", B[vk, vj])',
        "vi, vj",
        lambda a, b: a.astype("float32") @ b.astype("float32"),
        tolerance=1e-3,
    ),
    _product(
        "matmul_scaled",
        (4, 5),
        (5, 6),
        (4, 6),
        "4, 6, 5",
        "i, j, k",
        "T.float32(0.5) * A[vi, vk]",
        "B[vk, vj]",
        "vi, vj",
        lambda a, b: a @ b / 2,
    ),
    kernel(
        "three_factors",
        {"A": (4, 5), "B": (5, 6), "D": (5,), "C": (4, 6)},
        """
        for i, j, k in T.grid(4, 6, 5):
            with T.block("C"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C[vi, vj] = T.float32(0)
                C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj] * D[vk]
        """,
        lambda a, b, d: (a * d) @ b,
        forms=("dot_general",),
    ),
    kernel(
        "tiled_matmul",
        {"A": (8, 12), "B": (12, 8), "C": (8, 8)},
        """
        for io, jo, ko, ii, ji, ki in T.grid(2, 2, 3, 4, 4, 4):
            with T.block("C"):
                vi = T.axis.spatial(8, io * 4 + ii)
                vj = T.axis.spatial(8, jo * 4 + ji)
                vk = T.axis.reduce(12, ko * 4 + ki)
                with T.init():
                    C[vi, vj] = T.float32(0)
                C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
        """,
        lambda a, b: a @ b,
        forms=("dot_general",),
    ),
    kernel(
        "distances",
        {"A": (4, 5), "B": (6, 5), "C": (4, 6)},
        """
        for i, j, k in T.grid(4, 6, 5):
            with T.block("C"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C[vi, vj] = T.float32(0)
                C[vi, vj] = C[vi, vj] + (A[vi, vk] - B[vj, vk]) * (A[vi, vk] - B[vj, vk])
        """,
        lambda a, b: ((a[:, None] - b[None]) ** 2).sum(2),
    ),
    kernel(
        "matmul_bias_relu",
        {"A": (4, 5), "B": (5, 6), "D": (6,), "C": (4, 6)},
        """
        M = T.alloc_buffer((4, 6))
        for i, j, k in T.grid(4, 6, 5):
            with T.block("M"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    M[vi, vj] = T.float32(0)
                M[vi, vj] = M[vi, vj] + A[vi, vk] * B[vk, vj]
        for i, j in T.grid(4, 6):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = T.max(M[vi, vj] + D[vj], T.float32(0))
        """,
        lambda a, b, d: np.maximum(a @ b + d, 0),
    ),
    kernel(
        "dequantise_q4_matmul",
        {"X": (3, 16), "W": (5, 2, "uint32"), "S": (5, 2), "C": (3, 5)},
        """
        D = T.alloc_buffer((5, 16))
        for j, k in T.grid(5, 16):
            with T.block("D"):
                vj, vk = T.axis.remap("SS", [j, k])
                D[vj, vk] = (T.Cast("float32", T.bitwise_and(T.shift_right(W[vj, vk // 8], T.Cast("uint32", vk % 8 * 4)), T.uint32(15))) - T.float32(7)) * S[vj, vk // 8]
        for i, j, k in T.grid(3, 5, 16):
            with T.block("C"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C[vi, vj] = T.float32(0)
                C[vi, vj] = C[vi, vj] + X[vi, vk] * D[vj, vk]
        """,
        lambda x, w, s: (
            x
            @ (
                ((w[:, :, None] >> (np.arange(8, dtype="uint32") * 4) & 15).astype("float32") - 7)
                * s[:, :, None]
            )
            .reshape(5, 16)
            .T
        ),
        low=0,
        high=2000000,
        tolerance=1e-4,
        forms=("dot_general",),
    ),
]


CASES = PRODUCTS
