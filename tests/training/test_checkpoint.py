"""relax2xla.testing.nn: parts whose insides the gradient computes again."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from relax2xla import BlockBuilder, VirtualMachine, build, op
from relax2xla.errors import BuilderError
from relax2xla.ir import TensorStructInfo, Var
from relax2xla.testing.nn import checkpoint, emit_checkpoint, emit_checkpoint_sequential
from relax2xla.transform import Gradient

X = np.float32([0.1, 0.2, 0.3])


def adjoint(network: Any) -> Any:
    """The bindings of the adjoint of ``sum(network(x))``, and the gradient at X."""
    builder, x = BlockBuilder(), Var("x", TensorStructInfo((3,), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(op.sum(network(x)))
        builder.emit_func_output(result)
    made = Gradient("main")(builder.get())
    _, (grad,) = VirtualMachine(build(made, "cpu", relax_pipeline="zero"))["main_adjoint"](X)
    return made["main_adjoint"].body.blocks[0].bindings, grad


def again(bindings: Any) -> int:
    return sum(b.var.name_hint.endswith("_cp") for b in bindings)


def test_one_part() -> None:
    want = jax.grad(lambda v: jnp.sum(jnp.sin(jnp.cos(v)) * v))(X)
    for mark in (checkpoint, emit_checkpoint):

        def network(x: Any, mark: Any = mark) -> Any:
            return mark(lambda a, scale: op.multiply(op.sin(op.cos(a)), scale), x, scale=x)

        bindings, grad = adjoint(network)
        np.testing.assert_allclose(grad, want, rtol=1e-5)
        assert again(bindings) == 2


@pytest.mark.parametrize(
    ("segments", "last", "count"), [(2, False, 2), (2, True, 3), ([0, 3], False, 2), (1, False, 0)]
)
def test_a_sequence(segments: Any, last: bool, count: int) -> None:
    layers = [op.sin, op.cos, op.sin, op.tanh]
    bindings, grad = adjoint(lambda x: emit_checkpoint_sequential(layers, segments, x, last))
    want = jax.grad(lambda v: jnp.sum(jnp.tanh(jnp.sin(jnp.cos(jnp.sin(v))))))(X)
    np.testing.assert_allclose(grad, want, rtol=1e-5)
    assert again(bindings) == count


def test_outside_of_a_function() -> None:
    with pytest.raises(BuilderError, match="no open function"):
        emit_checkpoint(op.sin, Var("x", TensorStructInfo((3,), "float32")))
