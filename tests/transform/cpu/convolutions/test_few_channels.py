"""ExpandFewChannels: the same results as torch, and only where it is faster."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import relax2xla as rx
from relax2xla import processor
from relax2xla.transform.core import run_alone, run_on_function
from relax2xla.transform.cpu.convolutions.few_channels import ExpandFewChannels
from tests.transform.cpu.convolutions.of_torch import with_expected

RNG = np.random.default_rng(6)

# Channels of the image and of the result, window, options.
Case = tuple[int, int, tuple[int, int], dict[str, Any]]
CASES: dict[str, Case] = {
    "the first of a network": (3, 32, (3, 3), {"padding": 1, "stride": 2}),
    "one channel": (1, 6, (5, 5), {"padding": 2}),
    "dilated, uneven": (2, 16, (3, 2), {"padding": (0, 1), "dilation": (1, 2), "stride": (1, 2)}),
}
OTHERS: dict[str, Case] = {
    "many channels": (3, 48, (3, 3), {"stride": 2}),
    "no steps": (3, 32, (3, 3), {}),
    "many products": (4, 16, (3, 3), {"stride": 2}),
    "groups": (2, 4, (3, 3), {"groups": 2}),
    "tiny": (1, 2, (2, 2), {}),
}


@pytest.fixture(autouse=True)
def avx512(monkeypatch: pytest.MonkeyPatch) -> None:
    features = processor.features() | {"avx512f"}
    monkeypatch.setattr(processor, "features", lambda: features)


def convolution(case: Case) -> tuple[rx.Function, np.ndarray, np.ndarray]:
    channels, made, window, options = case
    layer = torch.nn.Conv2d(channels, made, window, bias=False, **options)
    return with_expected(layer, (2, channels, 36, 41), RNG)


@pytest.mark.parametrize("name", CASES)
def test_results_are_torchs(name: str) -> None:
    func, x, expected = convolution(CASES[name])
    expanded = run_alone([ExpandFewChannels()], func, "main")
    assert "conv2d" not in expanded.script()
    np.testing.assert_allclose(rx.testing.evaluate(expanded, [x]), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", OTHERS)
def test_others_stay(name: str) -> None:
    func, _, _ = convolution(OTHERS[name])
    assert run_on_function([ExpandFewChannels()], func, "main") is func


def test_other_processors_keep_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor, "features", lambda: frozenset({"avx2"}))
    func, _, _ = convolution(CASES["one channel"])
    assert run_on_function([ExpandFewChannels()], func, "main") is func
