"""The interpreter of loop-level functions, against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relax2xla import tir
from relax2xla.errors import AssertError, BudgetError, RunError, UnsupportedError
from relax2xla.script import from_source
from relax2xla.tir.kernel.interpret import interpret


def parse(text: str) -> tir.PrimFunc:
    made = from_source(text)
    assert isinstance(made, tir.PrimFunc)
    return made


def vectors(*lines: str, dtype: str = "float32", n: int = 8) -> tir.PrimFunc:
    head = f'@T.prim_func\ndef f(A: T.Buffer(({n},), "{dtype}"), B: T.Buffer(({n},), "{dtype}")):\n'
    return parse(head + "\n".join("    " + line for line in lines))


def run(func: tir.PrimFunc, a: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    b = np.zeros_like(a)
    interpret(func, a, b)
    return b


def test_matrix_product_with_symbols() -> None:
    func = parse("""
@T.prim_func
def mm(a: T.handle, b: T.handle, c: T.handle):
    n, m, k = T.int64(), T.int64(), T.int64()
    A = T.match_buffer(a, (n, k))
    B = T.match_buffer(b, (k, m))
    C = T.match_buffer(c, (n, m))
    for i, j, l in T.grid(n, m, k):
        with T.block("mm"):
            vi, vj, vl = T.axis.remap("SSR", [i, j, l])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vl] * B[vl, vj]
""")
    rng = np.random.default_rng(0)
    a, b = rng.random((3, 4), np.float32), rng.random((4, 5), np.float32)
    c = np.full((3, 5), 9, np.float32)
    interpret(func, a, b, c)
    np.testing.assert_allclose(c, a @ b, rtol=1e-6)
    with pytest.raises(RunError, match="axis 0 of B is 5; expected k = 4"):
        interpret(func, a, np.zeros((5, 5), np.float32), c)


def test_threads_run_in_lock_step() -> None:
    func = parse("""
@T.prim_func
def f(A: T.Buffer((4, 8), "float32"), B: T.Buffer((4,), "float32")):
    S = T.alloc_buffer((8,), scope="shared")
    L = T.alloc_buffer((1,), scope="local")
    for bx in T.thread_binding(4, thread="blockIdx.x"):
        for tx in T.thread_binding(8, thread="threadIdx.x"):
            L[0] = A[bx, tx]
            S[7 - tx] = L[0]
            L[0] = L[0] + S[tx]
            S[tx] = L[0]
            for s in range(3):
                if tx < T.shift_right(4, s):
                    S[tx] = S[tx] + S[tx + T.shift_right(4, s)]
            if tx == 0:
                B[bx] = S[0]
""")
    a = np.random.default_rng(1).random((4, 8), np.float32)
    b = np.zeros(4, np.float32)
    interpret(func, a, b)
    np.testing.assert_allclose(b, 2 * a.sum(1), rtol=1e-6)


def test_integers_wrap_and_divide_as_their_dtype_says() -> None:
    a = np.array([-128, -7, -1, 0, 1, 7, 100, 127], np.int8)
    lines = ["for i in range(8):", "    B[i] = A[i] * T.int8(3)"]
    np.testing.assert_array_equal(run(vectors(*lines, dtype="int8"), a), a * np.int8(3))
    for text, expected in (
        ("T.floordiv(A[i], T.int8(2))", a // 2),
        ("T.truncdiv(A[i], T.int8(2))", np.trunc(a / 2)),
        ("T.floormod(A[i], T.int8(3))", a % 3),
        ("T.truncmod(A[i], T.int8(3))", np.fmod(a, 3)),
        ("T.shift_right(A[i], T.int8(1))", a >> 1),
        ("T.bitwise_xor(A[i], T.int8(5))", a ^ 5),
        ('T.Cast("int8", T.popcount(A[i]))', [bin(x & 255).count("1") for x in a.tolist()]),
        ("T.max(A[i], T.int8(3))", np.maximum(a, 3)),
        ("T.Select(A[i] > T.int8(0), A[i], T.int8(0))", np.maximum(a, 0)),
    ):
        found = run(vectors("for i in range(8):", f"    B[i] = {text}", dtype="int8"), a)
        np.testing.assert_array_equal(found, np.asarray(expected).astype(np.int8), text)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "bfloat16"])
def test_floats_round_at_every_step(dtype: str) -> None:
    kind = tir.node.numpy_dtype(dtype)
    a = np.linspace(0.1, 2, 8).astype(kind)
    found = run(vectors("for i in range(8):", "    B[i] = A[i] * A[i] + A[i]", dtype=dtype), a)
    np.testing.assert_array_equal(found, (a * a).astype(kind) + a)
    for name, compute in (("exp", np.exp), ("sqrt", np.sqrt), ("tanh", np.tanh)):
        found = run(vectors("for i in range(8):", f"    B[i] = T.{name}(A[i])", dtype=dtype), a)
        np.testing.assert_array_equal(found, compute(a).astype(kind))


def test_guards_vectors_and_views() -> None:
    a = np.arange(8, dtype=np.float32)
    shifted = vectors(
        "for i in range(8):", "    B[i] = T.if_then_else(i < 6, A[i + 2], T.float32(-1))"
    )
    np.testing.assert_array_equal(run(shifted, a), [2, 3, 4, 5, 6, 7, -1, -1])
    lanes = vectors("B[0:8:2] = A[0:4] + T.Broadcast(T.float32(1), 4)", "B[1:8:2] = A[4:8]")
    np.testing.assert_array_equal(run(lanes, a), [1, 4, 2, 5, 3, 6, 4, 7])
    view = vectors(
        "C = T.decl_buffer((2, 3), data=A.data, strides=(4, 1), elem_offset=1)",
        "for i, j in T.grid(2, 3):",
        "    B[i * 3 + j] = C[i, j]",
    )
    np.testing.assert_array_equal(run(view, a), [1, 2, 3, 5, 6, 7, 0, 0])


def test_returns_calls_and_packed_functions() -> None:
    func = parse("""
@T.prim_func
def f(n: T.int32) -> T.int32:
    i = T.decl_buffer((1,), "int32")
    i[0] = 0
    while i[0] * i[0] < n:
        i[0] = i[0] + 1
    T.call_extern("int32", "seen", i[0])
    return i[0]
""")
    seen: list[int] = []
    assert interpret(func, 50, packed={"seen": seen.append}) == 8
    assert seen == [8]
    with pytest.raises(RunError, match="'seen'"):
        interpret(func, 50)


def test_halves_round_to_even() -> None:
    func = vectors("for i in range(8):", "    B[i] = T.round(A[i])")
    a = np.arange(8, dtype="float32") - 3.5
    np.testing.assert_array_equal(run(func, a), np.rint(a))


@pytest.mark.parametrize("count", [-1, 32])
def test_a_shift_by_no_number_of_bits_has_no_value(count: int) -> None:
    func = vectors("for i in range(8):", "    B[i] = T.shift_left(A[0], A[i])", dtype="int32")
    with pytest.raises(RunError, match=f"an integer of 32 bits is shifted by {count}"):
        run(func, np.full(8, count, "int32"))


def test_errors() -> None:
    a = np.zeros(8, np.float32)
    with pytest.raises(RunError, match=r"A\[8\] is outside of the shape"):
        run(vectors("for i in range(9):", "    B[0] = A[i]"), a)
    endless = vectors("while A[0] < T.float32(1):", "    B[0] = A[0]")
    with pytest.raises(BudgetError, match="line 3 does not seem to end"):
        interpret(endless, a, a.copy(), max_steps=200)
    with pytest.raises(AssertError, match="line 3: too small"):
        run(vectors('assert A[0] > T.float32(1), "too small"', "B[0] = A[0]"), a)
    with pytest.raises(RunError, match="holds float32; got float64"):
        run(vectors("B[0] = A[0]"), a.astype(np.float64))
    with pytest.raises(UnsupportedError, match="kept as text"):
        run(vectors("B[0] = T.Shuffle([A[0]], [0])"), a)
    with pytest.raises(UnsupportedError, match="tvm_warp_shuffle"):
        run(vectors("B[0] = T.tvm_warp_shuffle(1, A[0], 0, 32, 32)"), a)


EXPRS = st.recursive(
    st.sampled_from(["i", "j", "A[i]", "A[j]"]) | st.integers(-9, 9).map(lambda n: f"T.int32({n})"),
    lambda inner: st.tuples(
        st.sampled_from(["{} + {}", "{} - {}", "{} * {}", "T.max({}, {})", "T.min({}, {})"]),
        inner,
        inner,
    ).map(lambda t: "(" + t[0].format(t[1], t[2]) + ")"),
    max_leaves=8,
)


@settings(max_examples=60, deadline=None)
@given(EXPRS, st.integers(0, 2**32 - 1))
def test_random_kernels_are_what_numpy_says(text: str, seed: int) -> None:
    func = vectors(
        "for i, j in T.grid(8, 8):",
        '    with T.block("b"):',
        '        vi, vj = T.axis.remap("SR", [i, j])',
        "        with T.init():",
        "            B[vi] = 0",
        f"        B[vi] = B[vi] + {text.replace('i', 'vi').replace('j', 'vj')}".replace(
            "T.vint32", "T.int32"
        ).replace("mvin", "min"),
        dtype="int32",
    )
    a = np.random.default_rng(seed).integers(-50, 50, 8, np.int32)
    i, j = np.meshgrid(np.arange(8, dtype=np.int32), np.arange(8, dtype=np.int32), indexing="ij")
    names = {"i": i, "j": j, "A": a, "T": _Numpy}
    expected = np.broadcast_to(eval(text, names), (8, 8)).sum(1, dtype=np.int32)
    np.testing.assert_array_equal(run(func, a), expected)
    again = from_source(func.script())
    assert isinstance(again, tir.PrimFunc)
    np.testing.assert_array_equal(run(again, a), expected)


class _Numpy:
    int32 = np.int32
    max = np.maximum
    min = np.minimum
