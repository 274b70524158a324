"""RemoveGradientMarks: what is left is what values need, and is what it was."""

from __future__ import annotations

import numpy as np

from relax2xla.ir import IRModule
from relax2xla.script import from_source
from relax2xla.testing import evaluate
from relax2xla.transform import RemoveGradientMarks, get_pipeline
from tests.transform.programs import operators

TEXT = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        with R.dataflow():
            cut = R.clip(x, -1, 1)
            smooth = R.sin(x)
            y = R.grad.differentiate_as(cut, smooth)
            kept = R.grad.no_grad(y)
            begun = R.grad.start_checkpoint(kept)
            z = R.exp(begun)
            ended = R.grad.end_checkpoint(z)
            out = R.add(ended, R.grad.no_grad(x))
            R.output(out)
        return out
"""
X = np.array([-2.0, -0.5, 0.5, 3.0], np.float32)


def program() -> IRModule:
    mod = from_source(TEXT)
    assert isinstance(mod, IRModule)
    return mod


def test_values_alone_are_left() -> None:
    mod = program()
    new = RemoveGradientMarks()(mod)
    assert operators(new) == ["clip", "exp", "add"]
    x = np.array([-2.0, -0.5, 0.5, 3.0], np.float32)
    np.testing.assert_allclose(evaluate(new, [x]), np.exp(x.clip(-1, 1)) + x, rtol=1e-6)
    assert RemoveGradientMarks()(new) is new


def test_functions_of_jax_keep_them() -> None:
    """They are differentiated after their pipeline, what ``build`` makes before."""
    of_values = operators(get_pipeline("default")(program()))
    assert not [name for name in of_values if name.startswith("grad.")]
    kept = operators(get_pipeline("default", for_jax=True)(program()))
    assert "grad.differentiate_as" in kept
    assert "sin" in kept
