"""Convolutions of torch as functions in the layouts that XLA:CPU likes."""

from __future__ import annotations

import numpy as np
import torch

import relax2xla as rx
from relax2xla import op as R


def with_expected(
    layer: torch.nn.Conv2d, shape: tuple[int, ...], rng: np.random.Generator
) -> tuple[rx.Function, np.ndarray, np.ndarray]:
    """The layer (without bias) in NHWC and HWIO, an input of ``shape`` (NCHW), torch's result."""
    x = rng.standard_normal(shape).astype("f")
    var = rx.Var("x", rx.TensorStructInfo(shape))
    conv = R.nn.conv2d(
        R.permute_dims(var, [0, 2, 3, 1]),
        rx.const(layer.weight.detach().numpy().transpose(2, 3, 1, 0)),
        strides=layer.stride,
        padding=layer.padding,
        dilation=layer.dilation,
        groups=layer.groups,
        data_layout="NHWC",
        kernel_layout="HWIO",
    )
    builder = rx.BlockBuilder()
    with builder.function("main", [var]):
        builder.emit_func_output(builder.emit(R.permute_dims(conv, [0, 3, 1, 2])))
    with torch.no_grad():
        expected = layer(torch.from_numpy(x)).numpy()
    return builder.get()["main"], x, expected
