"""Kernels of threads, and what only sizes say."""

from __future__ import annotations

import numpy as np

from tests.stablehlo.loops.cases import Case, arrays, kernel, kernel_on, script

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
    kernel_on(
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

CASES = [*THREADS, *LOCK_STEP, *SIZES]
