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


def test_numbers() -> None:
    text = """
from relax2xla.script import tir as T

@T.prim_func
def scale(A: T.Buffer((4,), "float32"), k: T.int32, x: T.float32):
    for i in range(k):
        A[i] = A[i] * T.Cast("float32", k) + x
"""
    machine = relax2xla.VirtualMachine(relax2xla.build(from_source(text)), relax2xla.cpu())
    got = machine["scale"](np.ones(4, "float32"), 3, 0.5)
    np.testing.assert_array_equal(np.asarray(got), [3.5, 3.5, 3.5, 1])


@pytest.mark.parametrize(
    ("text", "args", "expected"),
    [
        ("def f(x: T.int8, y: T.int8) -> T.int8:\n    return x * y", (100, 2), -56),
        ("def f() -> T.int32:\n    return T.int32(10)", (), 10),
        (
            'def f(A: T.Buffer((2,), "float32")) -> T.float32:\n    return A[0] + A[1]',
            (np.array([1, 2], "float32"),),
            3,
        ),
    ],
)
def test_what_a_kernel_returns(text: str, args: tuple[object, ...], expected: int) -> None:
    func = from_source(f"from relax2xla.script import tir as T\n\n@T.prim_func\n{text}\n")
    machine = relax2xla.VirtualMachine(relax2xla.build(func), relax2xla.cpu())
    assert np.asarray(machine["f"](*args)) == expected


BRANCHES = """
from relax2xla.script import tir as T

@T.prim_func
def f(x: T.int32, A: T.Buffer((1,), "int32")) -> T.int32:
    A[0] = 1
    y: T.int32 = x * 2
    if y < 0:
        A[0] = 2
        if y < -8:
            return -y
        A[0] = 3
    else:
        if y == 0:
            return 7
    A[0] = A[0] + 10
    return y
"""


@pytest.mark.parametrize(
    ("x", "result", "written"), [(-5, 10, 2), (-1, -2, 13), (0, 7, 1), (4, 8, 11)]
)
def test_a_kernel_that_returns_in_several_places(x: int, result: int, written: int) -> None:
    machine = relax2xla.VirtualMachine(relax2xla.build(from_source(BRANCHES)), relax2xla.cpu())
    stored, returned = machine["f"](x, np.zeros(1, "int32"))
    assert (np.asarray(stored)[0], np.asarray(returned)) == (written, result)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            'def f(a: T.handle, n: T.int32):\n    A = T.match_buffer(a, (n,), "float32")\n'
            "    for i in range(n):\n        A[i] = T.float32(0)",
            r"takes numbers beside buffers whose shapes they are \(n\)",
        ),
        (
            "def f(x: T.int32) -> T.int32:\n"
            "    for i in range(3):\n        return x\n    return -x",
            r"^line 6: f returns before its end within a loop",
        ),
        (
            "def f(x: T.int32) -> T.int32:\n    if x > 0:\n        return x",
            "f returns a value in some cases only",
        ),
    ],
)
def test_what_is_refused(text: str, message: str) -> None:
    func = from_source(f"from relax2xla.script import tir as T\n\n@T.prim_func\n{text}\n")
    with pytest.raises(TVMError, match=message):
        relax2xla.build(func)


IDLE = """
from relax2xla.script import tir as T

@T.prim_func
def idle(A: T.Buffer((4,), "float32")):
    T.evaluate(0)
"""


@pytest.mark.parametrize(
    "body", ["T.evaluate(0)", "pass", "for i in range(4):\n        T.evaluate(0)"]
)
def test_nothing_is_done(body: str) -> None:
    text = IDLE.replace("T.evaluate(0)", body)
    machine = relax2xla.VirtualMachine(relax2xla.build(from_source(text)), relax2xla.cpu())
    assert machine["idle"](np.ones(4, "float32")) == ()


def test_nothing_written_is_refused() -> None:
    text = IDLE.replace("T.evaluate(0)", "B = T.alloc_buffer((4,))\n    B[0] = A[0]")
    with pytest.raises(TVMError, match=r"line 7: .*writes none of its buffers"):
        relax2xla.build(from_source(text))
    text = IDLE.replace("T.evaluate(0)", "T.evaluate(T.ptx_wait_group(0))")
    with pytest.raises(TVMError, match=r"line 6: .* it calls tir\.ptx_wait_group for its effect"):
        relax2xla.build(from_source(text))
