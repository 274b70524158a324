"""ConvolvePlanes: the results of torch, and no convolution of lines or volumes left."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import relax2xla as rx
from relax2xla import op as R
from relax2xla.ir.op import is_op
from relax2xla.ir.rewrite import bindings_of
from relax2xla.transform import ChannelsLast
from relax2xla.transform.core import run_on_function
from relax2xla.transform.cpu.convolutions import planes
from relax2xla.transform.cpu.convolutions.planes import ConvolvePlanes

RNG = np.random.default_rng(3)
CALLS: dict[str, tuple[Any, Any]] = {
    "conv1d": (R.nn.conv1d, F.conv1d),
    "conv3d": (R.nn.conv3d, F.conv3d),
    "conv3d_transpose": (R.nn.conv3d_transpose, F.conv_transpose3d),
}
# Operator, image, weight, attributes.
CASES: dict[str, tuple[str, tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "volume": ("conv3d", (2, 3, 5, 6, 7), (4, 3, 3, 3, 2), {"padding": (1, 1, 0)}),
    "steps": (
        "conv3d",
        (2, 3, 9, 6, 7),
        (4, 3, 2, 3, 2),
        {"strides": (2, 1, 3), "dilation": (3, 2, 1), "padding": (2, 2, 1)},
    ),
    "groups": ("conv3d", (1, 4, 4, 5, 5), (6, 2, 3, 3, 3), {"groups": 2, "padding": (1, 1, 1)}),
    "groups and steps": (
        "conv3d",
        (2, 6, 7, 5, 6),
        (4, 3, 3, 1, 2),
        {"groups": 2, "strides": (2, 1, 2), "dilation": (2, 1, 1), "padding": (2, 0, 1)},
    ),
    "steps in the plane": ("conv3d", (1, 3, 4, 5, 5), (4, 3, 3, 1, 1), {"strides": (1, 2, 1)}),
    "of one slice": ("conv3d", (2, 3, 4, 5, 5), (4, 3, 1, 3, 3), {"padding": (1, 1, 1)}),
    "depthwise": ("conv3d", (1, 4, 4, 5, 5), (4, 1, 3, 3, 3), {"groups": 4}),
    "along the depth alone": ("conv3d", (2, 3, 6, 4, 5), (4, 3, 3, 1, 1), {"padding": (1, 0, 0)}),
    "of one place": ("conv3d", (2, 3, 4, 4, 5), (4, 3, 1, 1, 1), {"strides": (2, 1, 1)}),
    "one of a group each": ("conv3d", (2, 3, 4, 4, 5), (6, 1, 2, 1, 1), {"groups": 3}),
    "patches": ("conv3d", (1, 3, 4, 8, 8), (5, 3, 2, 4, 4), {"strides": (2, 4, 4)}),
    "float64": ("conv3d", (1, 2, 4, 5, 5), (3, 2, 3, 3, 3), {}),
    "transposed": ("conv3d_transpose", (2, 3, 4, 3, 5), (3, 4, 3, 2, 3), {"padding": (1, 0, 1)}),
    "transposed with steps": (
        "conv3d_transpose",
        (1, 4, 3, 3, 4),
        (4, 3, 3, 2, 4),
        {
            "strides": (3, 2, 1),
            "padding": (4, 1, 1),
            "dilation": (2, 1, 2),
            "output_padding": (2, 1, 0),
            "groups": 2,
        },
    ),
    "transposed without overlap": (
        "conv3d_transpose",
        (1, 2, 3, 3, 3),
        (2, 3, 2, 2, 2),
        {"strides": (2, 2, 2)},
    ),
    "line": ("conv1d", (2, 5, 9), (5, 1, 3), {"groups": 5, "padding": (2,)}),
    "line with steps": (
        "conv1d",
        (1, 4, 20),
        (4, 1, 4),
        {"groups": 4, "strides": (3,), "dilation": (2,), "padding": (1,)},
    ),
}
TORCH = {"strides": "stride"}


def function(name: str) -> tuple[rx.Function, list[np.ndarray], np.ndarray]:
    """A convolution of two parameters, what to call it with, and torch's result."""
    kind, image, weight, attrs = CASES[name]
    dtype = "float64" if name == "float64" else "float32"
    args = [RNG.standard_normal(shape).astype(dtype) for shape in (image, weight)]
    ours, theirs = CALLS[kind]
    params = [
        rx.Var(n, rx.TensorStructInfo(a.shape, dtype)) for n, a in zip("xw", args, strict=True)
    ]
    builder = rx.BlockBuilder()
    with builder.function("main", params):
        builder.emit_func_output(builder.emit(ours(*params, **attrs)))
    given = {TORCH.get(k, k): v for k, v in attrs.items()}
    expected = theirs(*map(torch.from_numpy, args), None, **given).numpy()
    return builder.get()["main"], args, expected


VOLUMES = [name for name, (kind, *_) in CASES.items() if kind == "conv3d"]


@pytest.mark.parametrize(
    ("name", "last"), [*((n, False) for n in CASES), *((n, True) for n in VOLUMES)]
)
def test_results_are_torchs(name: str, last: bool) -> None:
    """``last``: after a pass that puts channels last."""
    func, args, expected = function(name)
    before = [ChannelsLast(pointwise_as_matmul=False)] if last else []
    made = run_on_function([*before, ConvolvePlanes()], func, "main")
    values = [b.value for b in bindings_of(made.body) if isinstance(b, rx.VarBinding)]
    assert not any(is_op(v, f"relax.nn.{kind}") for v in values for kind in CALLS)
    assert made.ret_struct_info == func.ret_struct_info
    found = rx.testing.evaluate(made, args)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_a_wide_window_of_a_large_image_is_a_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    """The image with as many channels as there are slices would take too much memory."""
    func, args, expected = function("groups and steps")
    monkeypatch.setattr(planes, "MAX_JOINED", 0)
    made = run_on_function([ConvolvePlanes()], func, "main")
    values = [b.value for b in bindings_of(made.body)]
    assert sum(is_op(v, "relax.nn.conv2d") for v in values) == 3
    found = rx.testing.evaluate(made, args)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_one_convolution_has_all_of_a_window() -> None:
    for name in VOLUMES:
        made = run_on_function([ConvolvePlanes()], function(name)[0], "main")
        values = [b.value for b in bindings_of(made.body)]
        convolutions = sum(is_op(v, "relax.nn.conv2d") for v in values)
        assert convolutions == (3 if name == "depthwise" else 1), name


def test_what_stays() -> None:
    """Lines that are not depthwise, other layouts, half precision, sizes that are not known."""
    n = rx.tir.Var("n")

    def stays(value: rx.Expr, *params: rx.Var) -> None:
        builder = rx.BlockBuilder()
        with builder.function("main", list(params)):
            builder.emit_func_output(builder.emit(value))
        func = builder.get()["main"]
        assert run_on_function([ConvolvePlanes()], func, "main") is func

    def var(*shape: Any, dtype: str = "float32") -> rx.Var:
        return rx.Var("x", rx.TensorStructInfo(shape, dtype))

    line, weight = var(2, 4, 9), var(4, 4, 3)
    stays(R.nn.conv1d(line, weight), line, weight)
    last, kernel = var(1, 4, 5, 5, 3), var(4, 3, 2, 2, 2)
    stays(R.nn.conv3d(last, kernel, data_layout="NDHWC"), last, kernel)
    for size, dtype in ((n, "float32"), (1, "float16")):
        x, w = var(size, 3, 4, 5, 5, dtype=dtype), var(4, 3, 2, 2, 2, dtype=dtype)
        stays(R.nn.conv3d(x, w), x, w)
