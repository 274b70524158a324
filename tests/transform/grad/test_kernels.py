"""Gradients of calls of loop-level functions, against formulas."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import relax2xla as rx
from relax2xla import te
from relax2xla.errors import TransformError
from relax2xla.ir import IRModule
from relax2xla.script import from_source
from relax2xla.te.gradients import GRADIENTS
from relax2xla.training.utils import register_te_gradient
from relax2xla.transform import Gradient

SCRIPT = """
from relax2xla.script import ir as I, relax as R, tir as T

@I.ir_module
class Module:
    @T.prim_func(private=True)
    def kernel(A: T.Buffer((3, 4), "float32"), B: T.Buffer((4,), "float32"),
               C: T.Buffer((3, 4), "float32")):
        for i, j in T.grid(3, 4):
            with T.block("c"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = A[vi, vj] * T.sin(B[vj])

    @R.function
    def main(a: R.Tensor((3, 4), "float32"), b: R.Tensor((4,), "float32")):
        cls = Module
        with R.dataflow():
            c = R.CALL(cls.kernel, (a, b), out_sinfo=R.Tensor((3, 4), "float32")MORE)
            d = R.sum(c * c)
            R.output(d)
        return d
"""


def module(call: str = "call_tir", more: str = "") -> IRModule:
    made = from_source(SCRIPT.replace("CALL", call).replace("MORE", more))
    assert isinstance(made, IRModule)
    return made


def adjoint(mod: IRModule) -> list[np.ndarray]:
    rng = np.random.default_rng(3)
    a, b = rng.standard_normal((3, 4), "float32"), rng.standard_normal(4, "float32")
    machine = rx.VirtualMachine(rx.build(Gradient("main")(mod)), rx.cpu())
    _, (of_a, of_b) = machine["main_adjoint"](a, b)
    wanted = 2 * a * np.sin(b) ** 2, (a * a).sum(0) * np.sin(2 * b)
    for got, want in zip((of_a, of_b), wanted, strict=True):
        np.testing.assert_allclose(np.asarray(got), want, rtol=1e-5, atol=1e-6)
    return [a, b]


def test_a_kernel_is_differentiated_through_jax() -> None:
    adjoint(module())
    fn, weights = rx.interop.jax.extract_jax(module(), "main")
    a, b = np.ones((3, 4), "float32"), np.full(4, 0.5, "float32")
    found: Any = jax.grad(lambda x: fn(weights, x, b))(a)
    np.testing.assert_allclose(found, 2 * a * np.sin(0.5) ** 2, rtol=1e-5)


@pytest.fixture
def registered() -> Any:
    @register_te_gradient("kernel_grad")
    def kernel_grad(grad: te.Tensor, a: te.Tensor, b: te.Tensor, times: float) -> list[te.Tensor]:
        k = te.reduce_axis((0, 3), "k")

        def of_b(j: Any) -> Any:
            return te.sum(grad[k, j] * a[k, j] * te.cos(b[j]), axis=k)

        return [
            te.compute(a.shape, lambda i, j: grad[i, j] * te.sin(b[j]) * times, name="of_a"),
            te.compute(b.shape, of_b, name="of_b"),
        ]

    yield kernel_grad
    del GRADIENTS["kernel_grad"]


WITH_GRAD = ', te_grad_name="kernel_grad", te_grad_kwargs={"times": T.float32(1)}'


def test_the_gradient_that_a_call_names(registered: Any) -> None:
    mod = module("call_tir_with_grad", WITH_GRAD)
    adjoint(mod)
    text = Gradient("main")(mod).script().partition("def main_adjoint")[2]
    assert "R.call_tir(cls.kernel_grad, (c_adjoint1, a, b)" in text
    assert "call_tir_with_grad" not in text.partition("@R.function")[0]


def test_a_gradient_that_is_not_registered() -> None:
    with pytest.raises(TransformError, match="'kernel_grad', which is not registered"):
        Gradient("main")(module("call_tir_with_grad", WITH_GRAD))
