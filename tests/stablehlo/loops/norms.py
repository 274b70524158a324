# ruff: noqa: E501  (lines of kernels are as long as they are)
"""Kernels of several reductions: softmax, norms, attention."""

from __future__ import annotations

import numpy as np

from tests.stablehlo.loops.cases import kernel

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


CASES = NORMS
