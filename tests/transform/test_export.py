"""Modules of either level as StableHLO."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

import relax2xla as rx
from relax2xla import tir
from relax2xla.frontend.stablehlo import from_stablehlo


def softmax(*shape: tir.Dim) -> rx.IRModule:
    x = rx.Var("x", rx.TensorStructInfo(shape, "float32"))
    builder = rx.BlockBuilder()
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(rx.op.nn.softmax(x)))
    return builder.get()


def test_operators_are_lowered(rng: np.random.Generator) -> None:
    mod = softmax(2, 3)
    before = mod.script()
    back = from_stablehlo(rx.to_stablehlo(mod, form="portable"))
    assert mod.script() == before
    x = rng.standard_normal((2, 3)).astype("f")
    result = rx.VirtualMachine(rx.build(back))["main"](x)
    np.testing.assert_allclose(np.asarray(result), jax.nn.softmax(x), rtol=1e-6)


def test_rows_are_written_as_they_stand() -> None:
    text = jax.jit(lambda x: jnp.where(x > 0, jnp.sin(x), x)).lower(np.ones(3, "f")).as_text()
    assert rx.to_stablehlo(from_stablehlo(text)) == text


def test_symbolic_operators_are_dynamic_programs() -> None:
    text = rx.to_stablehlo(softmax(tir.Var("n"), 3))
    assert "tensor<?x3xf32>" in text
    assert "stablehlo.dynamic_broadcast_in_dim" in text
