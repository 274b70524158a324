"""Loops in functions of their own: asked where one is read twice, and kept apart by XLA."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import relax2xla as rx
from relax2xla import op as R
from relax2xla.transform.core import run_alone
from relax2xla.transform.cpu.apart import computed_again
from relax2xla.transform.cpu.convolutions.depthwise import ExpandDepthwise
from tests.transform.cpu.convolutions.of_torch import with_expected

RNG = np.random.default_rng(8)


@pytest.mark.parametrize(
    ("ending", "twice"),
    [
        ("activated", False),
        ("scaled by its mean", True),
        ("added to what is made of it", True),
        ("diamond", False),
        ("normalised", True),
        ("given back beside it", True),
    ],
)
def test_read_twice(ending: str, twice: bool) -> None:
    x = rx.Var("x", rx.TensorStructInfo((1, 8, 8, 4)))
    weight = rx.const(np.ones((3, 3, 1, 4), "f"))
    builder = rx.BlockBuilder()
    with builder.function("main", [x]):
        conv = builder.emit(
            R.nn.conv2d(x, weight, groups=4, data_layout="NHWC", kernel_layout="HWIO")
        )
        active = builder.emit(R.nn.relu(conv))
        match ending:
            case "scaled by its mean":
                mean = builder.emit(R.mean(active, [1, 2], keepdims=True))
                result = builder.emit(R.reshape(builder.emit(R.multiply(active, mean)), (-1, 4)))
            case "added to what is made of it":
                made = builder.emit(
                    R.einsum([active, rx.const(np.ones((4, 4), "f"))], "nhwi,io->nhwo")
                )
                result = builder.emit(R.add(active, made))
            case "normalised":
                one = rx.const(np.ones(4, "f"))
                result = builder.emit(R.nn.layer_norm(active, one, one, axes=[-1]))
            case "diamond":
                result = builder.emit(R.multiply(active, builder.emit(R.add(active, conv))))
            case "given back beside it":
                result = rx.Tuple([active, builder.emit(R.reshape(conv, (-1, 4)))])
            case _:
                result = builder.emit(R.reshape(active, (-1, 4)))
        builder.emit_func_output(result)
    assert computed_again(builder.get()["main"])(conv) == twice


def test_large_windows_of_many_channels_are_computed_in_blocks() -> None:
    layer = torch.nn.Conv2d(480, 480, 5, padding=(2, 1), dilation=(1, 2), groups=480, bias=False)
    func, x, expected = with_expected(layer, (1, 480, 9, 10), RNG)
    mod = run_alone([ExpandDepthwise()], func, "main")
    (outer, inner) = mod.relax_functions().values()
    assert "multiply" not in outer.script()
    assert inner.script().count("R.multiply") == 25
    np.testing.assert_allclose(rx.testing.evaluate(mod, [x]), expected, rtol=1e-4, atol=1e-4)


def test_xla_does_not_inline_them() -> None:
    layer = torch.nn.Conv2d(480, 480, 5, padding=2, groups=480, bias=False)
    func, x, _ = with_expected(layer, (1, 480, 8, 8), RNG)
    with rx.transform.PassContext(disabled_pass=["CallDepthwise"]):
        machine = rx.VirtualMachine(rx.build(rx.IRModule({"main": func}), "cpu"))
    machine["main"](x)
    (loaded,) = machine["main"].specialised.loaded()
    assert " call(" in loaded.hlo_text()
