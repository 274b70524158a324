"""Calls of loop-level functions in programs that are built and run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relax2xla
from relax2xla.errors import TVMError
from relax2xla.ir import IRModule
from relax2xla.script import ir as I
from relax2xla.script import relax as R
from relax2xla.script import tir as T


def _machine(mod: IRModule) -> Any:
    return relax2xla.VirtualMachine(relax2xla.build(mod), relax2xla.cpu())


@I.ir_module
class Calls:
    @T.prim_func
    def add(
        A: T.Buffer((4, 6), "float32"), B: T.Buffer((6,), "float32"), C: T.Buffer((4, 6), "float32")
    ):
        for i, j in T.grid(4, 6):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = A[vi, vj] + B[vj]

    @T.prim_func
    def moments(
        A: T.Buffer((4, 6), "float32"), S: T.Buffer((4,), "float32"), M: T.Buffer((4,), "float32")
    ):
        for i, k in T.grid(4, 6):
            with T.block("sum"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    S[vi] = T.float32(0)
                S[vi] = S[vi] + A[vi, vk]
        for i, k in T.grid(4, 6):
            with T.block("max"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    M[vi] = T.float32(-1e30)
                M[vi] = T.max(M[vi], A[vi, vk])

    @T.prim_func
    def bump(A: T.Buffer((4, 6), "float32"), N: T.Buffer((4,), "float32")):
        for i, j in T.grid(4, 6):
            with T.block("A"):
                vi, vj = T.axis.remap("SS", [i, j])
                A[vi, vj] = A[vi, vj] + T.float32(1)
        for i in range(4):
            with T.block("N"):
                vi = T.axis.spatial(4, i)
                N[vi] = A[vi, 0]

    @R.function
    def main(a: R.Tensor((4, 6), "float32"), b: R.Tensor((6,), "float32")):
        cls = Calls
        with R.dataflow():
            x = R.call_tir(cls.add, (a, b), out_sinfo=R.Tensor((4, 6), "float32"))
            y = R.nn.relu(x)
            z = R.call_tir(
                cls.moments,
                (y,),
                out_sinfo=[R.Tensor((4,), "float32"), R.Tensor((4,), "float32")],
            )
            w = R.add(z[0], z[1])
            R.output(w)
        return w

    @R.function
    def inplace(a: R.Tensor((4, 6), "float32")):
        cls = Calls
        with R.dataflow():
            r = R.call_tir_inplace(
                cls.bump,
                (a,),
                inplace_indices=[0, -1],
                out_sinfo=[R.Tensor((4, 6), "float32"), R.Tensor((4,), "float32")],
            )
            R.output(r)
        return r

    @R.function
    def with_grad(a: R.Tensor((4, 6), "float32"), b: R.Tensor((6,), "float32")):
        cls = Calls
        with R.dataflow():
            r = R.call_tir_with_grad(
                cls.add, (a, b), out_sinfo=R.Tensor((4, 6), "float32"), te_grad_name="none"
            )
            R.output(r)
        return r


@I.ir_module
class Symbolic:
    @T.prim_func
    def matmul(a: T.handle, b: T.handle, c: T.handle):
        m, n = T.int64(), T.int64()
        A = T.match_buffer(a, (m, 5), "float32")
        B = T.match_buffer(b, (5, n), "float32")
        C = T.match_buffer(c, (m, n), "float32")
        for i, j, k in T.grid(m, n, 5):
            with T.block("C"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C[vi, vj] = T.float32(0)
                C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]

    @T.prim_func
    def shifted(a: T.handle, c: T.handle, by: T.int64):
        n = T.int64()
        A = T.match_buffer(a, (n,), "float32")
        C = T.match_buffer(c, (n,), "float32")
        for i in range(n):
            with T.block("C"):
                vi = T.axis.spatial(n, i)
                C[vi] = A[vi] + T.Cast("float32", by)

    @R.function
    def main(a: R.Tensor(("m", 5), "float32"), b: R.Tensor((5, "n"), "float32")):
        m, n = T.int64(), T.int64()
        cls = Symbolic
        with R.dataflow():
            r = R.call_tir(cls.matmul, (a, b), out_sinfo=R.Tensor((m, n), "float32"))
            R.output(r)
        return r

    @R.function
    def numbers(a: R.Tensor(("n",), "float32")):
        n = T.int64()
        cls = Symbolic
        with R.dataflow():
            r = R.call_tir(
                cls.shifted, (a,), out_sinfo=R.Tensor((n,), "float32"), tir_vars=R.shape([n * 2])
            )
            R.output(r)
        return r


def test_calls_among_operators() -> None:
    a, b = (np.random.default_rng(0).normal(size=s).astype("float32") for s in ((4, 6), (6,)))
    got = _machine(Calls)["main"](a, b)
    y = np.maximum(a + b, 0)
    np.testing.assert_allclose(np.asarray(got), y.sum(1) + y.max(1), rtol=1e-5)


def test_in_place_and_new_results() -> None:
    a = np.random.default_rng(0).normal(size=(4, 6)).astype("float32")
    changed, first = _machine(Calls)["inplace"](a.copy())
    np.testing.assert_array_equal(np.asarray(changed), a + 1)
    np.testing.assert_array_equal(np.asarray(first), a[:, 0] + 1)


def test_with_grad_runs_forward() -> None:
    a, b = np.ones((4, 6), "float32"), np.arange(6, dtype="float32")
    np.testing.assert_array_equal(np.asarray(_machine(Calls)["with_grad"](a, b)), a + b)


@pytest.mark.parametrize(("m", "n"), [(3, 4), (7, 1)])
def test_symbolic_sizes_are_specialised(m: int, n: int) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.normal(size=s).astype("float32") for s in ((m, 5), (5, n)))
    np.testing.assert_allclose(np.asarray(_machine(Symbolic)["main"](a, b)), a @ b, rtol=1e-5)


def test_numbers_of_tir_vars() -> None:
    a = np.arange(5, dtype="float32")
    np.testing.assert_array_equal(np.asarray(_machine(Symbolic)["numbers"](a)), a + 10)


def test_saved_and_loaded(tmp_path: Any) -> None:
    path = tmp_path / "model.r2x"
    relax2xla.build(Symbolic).export_library(str(path))
    machine = relax2xla.VirtualMachine(relax2xla.runtime.load_module(str(path)), relax2xla.cpu())
    a, b = np.ones((3, 5), "float32"), np.ones((5, 2), "float32")
    np.testing.assert_array_equal(np.asarray(machine["main"](a, b)), np.full((3, 2), 5))


def test_legalised_where_it_stands() -> None:
    legal = relax2xla.transform.LegalizeOps()(Calls)
    text = legal["main"].script()
    assert "call_tir" not in text
    assert "stablehlo.add" in text


def _refused(text: str) -> str:
    mod = relax2xla.script.from_source(text)
    with pytest.raises(TVMError) as caught:
        _machine(mod)["main"](np.ones((4,), "float32"))
    return "\n".join([str(caught.value), *getattr(caught.value, "__notes__", ())])


def _program(
    kernel: str, call: str = "R.call_tir(cls.f, (a,), out_sinfo=R.Tensor((4,), 'float32'))"
) -> str:
    return f"""
from relax2xla.script import ir as I, relax as R, tir as T

@I.ir_module
class Module:
    @T.prim_func
    def f(A: T.Buffer((4,), "float32"), C: T.Buffer((4,), "float32")):
{kernel}

    @R.function
    def main(a: R.Tensor((4,), "float32")):
        cls = Module
        with R.dataflow():
            r = {call}
            R.output(r)
        return r
"""


@pytest.mark.parametrize(
    ("kernel", "said"),
    [
        ("        for i in range(4):\n            C[i] = A[i + 1]", r"runs from 1 to 4"),
        ("        for i in range(4):\n            C[i + 1] = A[i]", r"runs from 1 to 4"),
        ("        for i in range(4):\n            C[i] = A[7]", r"is 7"),
        (
            '        T.evaluate(T.call_packed("f", A.data))',
            "for its effect cannot be lowered",
        ),
        (
            '        for i in T.thread_binding(4, thread="threadIdx.x"):\n            A[i] = C[i]',
            "is no result",
        ),
    ],
)
def test_what_cannot_be_lowered_is_named(kernel: str, said: str) -> None:
    message = _refused(_program(kernel))
    assert said in message
    assert "line" in message or "no result" in message


def test_wrong_number_of_arguments() -> None:
    message = _refused(
        _program(
            "        for i in range(4):\n            C[i] = A[i]",
            "R.call_tir(cls.f, (a, a), out_sinfo=R.Tensor((4,), 'float32'))",
        )
    )
    assert "takes 2 parameters" in message


def test_wrong_shape() -> None:
    message = _refused(
        _program(
            "        for i in range(4):\n            C[i] = A[i]",
            "R.call_tir(cls.f, (a,), out_sinfo=R.Tensor((5,), 'float32'))",
        )
    )
    assert "C is float32[4]" in message
