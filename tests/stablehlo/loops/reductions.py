# ruff: noqa: E501  (lines of kernels are as long as they are)
"""Kernels that reduce: sums, extrema, argmax, contractions, convolutions, pooling, norms, scans."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.stablehlo.loops.cases import Case, arrays, buffers, script


def kernel(
    name: str,
    shapes: dict[str, Any],
    body: str,
    expected: Any,
    outputs: int = 1,
    low: float = -2.0,
    high: float = 2.0,
    **more: Any,
) -> Case:
    """``shapes``: parameters in order, the last ``outputs`` of them are written."""
    given, out = list(shapes.values())[:-outputs], list(shapes.values())[-outputs:]

    def inputs(rng: np.random.Generator) -> list[np.ndarray]:
        zeros = [
            np.zeros(
                tuple(d for d in s if not isinstance(d, str)),
                s[-1] if s and isinstance(s[-1], str) else "float32",
            )
            for s in out
        ]
        return [*arrays(*given, low=low, high=high)(rng), *zeros]

    return Case(
        name,
        script(buffers(**shapes), body),
        inputs,
        lambda *args: expected(*args[:-outputs]),
        **more,
    )


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


def _conv(
    a: np.ndarray, w: np.ndarray, stride: int = 1, pad: int = 0, dilate: int = 1, groups: int = 1
) -> np.ndarray:
    import torch

    made = torch.nn.functional.conv2d(
        torch.tensor(a), torch.tensor(w), None, stride, pad, dilate, groups
    )
    return made.numpy()


def _conv_case(name: str, stride: int, dilate: int, size: int, out: int) -> Case:
    return kernel(
        name,
        {"A": (2, 3, size, size), "W": (4, 3, 3, 3), "C": (2, 4, out, out)},
        f"""
        for n, f, y, x, c, p, q in T.grid(2, 4, {out}, {out}, 3, 3, 3):
            with T.block("C"):
                vn, vf, vy, vx, vc, vp, vq = T.axis.remap("SSSSRRR", [n, f, y, x, c, p, q])
                with T.init():
                    C[vn, vf, vy, vx] = T.float32(0)
                C[vn, vf, vy, vx] = C[vn, vf, vy, vx] + A[vn, vc, vy * {stride} + vp * {dilate}, vx * {stride} + vq * {dilate}] * W[vf, vc, vp, vq]
        """,
        lambda a, w: _conv(a, w, stride, 0, dilate),
        forms=("convolution",),
    )


WINDOWS = [
    _conv_case("conv", 1, 1, 8, 6),
    _conv_case("conv_stride", 2, 1, 9, 4),
    _conv_case("conv_dilated", 1, 2, 9, 5),
    kernel(
        "conv_padded",
        {"A": (2, 3, 6, 6), "W": (4, 3, 3, 3), "C": (2, 4, 6, 6)},
        """
        P = T.alloc_buffer((2, 3, 8, 8))
        for n, c, y, x in T.grid(2, 3, 8, 8):
            with T.block("P"):
                vn, vc, vy, vx = T.axis.remap("SSSS", [n, c, y, x])
                P[vn, vc, vy, vx] = T.if_then_else(1 <= vy and vy < 7 and 1 <= vx and vx < 7, A[vn, vc, vy - 1, vx - 1], T.float32(0))
        for n, f, y, x, c, p, q in T.grid(2, 4, 6, 6, 3, 3, 3):
            with T.block("C"):
                vn, vf, vy, vx, vc, vp, vq = T.axis.remap("SSSSRRR", [n, f, y, x, c, p, q])
                with T.init():
                    C[vn, vf, vy, vx] = T.float32(0)
                C[vn, vf, vy, vx] = C[vn, vf, vy, vx] + P[vn, vc, vy + vp, vx + vq] * W[vf, vc, vp, vq]
        """,
        lambda a, w: _conv(a, w, pad=1),
        forms=("convolution", "pad"),
    ),
    kernel(
        "conv_guarded",
        {"A": (1, 3, 6, 6), "W": (4, 3, 3, 3), "C": (1, 4, 6, 6)},
        """
        for n, f, y, x, c, p, q in T.grid(1, 4, 6, 6, 3, 3, 3):
            with T.block("C"):
                vn, vf, vy, vx, vc, vp, vq = T.axis.remap("SSSSRRR", [n, f, y, x, c, p, q])
                with T.init():
                    C[vn, vf, vy, vx] = T.float32(0)
                C[vn, vf, vy, vx] = C[vn, vf, vy, vx] + T.if_then_else(1 <= vy + vp and vy + vp < 7 and 1 <= vx + vq and vx + vq < 7, A[vn, vc, vy + vp - 1, vx + vq - 1], T.float32(0)) * W[vf, vc, vp, vq]
        """,
        lambda a, w: _conv(a, w, pad=1),
    ),
    kernel(
        "conv_grouped",
        {"A": (1, 4, 6, 6), "W": (6, 2, 3, 3), "C": (1, 6, 4, 4)},
        """
        for n, f, y, x, c, p, q in T.grid(1, 6, 4, 4, 2, 3, 3):
            with T.block("C"):
                vn, vf, vy, vx, vc, vp, vq = T.axis.remap("SSSSRRR", [n, f, y, x, c, p, q])
                with T.init():
                    C[vn, vf, vy, vx] = T.float32(0)
                C[vn, vf, vy, vx] = C[vn, vf, vy, vx] + A[vn, vf // 3 * 2 + vc, vy + vp, vx + vq] * W[vf, vc, vp, vq]
        """,
        lambda a, w: _conv(a, w, groups=2),
        forms=("convolution",),
    ),
    kernel(
        "conv_depthwise",
        {"A": (1, 4, 6, 6), "W": (4, 1, 3, 3), "C": (1, 4, 4, 4)},
        """
        for n, f, y, x, p, q in T.grid(1, 4, 4, 4, 3, 3):
            with T.block("C"):
                vn, vf, vy, vx, vp, vq = T.axis.remap("SSSSRR", [n, f, y, x, p, q])
                with T.init():
                    C[vn, vf, vy, vx] = T.float32(0)
                C[vn, vf, vy, vx] = C[vn, vf, vy, vx] + A[vn, vf, vy + vp, vx + vq] * W[vf, 0, vp, vq]
        """,
        lambda a, w: _conv(a, w, groups=4),
    ),
    kernel(
        "conv_nhwc",
        {"A": (1, 6, 6, 3), "W": (3, 3, 3, 4), "C": (1, 4, 4, 4)},
        """
        for n, y, x, f, p, q, c in T.grid(1, 4, 4, 4, 3, 3, 3):
            with T.block("C"):
                vn, vy, vx, vf, vp, vq, vc = T.axis.remap("SSSSRRR", [n, y, x, f, p, q, c])
                with T.init():
                    C[vn, vy, vx, vf] = T.float32(0)
                C[vn, vy, vx, vf] = C[vn, vy, vx, vf] + A[vn, vy + vp, vx + vq, vc] * W[vp, vq, vc, vf]
        """,
        lambda a, w: _conv(a.transpose(0, 3, 1, 2), w.transpose(3, 2, 0, 1)).transpose(0, 2, 3, 1),
        forms=("convolution",),
    ),
    kernel(
        "conv_1d",
        {"A": (3, 20), "W": (5, 3, 4), "C": (5, 17)},
        """
        for f, x, c, q in T.grid(5, 17, 3, 4):
            with T.block("C"):
                vf, vx, vc, vq = T.axis.remap("SSRR", [f, x, c, q])
                with T.init():
                    C[vf, vx] = T.float32(0)
                C[vf, vx] = C[vf, vx] + A[vc, vx + vq] * W[vf, vc, vq]
        """,
        lambda a, w: np.einsum("cxq,fcq->fx", np.lib.stride_tricks.sliding_window_view(a, 4, 1), w),
        forms=("convolution",),
    ),
    kernel(
        "pool_max",
        {"A": (3, 9, 9), "C": (3, 4, 4)},
        """
        for c, y, x, p, q in T.grid(3, 4, 4, 3, 3):
            with T.block("C"):
                vc, vy, vx, vp, vq = T.axis.remap("SSSRR", [c, y, x, p, q])
                with T.init():
                    C[vc, vy, vx] = T.float32(-1e30)
                C[vc, vy, vx] = T.max(C[vc, vy, vx], A[vc, vy * 2 + vp, vx * 2 + vq])
        """,
        lambda a: np.lib.stride_tricks.sliding_window_view(a, (3, 3), (1, 2))[:, ::2, ::2].max(
            (3, 4)
        ),
        forms=("reduce_window",),
    ),
    kernel(
        "pool_blocks",
        {"A": (3, 8, 8), "C": (3, 4, 4)},
        """
        for c, y, x, p, q in T.grid(3, 4, 4, 2, 2):
            with T.block("C"):
                vc, vy, vx, vp, vq = T.axis.remap("SSSRR", [c, y, x, p, q])
                with T.init():
                    C[vc, vy, vx] = T.float32(0)
                C[vc, vy, vx] = C[vc, vy, vx] + A[vc, vy * 2 + vp, vx * 2 + vq]
        """,
        lambda a: a.reshape(3, 4, 2, 4, 2).sum((2, 4)),
    ),
    kernel(
        "pool_mean_padded",
        {"A": (7,), "C": (7,)},
        """
        S = T.alloc_buffer((7,))
        for x, q in T.grid(7, 3):
            with T.block("S"):
                vx, vq = T.axis.remap("SR", [x, q])
                with T.init():
                    S[vx] = T.float32(0)
                S[vx] = S[vx] + T.if_then_else(1 <= vx + vq and vx + vq < 8, A[vx + vq - 1], T.float32(0))
        for x in range(7):
            C[x] = S[x] / T.Cast("float32", T.min(x + 2, 7) - T.max(x - 1, 0))
        """,
        lambda a: np.array([a[max(i - 1, 0) : i + 2].mean() for i in range(7)], "float32"),
    ),
    kernel(
        "pool_data_window",
        {"A": (6, 9), "C": (3,)},
        """
        for x, q in T.grid(3, 4):
            with T.block("C"):
                vx, vq = T.axis.remap("SR", [x, q])
                with T.init():
                    C[vx] = T.float32(0)
                C[vx] = C[vx] + A[vx + vq, vx * 2 + vq]
        """,
        lambda a: np.array([sum(a[x + q, x * 2 + q] for q in range(4)) for x in range(3)]),
    ),
]
NORMS = [
    kernel(
        "softmax",
        {"A": (4, 6), "C": (4, 6)},
        """
        M = T.alloc_buffer((4,))
        S = T.alloc_buffer((4,))
        for i, k in T.grid(4, 6):
            with T.block("M"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    M[vi] = T.min_value("float32")
                M[vi] = T.max(M[vi], A[vi, vk])
        for i, k in T.grid(4, 6):
            with T.block("S"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    S[vi] = T.float32(0)
                S[vi] = S[vi] + T.exp(A[vi, vk] - M[vi])
        for i, k in T.grid(4, 6):
            with T.block("C"):
                vi, vk = T.axis.remap("SS", [i, k])
                C[vi, vk] = T.exp(A[vi, vk] - M[vi]) / S[vi]
        """,
        lambda a: np.exp(a) / np.exp(a).sum(1, keepdims=True),
    ),
    kernel(
        "softmax_one_nest",
        {"A": (4, 6), "C": (4, 6)},
        """
        for i in range(4):
            m = T.alloc_buffer((1,))
            s = T.alloc_buffer((1,))
            m[0] = T.float32(-1e30)
            s[0] = T.float32(0)
            for k in range(6):
                m[0] = T.max(m[0], A[i, k])
            for k in range(6):
                s[0] = s[0] + T.exp(A[i, k] - m[0])
            for k in range(6):
                C[i, k] = T.exp(A[i, k] - m[0]) / s[0]
        """,
        lambda a: np.exp(a) / np.exp(a).sum(1, keepdims=True),
    ),
    kernel(
        "layer_norm",
        {"A": (4, 6), "G": (6,), "B": (6,), "C": (4, 6)},
        """
        S = T.alloc_buffer((4,))
        Q = T.alloc_buffer((4,))
        for i, k in T.grid(4, 6):
            with T.block("sums"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    S[vi] = T.float32(0)
                    Q[vi] = T.float32(0)
                S[vi] = S[vi] + A[vi, vk]
                Q[vi] = Q[vi] + A[vi, vk] * A[vi, vk]
        for i, k in T.grid(4, 6):
            with T.block("C"):
                vi, vk = T.axis.remap("SS", [i, k])
                C[vi, vk] = (A[vi, vk] - S[vi] / T.float32(6)) * T.rsqrt(Q[vi] / T.float32(6) - S[vi] / T.float32(6) * (S[vi] / T.float32(6)) + T.float32(1e-5)) * G[vk] + B[vk]
        """,
        lambda a, g, b: (
            (a - a.mean(1, keepdims=True)) / np.sqrt(a.var(1, keepdims=True) + 1e-5) * g + b
        ),
        tolerance=1e-4,
    ),
    kernel(
        "rms_norm",
        {"A": (4, 6), "G": (6,), "C": (4, 6)},
        """
        Q = T.alloc_buffer((4,))
        for i, k in T.grid(4, 6):
            with T.block("Q"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    Q[vi] = T.float32(0)
                Q[vi] = Q[vi] + A[vi, vk] * A[vi, vk]
        for i, k in T.grid(4, 6):
            with T.block("C"):
                vi, vk = T.axis.remap("SS", [i, k])
                C[vi, vk] = A[vi, vk] * G[vk] / T.sqrt(Q[vi] / T.float32(6) + T.float32(1e-5))
        """,
        lambda a, g: a * g / np.sqrt((a * a).mean(1, keepdims=True) + 1e-5),
    ),
    kernel(
        "attention",
        {"Q": (5, 8), "K": (7, 8), "V": (7, 8), "C": (5, 8)},
        """
        S = T.alloc_buffer((5, 7))
        M = T.alloc_buffer((5,))
        D = T.alloc_buffer((5,))
        for i, j, k in T.grid(5, 7, 8):
            with T.block("S"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    S[vi, vj] = T.float32(0)
                S[vi, vj] = S[vi, vj] + Q[vi, vk] * K[vj, vk] * T.float32(0.353553)
        for i, j in T.grid(5, 7):
            with T.block("M"):
                vi, vj = T.axis.remap("SR", [i, j])
                with T.init():
                    M[vi] = T.float32(-1e30)
                M[vi] = T.max(M[vi], S[vi, vj])
        for i, j in T.grid(5, 7):
            with T.block("D"):
                vi, vj = T.axis.remap("SR", [i, j])
                with T.init():
                    D[vi] = T.float32(0)
                D[vi] = D[vi] + T.exp(S[vi, vj] - M[vi])
        for i, k, j in T.grid(5, 8, 7):
            with T.block("C"):
                vi, vk, vj = T.axis.remap("SSR", [i, k, j])
                with T.init():
                    C[vi, vk] = T.float32(0)
                C[vi, vk] = C[vi, vk] + T.exp(S[vi, vj] - M[vi]) / D[vi] * V[vj, vk]
        """,
        lambda q, k, v: _softmax(q @ k.T * np.float32(0.353553)) @ v,
        forms=("dot_general",),
        tolerance=1e-4,
    ),
]


def _softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


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


CASES = [*TOTALS, *PRODUCTS, *WINDOWS, *NORMS, *SCANS]
