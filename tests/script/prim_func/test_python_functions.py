"""Functions of Python that a script calls: they get expressions and buffers, and may use ``T``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relax2xla as rx
from relax2xla import tir
from relax2xla.errors import DiagnosticError
from relax2xla.script import from_source
from relax2xla.script import tir as T
from relax2xla.stablehlo.loops import lower
from relax2xla.tir.kernel.interpret import Interpreter


def insert(best: Any, places: Any, value: Any, place: Any, count: int) -> None:
    """``value`` into ``count`` numbers that fall."""
    ifs = [T.If(value > best[i]) for i in range(count)]
    thens = [T.Then() for _ in range(count)]
    elses = [T.Else() for _ in range(count - 1)]
    for i in range(count):
        ifs[i].__enter__()
        with thens[i]:
            for j in range(count - 1, i, -1):
                T.buffer_store(best, best[j - 1], indices=[j])
                T.buffer_store(places, places[j - 1], indices=[j])
            T.buffer_store(best, value, indices=[i])
            T.buffer_store(places, place, indices=[i])
        if i != count - 1:
            elses[i].__enter__()
    for i in range(count - 1, -1, -1):
        if i != count - 1:
            elses[i].__exit__(None, None, None)
        ifs[i].__exit__(None, None, None)


def start(best: Any, count: int) -> None:
    for i in range(count):
        T.buffer_store(best, T.min_value("float32"), indices=[i])


def total(best: Any, count: int) -> Any:
    found = T.exp(best[0])
    for i in range(1, count):
        found = found + T.exp(best[i])
    return found


def largest(count: int, size: int) -> tir.PrimFunc:
    """The largest of each row by threads, as shares of their exponentials, and their places."""

    @T.prim_func(private=True)
    def func(var_x: T.handle, var_out: T.handle, var_places: T.handle):
        n = T.SizeVar("rows", "int64")
        x = T.match_buffer(var_x, (n, size), "float32")
        out = T.match_buffer(var_out, (n, count), "float32")
        places = T.match_buffer(var_places, (n, count), "int32")
        best = T.alloc_buffer((count,), "float32", scope="local")
        where = T.alloc_buffer((count,), "int32", scope="local")
        for b in T.thread_binding(0, T.ceildiv(n, 4), "blockIdx.x"):
            for t in T.thread_binding(0, 4, "threadIdx.x"):
                with T.block("rows"):
                    vi = T.axis.spatial(n, b * 4 + t)
                    T.where(b * 4 + t < n)
                    with T.block("start"):
                        start(best, count)
                    for k in range(size):
                        with T.block("insert"):
                            vk = T.axis.remap("S", [k])
                            insert(best, where, x[vi, vk], vk, count)
                    for j in T.unroll(count):
                        with T.block("write"):
                            vj = T.axis.remap("S", [j])
                            out[vi, vj] = T.exp(best[vj]) / total(best, count)
                            places[vi, vj] = where[vj]

    return func


def test_the_largest_of_rows_by_functions_of_python() -> None:
    x = np.random.default_rng(0).normal(size=(7, 6)).astype(np.float32)
    func = largest(3, 6)
    sizes = [b.shape[0] for b in func.buffer_map.values()]
    assert all(s is sizes[0] and isinstance(s, tir.Var) and s.name == "n" for s in sizes)
    values, places = np.zeros((7, 3), np.float32), np.zeros((7, 3), np.int32)
    Interpreter().run(func, x, values, places)
    order = np.argsort(-x, axis=1)[:, :3]
    np.testing.assert_array_equal(places, order)
    powers = np.exp(np.take_along_axis(x, order, 1))
    np.testing.assert_allclose(values, powers / powers.sum(1, keepdims=True), rtol=1e-5)


def copies(sizes: tuple[int, ...], number: int) -> tir.PrimFunc:
    @T.prim_func
    def func(A: T.Buffer((2, *sizes), "float32"), B: T.Buffer((2, *sizes), "float32")):
        T.func_attr({"global_symbol": f"copy_{number}"})
        for i in range(2):
            for s in T.grid(*sizes):
                with T.block("copy"):
                    vi, *vs = T.axis.remap("S" * (len(sizes) + 1), [i, *s])
                    T.buffer_store(B, T.BufferLoad(A, [1 - vi, *vs]), [vi, *vs])

    return func


def test_stars_and_names_with_numbers() -> None:
    func = copies((3, 4), 7)
    assert func.attrs["global_symbol"] == "copy_7"
    info = rx.TensorStructInfo((2, 3, 4), "float32")
    made = lower(func, [rx.Var("A", info), info])
    assert made.written == {1}


def test_branches_in_the_script_itself() -> None:
    @T.prim_func
    def func(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
        for i in range(4):
            with T.If(A[i] > T.float32(0)):
                with T.Then():
                    B[i] = A[i]
                with T.Else():
                    B[i] = T.float32(0)

    made = [s for s in tir.stmt.walk(func.body) if isinstance(s, tir.IfThenElse)]
    assert len(made) == 1
    assert made[0].else_case is not None


def empty_branch(best: Any) -> None:
    with T.If(best[0] > 0):
        pass


def test_mistakes_are_said() -> None:
    with pytest.raises(DiagnosticError, match=r"T.If holds T.Then, and perhaps T.Else"):

        @T.prim_func
        def wrong(A: T.Buffer((4,), "float32")):
            empty_branch(A)

    with pytest.raises(TypeError, match=r"T.buffer_store works only below @T.prim_func"):
        T.buffer_store(None, 1, [0])
    with pytest.raises(AttributeError, match="T has no 'nothing'"):
        _ = T.nothing


def test_a_text_runs_no_python() -> None:
    text = """
@T.prim_func
def f(A: T.Buffer((4,), "float32")):
    insert(A, A, 1, 2, 3)
"""
    with pytest.raises(DiagnosticError, match="insert"):
        from_source(text)
    held = text.replace("insert(A, A, 1, 2, 3)", "A[0] = T.max(start(A, 1), 2)")
    with pytest.raises(DiagnosticError, match="start"):
        from_source(held)
