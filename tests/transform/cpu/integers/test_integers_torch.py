"""ComputeInIntegers on what torch's quantisation (PT2E) leaves: torch's own values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import relax2xla as rx
from relax2xla.frontend.torch import from_exported_program
from relax2xla.runtime.compiler import has_compiler
from tests.transform.cpu.composites import composites_of

__import__("torch.ao.quantization.fx._decomposed")  # registers quantized_decomposed

pytestmark = pytest.mark.skipif(not has_compiler(), reason="needs a C++ compiler")
STEPS: Any = torch.ops.quantized_decomposed
BYTES: dict[torch.dtype, tuple[int, int]] = {torch.uint8: (0, 255), torch.int8: (-128, 127)}


def steps(x: Tensor, scale: float, zero: int, dtype: torch.dtype = torch.uint8) -> Tensor:
    return STEPS.quantize_per_tensor(x, scale, zero, *BYTES[dtype], dtype)


def real(x: Tensor, scale: float, zero: int) -> Tensor:
    return STEPS.dequantize_per_tensor(x, scale, zero, *BYTES[x.dtype], x.dtype)


class Weight(nn.Module):
    """Of int8, with a scale for each result."""

    def __init__(self, *shape: int) -> None:
        super().__init__()
        draw = torch.Generator().manual_seed(len(shape))
        self.numbers = nn.Buffer(torch.randint(-127, 128, shape, dtype=torch.int8, generator=draw))
        self.scales = nn.Buffer(torch.rand(shape[0], generator=draw) * 0.01 + 0.001)
        self.zeros = nn.Buffer(torch.zeros(shape[0], dtype=torch.int64))
        self.bias = nn.Parameter(torch.randn(shape[0], generator=draw))

    def forward(self) -> Tensor:
        return STEPS.dequantize_per_channel(
            self.numbers, self.scales, self.zeros, 0, -128, 127, torch.int8
        )


class Network(nn.Module):
    def __init__(self, weight: Weight, function: Callable[[Tensor, Weight], Tensor]) -> None:
        super().__init__()
        self.weight, self.function = weight, function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x, self.weight)


def plain(x: Tensor, w: Weight) -> Tensor:
    y = F.conv2d(real(steps(x, 0.03, 120), 0.03, 120), w(), w.bias, padding=1)
    return steps(y, 0.05, 77)


def signed(x: Tensor, w: Weight) -> Tensor:
    y = F.conv2d(real(steps(x, 0.03, -7, torch.int8), 0.03, -7), w(), w.bias, stride=2).relu()
    return steps(y, 0.05, -128, torch.int8)


def block(x: Tensor, w: Weight) -> Tensor:
    """The end of a residual block: what goes around is bytes, the sum is rounded once."""
    around = real(steps(torch.cat([x, -x], 1), 0.02, 100), 0.02, 100)
    y = F.conv2d(real(steps(x, 0.03, 120), 0.03, 120), w(), w.bias, padding=1)
    return steps((y + around).relu(), 0.05, 0)


def pooled(x: Tensor, w: Weight) -> Tensor:
    y = F.conv2d(real(steps(x, 0.03, 120), 0.03, 120), w(), w.bias, padding=1)
    return steps(F.max_pool2d(y.relu(), 3, 2, 1), 0.05, 0)


def to_floats(x: Tensor, w: Weight) -> Tensor:
    around = real(steps(torch.cat([x, -x], 1), 0.02, 100), 0.02, 100)
    return F.conv2d(real(steps(x, 0.03, 120), 0.03, 120), w(), w.bias, padding=1) + around


def linear(x: Tensor, w: Weight) -> Tensor:
    y = F.linear(real(steps(x, 0.03, 120), 0.03, 120), w(), w.bias)
    return steps(y, 0.06, 90)


CASES: dict[str, tuple[Callable[[Tensor, Weight], Tensor], tuple[int, ...], list[str]]] = {
    "plain": (plain, (16, 8, 3, 3), ["quantisation", "convolution"]),
    "signed": (signed, (16, 8, 3, 3), ["quantisation", "convolution"]),
    "block": (block, (16, 8, 3, 3), ["quantisation", "quantisation", "convolution_sum"]),
    "pooled": (pooled, (16, 8, 3, 3), ["quantisation", "convolution", "max_pool"]),
    "to_floats": (to_floats, (16, 8, 3, 3), ["quantisation", "quantisation", "convolution_sum"]),
    "linear": (linear, (70, 12), ["quantisation", "convolution"]),
}


@pytest.mark.parametrize("name", CASES)
def test_values_of_torch(name: str) -> None:
    function, shape, kinds = CASES[name]
    network = Network(Weight(*shape), function).eval()
    x = torch.randn(2, 8, 11, 12, generator=torch.Generator().manual_seed(1))
    mod = from_exported_program(torch.export.export(network, (x,)), unwrap_unit_return_tuple=True)
    assert sorted(composites_of(mod)) == sorted(kinds)
    want = network(x).detach().numpy()
    assert len(np.unique(want)) > 20
    made: list[Any] = []
    for disabled in ([], ["ComputeInIntegers"]):
        with rx.transform.PassContext(disabled_pass=disabled):
            built = rx.build(mod, "cpu")
        made.append(np.asarray(rx.VirtualMachine(built)["main"](x.numpy())))
    for y in made:
        assert y.dtype == want.dtype
        if y.dtype == np.float32:
            np.testing.assert_allclose(y, want, rtol=1e-5, atol=1e-5)
        else:
            apart = np.abs(y.astype(int) - want.astype(int))
            assert apart.max() <= 1
            assert apart.mean() < 0.002


def test_windows_of_padding_alone_stay_real() -> None:
    """Padding stands for the least real number, which has no byte where nothing else is there."""

    def spread(x: Tensor, w: Weight) -> Tensor:
        y = F.conv2d(real(steps(x, 0.03, 120), 0.03, 120), w(), w.bias)
        return steps(F.max_pool2d(y, 2, 1, 0, dilation=2), 0.05, 77)

    x = torch.randn(1, 8, 9, 9)
    network = Network(Weight(4, 8, 3, 3), spread).eval()
    assert "max_pool" not in composites_of(
        from_exported_program(torch.export.export(network, (x,)))
    )
