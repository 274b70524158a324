"""ExpandDepthwise: the same results as torch, and no grouped convolution left."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import relax2xla as rx
from relax2xla import op as R
from relax2xla import stablehlo
from relax2xla.transform.core import run_alone, run_on_function
from relax2xla.transform.cpu.convolutions.depthwise import ExpandDepthwise
from tests.transform.cpu.convolutions.of_torch import with_expected

T = rx.TensorStructInfo
RNG = np.random.default_rng(5)

CASES = {
    "3x3": ((2, 6, 9, 8), (3, 3), {"padding": 1}),
    "5x5, stride 2": ((1, 6, 11, 12), (5, 5), {"padding": 2, "stride": 2}),
    "dilated": ((1, 6, 11, 12), (3, 3), {"padding": (2, 1), "dilation": (2, 1)}),
    "unpadded row": ((1, 6, 7, 9), (1, 3), {"stride": (2, 1)}),
}


def depthwise(name: str) -> tuple[rx.Function, np.ndarray, np.ndarray]:
    shape, window, options = CASES[name]
    return with_expected(torch.nn.Conv2d(6, 6, window, groups=6, bias=False, **options), shape, RNG)


@pytest.mark.parametrize("name", CASES)
def test_results_are_torchs(name: str) -> None:
    func, x, expected = depthwise(name)
    expanded = run_alone([ExpandDepthwise()], func, "main")
    assert "conv2d" not in expanded.script()
    np.testing.assert_allclose(rx.testing.evaluate(expanded, [x]), expected, rtol=1e-4, atol=1e-5)


def test_other_convolutions_stay() -> None:
    x = rx.Var("x", T((1, 8, 8, 6)))
    w = rx.const(np.ones((3, 3, 3, 6), "f"))
    conv = R.nn.conv2d(x, w, groups=2, data_layout="NHWC", kernel_layout="HWIO")
    func = rx.Function([x], conv)
    assert run_on_function([ExpandDepthwise()], func, "main") is func


def test_the_machine_runs_the_pipelines_rewrites_of_static_functions() -> None:
    x = rx.Var("x", T((rx.tir.Var("n"), 6, 9, 9)))
    weight = rx.const(RNG.standard_normal((6, 1, 3, 3)).astype("f"))
    builder = rx.BlockBuilder()
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(R.nn.conv2d(x, weight, padding=1, groups=6)))
    mod = builder.get()
    for pipeline, expanded in (("default", True), ("zero", False)):
        executable = rx.build(mod, "cpu", relax_pipeline=pipeline)
        program = rx.VirtualMachine(executable)["main"].specialised.program([T((2, 6, 9, 9))])
        text = str(stablehlo.emit(program.module))
        assert ("stablehlo.convolution" not in text) == expanded
