"""GatherWindows: the same results as torch, and no convolution left."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import relax2xla as rx
from relax2xla import op as R
from relax2xla.ir.op import is_op
from relax2xla.ir.rewrite import bindings_of
from relax2xla.transform.core import run_on_function
from relax2xla.transform.cpu.convolutions.gather_windows import GatherWindows
from tests.transform.cpu.convolutions.of_torch import with_expected

T = rx.TensorStructInfo
RNG = np.random.default_rng(5)

# Image, window, options, and how many taps a row of the gathered matrix has.
CASES: dict[str, tuple[tuple[int, ...], tuple[int, int], dict[str, Any], int | None]] = {
    "all of a 3x3 on 2x2": ((2, 64, 2, 2), (3, 3), {"padding": 1}, 9),
    "one of a 3x3 on one pixel": ((1, 64, 1, 1), (3, 3), {"padding": 1}, 1),
    "stride 2 leaves the last rows": ((3, 64, 2, 2), (3, 3), {"padding": 1, "stride": 2}, 4),
    "one axis alone is cut": ((2, 64, 1, 4), (5, 3), {"padding": (2, 1)}, 3),
    "dilated": ((2, 64, 2, 3), (3, 3), {"padding": 2, "dilation": 2}, 3),
    "every second tap of those on one row": (
        (1, 64, 1, 2),
        (5, 2),
        {"padding": (4, 1), "stride": (2, 1)},
        10,
    ),
    "no padding": ((2, 64, 3, 3), (3, 3), {}, None),
}


def convolution(name: str) -> tuple[rx.Function, np.ndarray, np.ndarray]:
    shape, window, options, _ = CASES[name]
    return with_expected(torch.nn.Conv2d(64, 40, window, bias=False, **options), shape, RNG)


@pytest.mark.parametrize("name", CASES)
def test_results_are_torchs(name: str) -> None:
    func, x, expected = convolution(name)
    made, taps = run_on_function([GatherWindows()], func, "main"), CASES[name][3]
    if taps is None:  # the image is as large as the window
        assert made is func
        return
    values = [b.value for b in bindings_of(made.body)]
    assert not any(is_op(v, "relax.nn.conv2d") for v in values)
    (product,) = (v for v in values if is_op(v, "relax.matmul"))
    assert isinstance(product, rx.Call)
    assert product.args[0].struct_info == T((expected[:, 0].size, taps * 64), "float32")
    np.testing.assert_allclose(rx.testing.evaluate(made, [x]), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("image", "window", "options"),
    [
        ((1, 2, 2, 64), (3, 3, 32, 64), {"groups": 2, "padding": 1}),
        ((1, 2, 2, 4), (3, 3, 4, 4), {"padding": 1}),
        ((1, 2, 2, 64), (9, 9, 64, 64), {"padding": 4}),
    ],
    ids=["grouped", "few channels", "large window"],
)
def test_other_convolutions_stay(
    image: tuple[int, ...], window: tuple[int, ...], options: dict[str, Any]
) -> None:
    x = rx.Var("x", T(image))
    w = rx.const(np.ones(window, "f"))
    conv = R.nn.conv2d(x, w, data_layout="NHWC", kernel_layout="HWIO", **options)
    func = rx.Function([x], conv)
    assert run_on_function([GatherWindows()], func, "main") is func
