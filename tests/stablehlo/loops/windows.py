# ruff: noqa: E501  (lines of kernels are as long as they are)
"""Kernels of windows: convolutions and pools."""

from __future__ import annotations

import numpy as np

from tests.stablehlo.loops.cases import Case, kernel


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


CASES = WINDOWS
