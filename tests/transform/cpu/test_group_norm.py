"""ExpandGroupNorm: torch's results with channels last, the rest as it was."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import relax2xla as rx
from relax2xla import op as R
from relax2xla.frontend.torch import from_exported_program
from relax2xla.transform.core import run_alone, run_on_function
from relax2xla.transform.cpu.group_norm import ExpandGroupNorm

RNG = np.random.default_rng(10)


def normalised(
    shape: tuple[int, ...], groups: int, dtype: str = "float32", axis: int = -1, **given: bool
) -> rx.Function:
    parameters = [RNG.standard_normal(shape[axis]).astype(dtype) for _ in range(2)]
    x = rx.Var("x", rx.TensorStructInfo(shape, dtype))
    axes = [a for a in range(1, len(shape)) if a != axis % len(shape)]
    norm = R.nn.group_norm(x, *map(rx.const, parameters), groups, axis, axes, 1e-3, **given)
    builder = rx.BlockBuilder()
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(norm))
    return builder.get()["main"]


@pytest.mark.parametrize("given", [{}, {"scale": False}, {"center": False}], ids=str)
@pytest.mark.parametrize("shape", [(2, 5, 4, 6), (1, 3, 4, 5, 9)])
def test_results_are_those_of_the_operator(shape: tuple[int, ...], given: dict[str, bool]) -> None:
    func = normalised(shape, 3, **given)
    x = (RNG.standard_normal(shape) + 100).astype("f")
    expanded = run_alone([ExpandGroupNorm()], func, "main")
    assert "group_norm(" not in expanded.script()
    expected = rx.testing.evaluate(func, [x])
    np.testing.assert_allclose(rx.testing.evaluate(expanded, [x]), expected, rtol=1e-4, atol=1e-4)


def test_results_are_torchs() -> None:
    network = torch.nn.Sequential(torch.nn.Conv2d(3, 6, 3), torch.nn.GroupNorm(2, 6)).eval()
    x = torch.randn(1, 3, 9, 8, generator=torch.Generator().manual_seed(1))
    mod = from_exported_program(torch.export.export(network, (x,)))
    machine = rx.VirtualMachine(rx.build(mod, "cpu"))
    with torch.no_grad():
        expected = network(x).numpy()
    np.testing.assert_allclose(machine["main"](x.numpy())[0], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "func",
    [
        normalised((2, 5, 4, 6), 1),
        normalised((2, 5, 4, 6), 6),
        normalised((2, 5, 4, 6), 3, "float64"),
        normalised((2, 6, 4, 5), 3, axis=1),
    ],
    ids=["one group", "groups of one", "float64", "channels first"],
)
def test_others_stay(func: rx.Function) -> None:
    assert run_on_function([ExpandGroupNorm()], func, "main") is func
