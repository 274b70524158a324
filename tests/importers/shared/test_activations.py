"""Activations that both importers use, against torch."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch.nn import functional

from relax2xla import VirtualMachine, build
from relax2xla.builder import BlockBuilder
from relax2xla.importers.shared import activations
from relax2xla.ir import Expr, TensorStructInfo, Var

Torch = Callable[[torch.Tensor], torch.Tensor]
CASES: dict[str, tuple[Callable[[Expr], Expr], Torch]] = {
    "elu": (lambda x: activations.elu(x, 0.7), lambda x: functional.elu(x, 0.7)),
    "celu": (lambda x: activations.elu(x, 0.7, 1, 1 / 0.7), lambda x: functional.celu(x, 0.7)),
    "selu": (lambda x: activations.elu(x, 1.6732632423543772, 1.0507009873554805), functional.selu),
    "mish": (activations.mish, functional.mish),
    "hard swish": (activations.hard_swish, functional.hardswish),
    "hard sigmoid": (lambda x: activations.hard_sigmoid(x, 1 / 6, 0.5), functional.hardsigmoid),
    "softplus": (activations.softplus, functional.softplus),
    "softsign": (activations.softsign, functional.softsign),
    "swish": (lambda x: activations.swish(x, 1.7), lambda x: x * torch.sigmoid(1.7 * x)),
    "scaled tanh": (lambda x: activations.scaled_tanh(x, 2, 3), lambda x: 2 * torch.tanh(3 * x)),
    "thresholded": (
        lambda x: activations.thresholded(x, 1),
        lambda x: functional.threshold(x, 1, 0),
    ),
    "prelu": (
        lambda x: activations.prelu(x, activations.like(x, 0.3)),
        lambda x: functional.prelu(x, torch.tensor(0.3, dtype=x.dtype)),
    ),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_values_are_those_of_torch(dtype: str) -> None:
    """All of them in one program; large values of either sign do not overflow."""
    x = np.array([-1e4, -30.0, -3.5, -1.0, -1e-4, 0.0, 1e-4, 0.5, 1.0, 5.0, 30.0, 1e4], dtype)
    bb = BlockBuilder()
    v = Var("x", TensorStructInfo(x.shape, dtype))
    with bb.function("main", [v]):
        bb.emit_func_output([bb.emit(ours(v)) for ours, _ in CASES.values()])
    found = VirtualMachine(build(bb.get(), "cpu"), "cpu")["main"](x)
    tolerance = 1e-6 if dtype == "float32" else 1e-12
    for name, (_, theirs), y in zip(CASES, CASES.values(), found, strict=True):
        wanted = theirs(torch.from_numpy(x)).numpy()
        np.testing.assert_allclose(y, wanted, tolerance, tolerance, err_msg=name)
