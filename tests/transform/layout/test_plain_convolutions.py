"""PlainConvolutions: what becomes a convolution gives torch's values, the rest stays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import relax2xla as rx
from relax2xla import op as R
from relax2xla.ir.op import is_op
from relax2xla.ir.rewrite import bindings_of
from relax2xla.testing import evaluate
from relax2xla.transform import PlainConvolutions

RNG = np.random.default_rng(3)
# The shapes of the image and of the weight (in, out / groups, height, width), and options.
PLAIN: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((2, 6, 9, 8), (6, 5, 3, 3), {"padding": 1}),
    ((1, 4, 7, 5), (4, 3, 1, 1), {}),
    ((1, 4, 8, 9), (4, 3, 2, 4), {"padding": (1, 2)}),
    ((1, 3, 8, 9), (3, 2, 3, 2), {"dilation": (2, 3), "padding": (4, 0)}),
    ((2, 6, 5, 5), (6, 2, 3, 3), {"groups": 3, "padding": 1}),
]
OTHERS: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((1, 4, 7, 7), (4, 3, 3, 3), {"strides": 2}),
    ((1, 4, 7, 7), (4, 3, 3, 3), {"strides": (1, 2)}),
    ((1, 4, 7, 7), (4, 3, 2, 2), {"padding": 2}),
    ((1, 4, 7, 7), (4, 1, 3, 3), {"groups": 4}),
    ((1, 7, 7, 4), (4, 3, 3, 3), {"data_layout": "NHWC"}),
]


def module(image: tuple[Any, ...], weight: tuple[int, ...], options: dict[str, Any]) -> rx.IRModule:
    x, w = (rx.Var(n, rx.TensorStructInfo(s)) for n, s in (("x", image), ("w", weight)))
    builder = rx.BlockBuilder()
    with builder.function("main", [x, w]):
        with builder.dataflow():
            made = builder.emit_output(R.nn.conv2d_transpose(x, w, **options))
        builder.emit_func_output(made)
    return builder.get()


def kinds(mod: rx.IRModule) -> set[str]:
    values = [b.value for b in bindings_of(mod["main"].body)]
    return {n for n in ("conv2d", "conv2d_transpose") for v in values if is_op(v, f"relax.nn.{n}")}


@pytest.mark.parametrize("case", PLAIN, ids=range(len(PLAIN)))
def test_values_are_those_of_torch(case: tuple[Any, ...]) -> None:
    image, weight, options = case
    mod = module(image, weight, options)
    made = PlainConvolutions()(mod)
    assert kinds(made) == {"conv2d"}
    assert made["main"].ret_struct_info == mod["main"].ret_struct_info
    x, w = (RNG.standard_normal(s, "float32") for s in (image, weight))
    wanted = torch.nn.functional.conv_transpose2d(
        torch.from_numpy(x).double(), torch.from_numpy(w).double(), **options
    )
    got = np.asarray(evaluate(made["main"], [x, w]))
    np.testing.assert_allclose(got, wanted.numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("case", OTHERS, ids=range(len(OTHERS)))
def test_others_stay(case: tuple[Any, ...]) -> None:
    mod = module(*case)
    assert PlainConvolutions()(mod) is mod


def test_images_of_any_size() -> None:
    n = rx.tir.Var("n", "int64")
    mod = module((n, 6, 9, n), (6, 5, 3, 3), {"padding": 1})
    made = PlainConvolutions()(mod)
    assert kinds(made) == {"conv2d"}
    assert made["main"].ret_struct_info == mod["main"].ret_struct_info


def test_what_is_stated_of_the_result_is_kept() -> None:
    mod = module((1, 4, 7, 7), (4, 3, 3, 3), {"out_dtype": "float32"})
    assert PlainConvolutions()(mod)["main"].ret_struct_info == mod["main"].ret_struct_info
