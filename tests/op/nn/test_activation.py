"""Activations and softmax: values against torch, extremes, errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from relax2xla import tir
from relax2xla.errors import OpError
from relax2xla.ir import TensorStructInfo, Var
from relax2xla.op import nn
from tests.op.nn.support import Batch

DTYPES = {torch.float32: 2e-6, torch.float64: 1e-12, torch.float16: 2e-3, torch.bfloat16: 1e-2}
VALUES = [
    -200.0,
    -88.0,
    -10.0,
    -3.0,
    -1.0,
    -1e-3,
    -1e-6,
    0.0,
    1e-6,
    0.5,
    1.0,
    2.9,
    7.0,
    30.0,
    200.0,
]

ACTIVATIONS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "relu": (nn.relu, F.relu),
    "relu6": (nn.relu6, F.relu6),
    "leakyrelu": (lambda x: nn.leakyrelu(x, 0.2), lambda x: F.leaky_relu(x, 0.2)),
    "gelu": (nn.gelu, F.gelu),
    "gelu_tanh": (nn.gelu_tanh, lambda x: F.gelu(x, approximate="tanh")),
    "silu": (nn.silu, F.silu),
    "selu": (nn.selu, F.selu),
    "softplus": (nn.softplus, F.softplus),
    "softplus 2 3": (lambda x: nn.softplus(x, 2.0, 3.0), lambda x: F.softplus(x, 2.0, 3.0)),
    "softmax": (nn.softmax, lambda x: F.softmax(x, -1)),
    "log_softmax": (nn.log_softmax, lambda x: F.log_softmax(x, -1)),
}


@pytest.mark.parametrize("dtype", DTYPES)
def test_values(dtype: torch.dtype) -> None:
    batch = Batch()
    x = torch.tensor(VALUES, dtype=dtype)
    v = batch.var(x)
    for name, (relax, ref) in ACTIVATIONS.items():
        batch.add(name, relax(v), ref(x.double()).to(dtype), DTYPES[dtype])
    batch.check()


def test_not_a_number_and_infinities() -> None:
    batch = Batch()
    x = torch.tensor([float("nan"), float("inf"), 1.0])
    v = batch.var(x)
    for name in ("relu", "relu6", "leakyrelu", "gelu", "silu", "selu", "softplus"):
        relax, ref = ACTIVATIONS[name]
        # In float32, torch's gelu of infinity is another one on AVX2 and on AVX-512.
        batch.add(name, relax(v), ref(x.double()).float())
    low = torch.tensor([[float("-inf"), 1.0, 2.0], [1e30, -1e30, 0.0]])
    batch.add("masked", nn.softmax(batch.var(low)), F.softmax(low, -1))
    batch.add("masked log", nn.log_softmax(batch.var(low)), F.log_softmax(low, -1))
    batch.check()


def test_axes_integers_slopes() -> None:
    batch = Batch()
    x = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0))
    v = batch.var(x)
    for axis in (0, 1, -1, -3):
        batch.add(f"softmax {axis}", nn.softmax(v, axis), F.softmax(x, axis))
        batch.add(f"log_softmax {axis}", nn.log_softmax(v, axis), F.log_softmax(x, axis))
    slopes = torch.tensor([0.1, -0.5, 2.0])
    batch.add("prelu", nn.prelu(v, batch.var(slopes)), F.prelu(x, slopes))
    batch.add("one slope", nn.prelu(v, batch.var(slopes[:1])), F.prelu(x, slopes[:1]))
    last = torch.tensor([0.1, -0.5, 2.0, 0.0])
    want = torch.where(x > 0, x, x * last)
    batch.add("last axis", nn.prelu(v, batch.var(last), axis=-1), want)
    i = np.array([-3, 0, 5, 9], np.int32)
    batch.add("int relu", nn.relu(batch.var(i)), np.maximum(i, 0))
    batch.add("int relu6", nn.relu6(batch.var(i)), np.clip(i, 0, 6))
    batch.check()


def tensor(*shape: Any, dtype: str = "float32") -> Var:
    return Var("x", TensorStructInfo(shape, dtype))


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_struct_info_is_that_of_the_operand(name: str) -> None:
    relax = ACTIVATIONS[name][0]
    n = tir.Var("n", "int64")
    for info in (
        TensorStructInfo((n, 4), "float16"),
        TensorStructInfo(None, "float32", ndim=3),
        TensorStructInfo(None, "float32"),
        TensorStructInfo((2, n), ""),
    ):
        assert relax(Var("x", info)).struct_info == info


@pytest.mark.parametrize("name", sorted(set(ACTIVATIONS) - {"relu", "relu6"}))
def test_integers_are_refused(name: str) -> None:
    with pytest.raises(OpError, match=r"`data` must be one of .*got int32.*astype"):
        ACTIVATIONS[name][0](tensor(2, 3, dtype="int32"))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: nn.softmax(tensor(2, 3), 2), r"axis 2 is out of range .*valid: -2..1"),
        (lambda: nn.log_softmax(tensor()), r"a scalar has no axes"),
        (lambda: nn.relu(tensor(2, dtype="bool")), "`data` must be one of"),
        (lambda: nn.softplus(tensor(2), beta=0), "`beta` must not be 0"),
        (lambda: nn.prelu(tensor(2, 3), tensor(4)), "4 slopes, but axis 1 of `data` has 3"),
        (lambda: nn.prelu(tensor(2, 3), tensor(3), axis=2), "axis 2 is out of range"),
        (lambda: nn.prelu(tensor(2, 3), tensor(3, 1)), "`alpha` must have rank 1"),
        (lambda: nn.prelu(tensor(2, 3), tensor(3, dtype="float16")), "must have one dtype"),
    ],
)
def test_errors(call: Any, message: str) -> None:
    with pytest.raises(OpError, match=message):
        call()
