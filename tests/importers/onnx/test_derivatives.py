"""Derivatives of ONNX's operators where torch's are others than those of the formula."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import relax2xla as rx
from relax2xla.frontend.onnx import from_onnx
from relax2xla.transform import RemoveGradientMarks
from tests.importers.onnx.support import one

torch = pytest.importorskip("torch")
F = torch.nn.functional

X = np.zeros((2, 3, 4, 4), np.float32)
X[1, :2] = np.random.default_rng(0).standard_normal((2, 4, 4))
LAST = np.array([3])


def _normalised(x: Any) -> Any:
    """0 where all are 0, as ONNX says, without derivative."""
    length = x.norm(dim=-1, keepdim=True)
    flat = length == 0
    return torch.where(flat, 0, x / torch.where(flat, 1, length))


def _standardised(x: Any) -> Any:
    centred = x - x.mean((0, 2, 3), keepdim=True)
    # A norm has no derivative at 0.
    length = torch.linalg.vector_norm(centred, dim=(0, 2, 3), keepdim=True)
    return centred / (length / (x.numel() / x.shape[1]) ** 0.5 + 1e-9)


#: Operator, inputs after the first, attributes; and what torch has.
CASES: dict[str, tuple[str, list[Any], dict[str, Any], Any]] = {
    "L2": ("ReduceL2", [LAST], {}, lambda x: x.norm(dim=3, keepdim=True)),
    "L2 of all": ("ReduceL2", [], {"keepdims": 0}, lambda x: x.norm()),
    "L1": ("ReduceL1", [LAST], {}, lambda x: x.abs().sum(3, keepdim=True)),
    "log of sums": ("ReduceLogSumExp", [LAST], {}, lambda x: x.logsumexp(3, keepdim=True)),
    "LpNormalization": ("LpNormalization", [], {}, _normalised),
    "LpPool": ("LpPool", [], {"kernel_shape": [2, 2]}, lambda x: F.lp_pool2d(x, 2, 2, 1)),
    "LpPool, cubes": (
        "LpPool",
        [],
        {"kernel_shape": [2, 2], "p": 3},
        lambda x: F.lp_pool2d(x.abs(), 3, 2, 1),
    ),
    "GlobalLpPool": ("GlobalLpPool", [], {}, lambda x: F.lp_pool2d(x, 2, 4)),
    "MeanVariance": ("MeanVarianceNormalization", [], {}, _standardised),
}


@pytest.mark.parametrize("name", CASES)
def test_where_all_are_0(name: str) -> None:
    op, more, attributes, theirs = CASES[name]
    opset = 9 if name == "MeanVariance" else 21
    model, _ = one(op, [X, *more], opset, known=range(1, len(more) + 1), **attributes)
    fn, params = rx.jax_function(from_onnx(model))
    leaf = torch.tensor(X, requires_grad=True)
    want = theirs(leaf)
    (want * torch.cos(torch.arange(want.numel()).reshape(want.shape))).sum().backward()

    def loss(x: Any) -> Any:
        made = fn(params, x)
        return (made * jnp.cos(jnp.arange(made.size)).reshape(made.shape)).sum()

    np.testing.assert_allclose(fn(params, X), want.detach(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(jax.grad(loss)(X), leaf.grad, rtol=1e-3, atol=1e-5)


def test_rows_that_are_minus_infinite() -> None:
    x = np.full((2, 4), -np.inf, np.float32)
    x[1, 0] = 1
    model, _ = one("ReduceLogSumExp", [x, np.array([1])], known=[1])
    fn, params = rx.jax_function(from_onnx(model))
    leaf = torch.tensor(x, requires_grad=True)
    leaf.logsumexp(1).sum().backward()
    np.testing.assert_array_equal(jax.grad(lambda x: fn(params, x).sum())(x), leaf.grad)


def test_values_are_computed_as_before() -> None:
    model, _ = one("ReduceL2", [X, LAST], known=[1])
    text = RemoveGradientMarks()(from_onnx(model)).script()
    assert "R.sqrt" in text
    assert "R.where" not in text
    assert text.count("R.sum") == 1
