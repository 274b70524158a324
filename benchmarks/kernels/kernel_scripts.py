"""Kernels of the benchmark ``kernels``: TVMScript, the same by hand in jax.numpy, arguments.

The scripts say what is computed, loop by loop, without a schedule: what ``te`` makes of TVM's own
operators, and what kernels of language models look like.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


@dataclass(frozen=True)
class Kernel:
    """A kernel, whose last parameter is its result.

    ``goal``: at most so many times as long as ``by_hand`` is what it should take.
    """

    name: str
    parameters: Sequence[tuple[str, tuple[int, ...], str]]
    body: str
    by_hand: Callable[..., Any]
    goal: float = 1.1
    integers: tuple[int, int] = (0, 2)

    @property
    def script(self) -> str:
        """The text of the kernel, without imports."""
        given = ", ".join(f'{n}: T.Buffer({s}, "{d}")' for n, s, d in self.parameters)
        body = textwrap.indent(textwrap.dedent(self.body).strip("\n"), "    ")
        return f"@T.prim_func\ndef kernel({given}):\n{body}\n"

    def arguments(self) -> list[np.ndarray]:
        """Arrays for all parameters but the last."""
        rng = np.random.default_rng(5)
        made: list[np.ndarray] = []
        for _, shape, dtype in self.parameters[:-1]:
            if dtype == "uint32":
                made.append(rng.integers(0, 1 << 32, shape, dtype=dtype))
            elif "int" in dtype:
                made.append(rng.integers(*self.integers, shape, dtype=dtype))
            else:
                made.append(rng.standard_normal(shape).astype(dtype))
        return made


def _matmul(a: Any, b: Any) -> Any:
    return a @ b


def _conv(x: Any, w: Any) -> Any:
    return jax.lax.conv_general_dilated(x, w, (1, 1), ((1, 1), (1, 1)))


def _softmax(x: Any) -> Any:
    e = jnp.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def _layer_norm(x: Any, g: Any, b: Any) -> Any:
    mean = x.mean(-1, keepdims=True)
    variance = (x * x).mean(-1, keepdims=True) - mean * mean
    return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * g + b


def _rope(x: Any, cos: Any, sin: Any) -> Any:
    one, two = jnp.split(x, 2, -1)
    turned = jnp.concatenate([-two, one], -1)
    return x * cos[:, None] + turned * sin[:, None]


def _dequantise(w: Any, s: Any) -> Any:
    bits = (w[:, :, None] >> (4 * jnp.arange(8, dtype=jnp.uint32))) & 15
    q = (bits.astype(jnp.float32) - 7).reshape(w.shape[0], -1)
    return q * jnp.repeat(s, 32, axis=1)


def _gather(table: Any, i: Any) -> Any:
    return table[i]


def _paged_attention(q: Any, pages: Any, table: Any, length: Any) -> Any:
    n, h, d = q.shape
    held = pages[table]  # sequence, page, k or v, head, place, feature
    k, v = (jnp.moveaxis(held[:, :, i], 2, 1).reshape(n, h, -1, d) for i in (0, 1))
    s = jnp.einsum("nhd,nhtd->nht", q, k) * (1 / np.sqrt(d)).astype(np.float32)
    s = jnp.where(jnp.arange(s.shape[-1]) < length[:, None, None], s, -5e4)
    return jnp.einsum("nht,nhtd->nhd", jax.nn.softmax(s, -1), v)


def _cumsum(x: Any) -> Any:
    return jnp.cumsum(x, axis=1)


def _transpose_add(a: Any, b: Any) -> Any:
    return a.T + b


_F = "float32"

KERNELS = (
    Kernel(
        "matmul 512x512x512",
        (("A", (512, 512), _F), ("B", (512, 512), _F), ("C", (512, 512), _F)),
        """
        for i, j, k in T.grid(512, 512, 512):
            with T.block("product"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C[vi, vj] = T.float32(0)
                C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
        """,
        _matmul,
    ),
    Kernel(
        "convolution 3x3, 64 channels, 56x56",
        (("X", (1, 64, 56, 56), _F), ("W", (64, 64, 3, 3), _F), ("Y", (1, 64, 56, 56), _F)),
        """
        P = T.alloc_buffer((1, 64, 58, 58))
        for n, c, y, x in T.grid(1, 64, 58, 58):
            with T.block("pad"):
                vn, vc, vy, vx = T.axis.remap("SSSS", [n, c, y, x])
                P[vn, vc, vy, vx] = T.if_then_else(
                    1 <= vy and vy < 57 and 1 <= vx and vx < 57,
                    X[vn, vc, vy - 1, vx - 1], T.float32(0))
        for n, o, y, x, c, dy, dx in T.grid(1, 64, 56, 56, 64, 3, 3):
            with T.block("conv"):
                vn, vo, vy, vx, vc, vdy, vdx = T.axis.remap("SSSSRRR", [n, o, y, x, c, dy, dx])
                with T.init():
                    Y[vn, vo, vy, vx] = T.float32(0)
                Y[vn, vo, vy, vx] = (
                    Y[vn, vo, vy, vx] + P[vn, vc, vy + vdy, vx + vdx] * W[vo, vc, vdy, vdx])
        """,
        _conv,
    ),
    Kernel(
        "softmax 512x1024",
        (("X", (512, 1024), _F), ("Y", (512, 1024), _F)),
        """
        M = T.alloc_buffer((512,))
        E = T.alloc_buffer((512, 1024))
        S = T.alloc_buffer((512,))
        for i, j in T.grid(512, 1024):
            with T.block("largest"):
                vi, vj = T.axis.remap("SR", [i, j])
                with T.init():
                    M[vi] = T.min_value("float32")
                M[vi] = T.max(M[vi], X[vi, vj])
        for i, j in T.grid(512, 1024):
            with T.block("exp"):
                vi, vj = T.axis.remap("SS", [i, j])
                E[vi, vj] = T.exp(X[vi, vj] - M[vi])
        for i, j in T.grid(512, 1024):
            with T.block("sum"):
                vi, vj = T.axis.remap("SR", [i, j])
                with T.init():
                    S[vi] = T.float32(0)
                S[vi] = S[vi] + E[vi, vj]
        for i, j in T.grid(512, 1024):
            with T.block("norm"):
                vi, vj = T.axis.remap("SS", [i, j])
                Y[vi, vj] = E[vi, vj] / S[vi]
        """,
        _softmax,
    ),
    Kernel(
        "layer norm 512x1024",
        (("X", (512, 1024), _F), ("G", (1024,), _F), ("B", (1024,), _F), ("Y", (512, 1024), _F)),
        """
        S = T.alloc_buffer((512,))
        Q = T.alloc_buffer((512,))
        for i, j in T.grid(512, 1024):
            with T.block("moments"):
                vi, vj = T.axis.remap("SR", [i, j])
                with T.init():
                    S[vi] = T.float32(0)
                    Q[vi] = T.float32(0)
                S[vi] = S[vi] + X[vi, vj]
                Q[vi] = Q[vi] + X[vi, vj] * X[vi, vj]
        for i, j in T.grid(512, 1024):
            with T.block("norm"):
                vi, vj = T.axis.remap("SS", [i, j])
                Y[vi, vj] = (X[vi, vj] - S[vi] / T.float32(1024)) * T.rsqrt(
                    Q[vi] / T.float32(1024)
                    - S[vi] / T.float32(1024) * (S[vi] / T.float32(1024))
                    + T.float32(1e-5)) * G[vj] + B[vj]
        """,
        _layer_norm,
    ),
    Kernel(
        "rope 256 positions, 32 heads of 128",
        (
            ("X", (256, 32, 128), _F),
            ("C", (256, 128), _F),
            ("S", (256, 128), _F),
            ("Y", (256, 32, 128), _F),
        ),
        """
        for s, h, d in T.grid(256, 32, 128):
            with T.block("rope"):
                vs, vh, vd = T.axis.remap("SSS", [s, h, d])
                Y[vs, vh, vd] = C[vs, vd] * X[vs, vh, vd] + S[vs, vd] * T.if_then_else(
                    vd < 64, X[vs, vh, vd + 64] * T.float32(-1), X[vs, vh, vd - 64])
        """,
        _rope,
    ),
    Kernel(
        "4-bit weights 2048x2048 to float32",
        (("W", (2048, 256), "uint32"), ("S", (2048, 64), _F), ("Y", (2048, 2048), _F)),
        """
        for i, j in T.grid(2048, 2048):
            with T.block("dequantise"):
                vi, vj = T.axis.remap("SS", [i, j])
                Y[vi, vj] = (T.Cast("float32", T.bitwise_and(
                    T.shift_right(W[vi, vj // 8], T.Cast("uint32", vj % 8 * 4)), T.uint32(15)))
                    - T.float32(7)) * S[vi, vj // 32]
        """,
        _dequantise,
    ),
    Kernel(
        "gather 512 rows of 32000x512",
        (("E", (32000, 512), _F), ("I", (512,), "int32"), ("Y", (512, 512), _F)),
        """
        for i, j in T.grid(512, 512):
            with T.block("take"):
                vi, vj = T.axis.remap("SS", [i, j])
                Y[vi, vj] = E[I[vi], vj]
        """,
        _gather,
        1.3,
        (0, 32000),
    ),
    Kernel(
        "paged attention, 4 sequences of up to 512, 16 heads of 64",
        (
            ("Q", (4, 16, 64), _F),
            ("P", (128, 2, 16, 16, 64), _F),
            ("I", (4, 32), "int32"),
            ("L", (4,), "int32"),
            ("Y", (4, 16, 64), _F),
        ),
        """
        S = T.alloc_buffer((4, 16, 512))
        M = T.alloc_buffer((4, 16))
        E = T.alloc_buffer((4, 16, 512))
        D = T.alloc_buffer((4, 16))
        for n, h, t, d in T.grid(4, 16, 512, 64):
            with T.block("scores"):
                vn, vh, vt, vd = T.axis.remap("SSSR", [n, h, t, d])
                with T.init():
                    S[vn, vh, vt] = T.float32(0)
                S[vn, vh, vt] = (
                    S[vn, vh, vt] + Q[vn, vh, vd] * P[I[vn, vt // 16], 0, vh, vt % 16, vd])
        for n, h, t in T.grid(4, 16, 512):
            with T.block("mask"):
                vn, vh, vt = T.axis.remap("SSS", [n, h, t])
                S[vn, vh, vt] = T.if_then_else(
                    vt < L[vn], S[vn, vh, vt] * T.float32(0.125), T.float32(-50000))
        for n, h, t in T.grid(4, 16, 512):
            with T.block("largest"):
                vn, vh, vt = T.axis.remap("SSR", [n, h, t])
                with T.init():
                    M[vn, vh] = T.min_value("float32")
                M[vn, vh] = T.max(M[vn, vh], S[vn, vh, vt])
        for n, h, t in T.grid(4, 16, 512):
            with T.block("exp"):
                vn, vh, vt = T.axis.remap("SSS", [n, h, t])
                E[vn, vh, vt] = T.exp(S[vn, vh, vt] - M[vn, vh])
        for n, h, t in T.grid(4, 16, 512):
            with T.block("sum"):
                vn, vh, vt = T.axis.remap("SSR", [n, h, t])
                with T.init():
                    D[vn, vh] = T.float32(0)
                D[vn, vh] = D[vn, vh] + E[vn, vh, vt]
        for n, h, d, t in T.grid(4, 16, 64, 512):
            with T.block("values"):
                vn, vh, vd, vt = T.axis.remap("SSSR", [n, h, d, t])
                with T.init():
                    Y[vn, vh, vd] = T.float32(0)
                Y[vn, vh, vd] = Y[vn, vh, vd] + (
                    E[vn, vh, vt] / D[vn, vh] * P[I[vn, vt // 16], 1, vh, vt % 16, vd])
        """,
        _paged_attention,
        1.3,
        (1, 128),
    ),
    Kernel(
        "cumsum 256x2048",
        (("X", (256, 2048), _F), ("Y", (256, 2048), _F)),
        """
        for i in range(256):
            for j in range(2048):
                if j == 0:
                    Y[i, 0] = X[i, 0]
                else:
                    Y[i, j] = Y[i, j - 1] + X[i, j]
        """,
        _cumsum,
    ),
    Kernel(
        "transpose and add 1024x1024",
        (("A", (1024, 1024), _F), ("B", (1024, 1024), _F), ("Y", (1024, 1024), _F)),
        """
        for i, j in T.grid(1024, 1024):
            with T.block("add"):
                vi, vj = T.axis.remap("SS", [i, j])
                Y[vi, vj] = A[vj, vi] + B[vi, vj]
        """,
        _transpose_add,
    ),
)
