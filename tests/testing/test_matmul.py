"""Modules of products: what they compute, and that they are TVM's, binding by binding."""

from __future__ import annotations

import numpy as np
import pytest

from relax2xla import ir, op, tir
from relax2xla.script import from_source
from relax2xla.testing import evaluate, get_relax_matmul_module

RNG = np.random.default_rng(0)


def random(*shape: int) -> np.ndarray:
    return RNG.uniform(-1, 1, shape).astype(np.float32)


@pytest.mark.parametrize("transposed", [False, True])
def test_values(transposed: bool) -> None:
    x, y, bias = random(2, 4, 3), random(2, 3, 3), random(3)
    module = get_relax_matmul_module(
        x.shape,
        y.shape,
        "float32",
        transposed_y=transposed,
        bias_shape=bias.shape,
        activation=op.nn.relu,
        residual_bin_op=op.multiply,
        residual_activation=op.tanh,
    )
    product = x @ (y.swapaxes(1, 2) if transposed else y) + bias
    expected = np.tanh(np.maximum(product, 0) * x)
    np.testing.assert_allclose(evaluate(module, [x, y, bias]), expected, 1e-5, 1e-6)


def test_bindings() -> None:
    n = tir.Var("n")
    expected = from_source("""
@I.ir_module
class Module:
    @R.function
    def main(
        x: R.Tensor(("n", 8), "float16"), y: R.Tensor((4, 8), "float16"),
        bias: R.Tensor((4,), "float32"),
    ):
        n = T.int64()
        with R.dataflow():
            a = R.permute_dims(y, [-1, -2])
            b = R.matmul(x, a, out_dtype="float32")
            c = R.add(b, bias)
            d = R.nn.gelu(c)
            R.output(d)
        return d
""")
    assert isinstance(expected, ir.IRModule)
    plain = get_relax_matmul_module((n, 8), (4, 8), "float16", "float32", True, (4,), op.nn.gelu)
    ir.assert_structural_equal(plain, expected)
