"""Values that threads of a block combine: beside numpy and the interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from relax2xla.errors import LegalizeError, UnsupportedError
from relax2xla.script import from_source
from relax2xla.tir.kernel.interpret import interpret
from tests.stablehlo.loops.test_kernels import run

# Each thread adds up every fourth element of its row, and all get what they made of that.
ROWS = """@T.prim_func
def main(X: T.Buffer((3, 10), "float32"), Y: T.Buffer((3, 4), "float32"),
         N: T.Buffer((3,), "int32")):
    with T.block("kernel"):
        part = T.alloc_buffer((1,), "float32", scope="local")
        count = T.alloc_buffer((1,), "int32", scope="local")
        whole = T.alloc_buffer((1,), "float32", scope="local")
        counted = T.alloc_buffer((1,), "int32", scope="local")
        for bx in T.thread_binding(3, thread="blockIdx.x"):
            for tx in T.thread_binding(4, thread="threadIdx.x"):
                with T.block("row"):
                    b, t = T.axis.remap("SS", [bx, tx])
                    part[0] = T.float32(START)
                    count[0] = 0
                    for i in range(3):
                        if i * 4 + t < 10:
                            part[0] = COMBINE(part[0], X[b, i * 4 + t])
                            count[0] += 1
                    with T.block("all"):
                        T.attr(T.comm_reducer(lambda a, b: COMBINE(a, b), [T.float32(START)]),
                            "reduce_scope", T.reinterpret("handle", T.uint64(0)))
                        T.tvm_thread_allreduce(T.uint32(1), part[0], WHERE, whole[0], t,
                            dtype="handle")
                    with T.block("count"):
                        T.attr(T.comm_reducer(lambda a, b: a + b, [0]),
                            "reduce_scope", T.reinterpret("handle", T.uint64(0)))
                        T.tvm_thread_allreduce(T.uint32(1), count[0], True, counted[0], t,
                            dtype="handle")
                    Y[b, t] = whole[0] + T.Cast("float32", t)
                    if t == 0:
                        N[b] = counted[0]
"""
# A loop ends where threads agree; the threads of one axis meet, those of the other do not.
UNTIL = """@T.prim_func
def main(X: T.Buffer((2, 4), "float32"), Y: T.Buffer((2, 4), "float32"),
         N: T.Buffer((2,), "int32")):
    with T.block("kernel"):
        x = T.alloc_buffer((1,), "float32", scope="local")
        total = T.alloc_buffer((1,), "float32", scope="local")
        steps = T.alloc_buffer((1,), "int32", scope="local")
        for ty in T.thread_binding(2, thread="threadIdx.y"):
            for tx in T.thread_binding(4, thread="threadIdx.x"):
                with T.block("row"):
                    r, t = T.axis.remap("SS", [ty, tx])
                    x[0] = X[r, t]
                    total[0] = T.float32(0)
                    steps[0] = 0
                    while total[0] < T.float32(100):
                        x[0] = x[0] * T.float32(2)
                        with T.block("all"):
                            T.attr(T.comm_reducer(lambda a, b: a + b, [T.float32(0)]),
                                "reduce_scope", T.reinterpret("handle", T.uint64(0)))
                            T.tvm_thread_allreduce(T.uint32(1), x[0], True, total[0], t,
                                dtype="handle")
                        steps[0] += 1
                    Y[r, t] = x[0]
                    if t == 3:
                        N[r] = steps[0]
"""


def both(text: str, arrays: list[Any]) -> list[list[np.ndarray]]:
    """The written buffers by rows, and by the interpreter."""
    func: Any = from_source("from relax2xla.script import tir as T\n" + text)
    made, lowered = run(text, arrays)
    assert lowered.forms["allreduce"] >= 1
    copies = [np.array(a) for a in arrays]
    interpret(func, *copies)
    return [made, copies[1:]]


@pytest.mark.parametrize(
    ("combine", "start", "where", "of"),
    [
        ("T.max", -1e9, "True", lambda x: x.max(1)),
        ("T.min", 1e9, "t != 1", lambda x: x[:, np.arange(10) % 4 != 1].min(1)),
        ("T.max", 0, "t > 4", lambda x: x[:, 0] * 0),
    ],
)
def test_what_threads_make_of_a_value_of_each(
    combine: str, start: float, where: str, of: Any
) -> None:
    x = np.random.default_rng(0).normal(size=(3, 10)).astype(np.float32)
    text = ROWS.replace("COMBINE", combine).replace("START", str(start)).replace("WHERE", where)
    args = [x, np.zeros((3, 4), np.float32), np.zeros(3, np.int32)]
    for y, n in both(text, args):
        np.testing.assert_array_equal(n, [10, 10, 10])
        np.testing.assert_array_equal(y, of(x)[:, None] + np.arange(4, dtype=np.float32))


def test_a_loop_that_ends_where_threads_agree() -> None:
    x = np.array([[1, 2, 3, 4], [10, 0, 9, 20]], np.float32)
    args = [x, np.zeros((2, 4), np.float32), np.zeros(2, np.int32)]
    for y, n in both(UNTIL, args):
        np.testing.assert_array_equal(n, [4, 2])
        np.testing.assert_array_equal(y, x * np.array([[16], [4]], np.float32))


def test_what_is_refused() -> None:
    """Other reducers than sums, products and extrema; blocks, which do not meet."""
    args = [np.zeros((3, 10), np.float32), np.zeros((3, 4), np.float32), np.zeros(3, np.int32)]
    text = ROWS.replace("START", "0").replace("WHERE", "True")
    other = text.replace("COMBINE(a, b)", "a - b").replace("COMBINE", "T.max")
    with pytest.raises(LegalizeError, match="tvm_thread_allreduce for its effect cannot"):
        run(other, args)
    blocks = text.replace("COMBINE", "T.max").replace("whole[0], t,", "whole[0], b,")
    with pytest.raises(LegalizeError, match=r"threads of one block \(threadIdx\); got b"):
        run(blocks, args)
    func: Any = from_source("from relax2xla.script import tir as T\n" + blocks)
    with pytest.raises(UnsupportedError, match="over threads alone"):
        interpret(func, *args)
