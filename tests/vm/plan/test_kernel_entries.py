"""Loop-level functions that are built alone."""

from __future__ import annotations

import numpy as np
import pytest

import relax2xla
from relax2xla.errors import TVMError
from relax2xla.ir import IRModule
from relax2xla.script import from_source

ADD = """
from relax2xla.script import tir as T

@T.prim_func
def add(a: T.handle, b: T.handle, c: T.handle):
    T.func_attr({"global_symbol": "add"})
    n = T.int64()
    A = T.match_buffer(a, (n,), "float32")
    B = T.match_buffer(b, (n,), "float32")
    C = T.match_buffer(c, (n,), "float32")
    for i in range(n):
        C[i] = A[i] + B[i]
"""


@pytest.mark.parametrize("n", [3, 8])
def test_one_kernel(n: int) -> None:
    machine = relax2xla.VirtualMachine(relax2xla.build(from_source(ADD)), relax2xla.cpu())
    a, c = np.arange(n, dtype="float32"), np.zeros(n, "float32")
    np.testing.assert_array_equal(np.asarray(machine["add"](a, a, c)), a + a)
    assert not c.any()


def test_a_module_of_kernels() -> None:
    func = from_source(ADD)
    mod = IRModule({"one": func, "two": func.with_attr("global_symbol", "two")})
    machine = relax2xla.VirtualMachine(relax2xla.build(mod), relax2xla.cpu())
    a = np.ones(4, "float32")
    for name in ("one", "two"):
        np.testing.assert_array_equal(np.asarray(machine[name](a, a, a)), a * 2)


def test_sizes_of_any_integer_dtype() -> None:
    text = """
from relax2xla.script import tir as T

@T.prim_func
def twice(a: T.handle, c: T.handle):
    n = T.int32()
    A = T.match_buffer(a, (n, 4), "float32")
    C = T.match_buffer(c, (n * 2, 4), "float32")
    for i, j in T.grid(n * 2, 4):
        C[i, j] = A[i // 2, j]
"""
    machine = relax2xla.VirtualMachine(relax2xla.build(from_source(text)), relax2xla.cpu())
    a = np.arange(12, dtype="float32").reshape(3, 4)
    got = machine["twice"](a, np.zeros((6, 4), "float32"))
    np.testing.assert_array_equal(np.asarray(got), np.repeat(a, 2, 0))


def test_numbers_are_refused() -> None:
    text = """
from relax2xla.script import tir as T

@T.prim_func
def scale(A: T.Buffer((4,), "float32"), k: T.int32):
    for i in range(4):
        A[i] = A[i] * T.Cast("float32", k)
"""
    with pytest.raises(TVMError, match=r"takes numbers beside buffers \(k\)"):
        relax2xla.build(from_source(text))


def test_nothing_written_is_refused() -> None:
    text = """
from relax2xla.script import tir as T

@T.prim_func
def idle(A: T.Buffer((4,), "float32")):
    T.evaluate(0)
"""
    with pytest.raises(TVMError, match="writes none of its buffers"):
        relax2xla.build(from_source(text))
