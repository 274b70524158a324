"""KernelsAsGiven: the same results as torch, by one product with the kernel as it lies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import relax2xla as rx
from relax2xla import op as R
from relax2xla.ir.op import is_op
from relax2xla.ir.rewrite import bindings_of
from relax2xla.transform import DeadCodeElimination
from relax2xla.transform.core import run_on_function
from relax2xla.transform.cpu.convolutions.kernels_as_given import KernelsAsGiven

RNG = np.random.default_rng(5)
PASSES = [KernelsAsGiven(), DeadCodeElimination()]


def convolution(
    image: tuple[int, ...], kernel: tuple[int, ...], axes: tuple[int, ...] = (2, 3, 1, 0), **kw: Any
) -> rx.Function:
    """A convolution in NHWC of a kernel that is transposed to HWIO."""
    x, w = rx.Var("x", rx.TensorStructInfo(image)), rx.Var("w", rx.TensorStructInfo(kernel))
    builder = rx.BlockBuilder()
    with builder.function("main", [x, w]):
        with builder.dataflow():
            moved = builder.emit(R.permute_dims(w, list(axes)))
            conv = R.nn.conv2d(x, moved, data_layout="NHWC", kernel_layout="HWIO", **kw)
            out = builder.emit_output(conv)
        builder.emit_func_output(out)
    return builder.get()["main"]


@pytest.mark.parametrize(
    ("image", "kernel", "options"),
    [
        ((1, 3, 3, 32), (64, 32, 3, 3), {"padding": 1}),
        ((2, 5, 4, 32), (96, 32, 3, 2), {"strides": 2, "padding": 1}),
        ((1, 5, 5, 40), (64, 40, 3, 3), {"dilation": 2, "padding": 1}),
    ],
    ids=["as large as before", "strides and a batch", "dilated"],
)
def test_results_are_torchs(
    image: tuple[int, ...], kernel: tuple[int, ...], options: dict[str, Any]
) -> None:
    func = convolution(image, kernel, **options)
    made = run_on_function(PASSES, func, "main")
    values = [b.value for b in bindings_of(made.body)]
    assert not any(
        is_op(v, name) for v in values for name in ("relax.nn.conv2d", "relax.permute_dims")
    )
    (product,) = (v for v in values if is_op(v, "relax.einsum"))
    assert isinstance(product, rx.Call)
    assert product.attrs["subscripts"] == "pi,oi->po"
    x, w = (RNG.standard_normal(s).astype("f") for s in (image, kernel))
    torchs = {"stride" if k == "strides" else k: v for k, v in options.items()}
    given = torch.from_numpy(x.transpose(0, 3, 1, 2))
    expected = torch.nn.functional.conv2d(given, torch.from_numpy(w), **torchs)
    found = rx.testing.evaluate(made, [x, w])
    np.testing.assert_allclose(found, expected.numpy().transpose(0, 2, 3, 1), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("image", "kernel", "options"),
    [
        ((1, 9, 9, 32), (64, 32, 3, 3), {"padding": 1}),
        ((1, 3, 3, 4), (64, 4, 3, 3), {"padding": 1}),
        ((1, 3, 3, 64), (64, 32, 3, 3), {"groups": 2, "padding": 1}),
        ((1, 3, 3, 256), (64, 256, 1, 1), {}),
        ((1, 3, 3, 32), (64, 3, 32, 3), {"axes": (1, 3, 2, 0), "padding": 1}),
    ],
    ids=["many pixels", "a small kernel", "grouped", "one tap", "a kernel in another order"],
)
def test_other_convolutions_stay(
    image: tuple[int, ...], kernel: tuple[int, ...], options: dict[str, Any]
) -> None:
    func = convolution(image, kernel, **options)
    assert run_on_function([KernelsAsGiven()], func, "main") is func
