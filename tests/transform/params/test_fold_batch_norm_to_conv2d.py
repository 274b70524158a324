"""FoldBatchnormToConv2D: what it folds, and that values stay."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relax2xla
from relax2xla import transform
from relax2xla.ir import IRModule
from relax2xla.transform import FoldBatchnormToConv2D
from tests.transform.programs import module, operators, same_values, tensor

RNG = np.random.default_rng(12)
VECTORS = {n: RNG.uniform(0.5, 2, 4).astype("float32") for n in ("gamma", "beta", "mean", "var")}
DATA = {"NCHW": (1, 3, 5, 5), "NHWC": (1, 5, 5, 3)}
KERNELS = {"OIHW": (4, 3, 3, 3), "HWIO": (3, 3, 3, 4)}


def network(data: str, kernel: str, *more: str) -> IRModule:
    params = [tensor("x", *DATA[data]), tensor("w", *KERNELS[kernel])]
    return module(
        [*params, *(tensor(n, 4) for n in VECTORS)],
        f"c = R.nn.conv2d(x, w, padding=1, data_layout='{data}', kernel_layout='{kernel}')",
        "b = R.nn.batch_norm(c, gamma, beta, mean, var, training=False, "
        f"axis={data.index('C')}, epsilon=0.01)",
        *(more or ("out = R.nn.relu(b[0])",)),
    )


def bound(mod: IRModule, kernel: str) -> IRModule:
    weights: dict[Any, Any] = {
        **VECTORS,
        "w": RNG.standard_normal(KERNELS[kernel]).astype("float32"),
    }
    return transform.BindParams("main", weights)(mod)


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("kernel", KERNELS)
def test_folded(data: str, kernel: str) -> None:
    mod = network(data, kernel)
    assert FoldBatchnormToConv2D()(mod) is mod  # weights that are arguments
    mod = bound(mod, kernel)
    x = RNG.standard_normal(DATA[data]).astype("float32")
    new = same_values(mod, FoldBatchnormToConv2D(), x)
    assert "nn.batch_norm" not in operators(new)
    assert operators(new)[-4:] == ["nn.conv2d", "reshape", "add", "nn.relu"]


def test_training_says_nothing_here() -> None:
    text = network("NCHW", "OIHW").script()
    mod = relax2xla.script.from_source(text.replace("training=False", "training=True"))
    assert isinstance(mod, IRModule)
    new = FoldBatchnormToConv2D()(bound(mod, "OIHW"))
    assert "nn.batch_norm" not in operators(new)


def test_convolution_that_others_read_stays() -> None:
    mod = bound(network("NCHW", "OIHW", "out = R.add(b[0], c)"), "OIHW")
    assert FoldBatchnormToConv2D()(mod) is mod
