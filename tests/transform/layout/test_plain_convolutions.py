"""PlainConvolutions: what becomes a convolution gives torch's values, the rest stays."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import relax2xla as rx
from relax2xla import op as R
from relax2xla.ir.op import is_op
from relax2xla.ir.rewrite import bindings_of
from relax2xla.testing import evaluate
from relax2xla.transform import PlainConvolutions, get_pipeline
from relax2xla.transform.layout.propagation import dims_of

RNG = np.random.default_rng(3)
Case = tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]
# The shapes of the image and of the weight (in, out / groups, space), and options.
PLAIN: list[Case] = [
    ((2, 6, 9, 8), (6, 5, 3, 3), {"padding": 1}),
    ((1, 4, 7, 5), (4, 3, 1, 1), {}),
    ((1, 4, 8, 9), (4, 3, 2, 4), {"padding": (1, 2)}),
    ((1, 3, 8, 9), (3, 2, 3, 2), {"dilation": (2, 3), "padding": (4, 0)}),
    ((2, 6, 5, 5), (6, 2, 3, 3), {"groups": 3, "padding": 1}),
    ((2, 6, 9), (6, 5, 3), {"padding": 1}),
    ((2, 6, 9), (6, 2, 3), {"groups": 3, "dilation": 2}),
    ((1, 4, 3, 5, 4), (4, 3, 2, 3, 3), {"padding": (1, 0, 2), "dilation": (1, 2, 1)}),
    ((2, 4, 3, 3, 3), (4, 3, 3, 2, 1), {"groups": 2}),
]
# Taps per step: as many each (4x4 by 2), 1, 2, 2 and 4 (3x3 by 2), none for some (1x1, 2x1 by 3).
BLOCKS: list[Case] = [
    ((2, 6, 5, 4), (6, 5, 4, 4), {"strides": 2, "padding": 1}),
    ((2, 6, 5, 4), (6, 5, 2, 2), {"strides": 2}),
    ((2, 6, 4, 4), (6, 5, 3, 3), {"strides": 2, "padding": 1}),
    ((2, 6, 4, 4), (6, 5, 3, 3), {"strides": 2, "padding": 1, "output_padding": 1}),
    ((2, 6, 4, 3), (6, 5, 1, 1), {"strides": 2}),
    # As many places as there are, of which others are cut off than are added.
    ((2, 3, 4, 5), (3, 3, 3, 3), {"strides": 3, "padding": 1, "output_padding": 2}),
    ((2, 6, 4, 3), (6, 5, 1, 1), {"strides": 2, "output_padding": 1}),
    ((1, 4, 7, 7), (4, 3, 2, 1), {"strides": (3, 2), "output_padding": (2, 0)}),
    ((1, 4, 7, 7), (4, 3, 3, 3), {"strides": (1, 2)}),
    ((1, 4, 7, 6), (4, 3, 3, 5), {"strides": (2, 3), "padding": (3, 4), "output_padding": (1, 2)}),
    ((1, 4, 7, 6), (4, 30, 3, 5), {"strides": (2, 3), "padding": (3, 5)}),
    ((2, 6, 9), (6, 5, 4), {"strides": 2, "padding": 1}),
    ((1, 6, 3, 5, 4), (6, 5, 2, 2, 2), {"strides": 2}),
    ((1, 6, 3, 5, 4), (6, 5, 2, 1, 3), {"strides": (2, 2, 3), "padding": (1, 0, 1)}),
]
PHASES: list[Case] = [
    ((2, 6, 5, 4), (6, 18, 4, 4), {"strides": 2, "padding": 1}),
    ((2, 6, 4, 4), (6, 18, 3, 3), {"strides": 2, "padding": 1}),
    ((2, 6, 4, 4), (6, 18, 3, 3), {"strides": 2, "padding": 1, "output_padding": 1}),
    ((1, 6, 7, 5), (6, 18, 5, 4), {"strides": (3, 1), "padding": (1, 2), "output_padding": (2, 0)}),
    ((1, 6, 9), (6, 18, 4), {"strides": 2, "padding": 1}),
    ((2, 6, 5, 4), (6, 3, 4, 4), {"strides": 2, "padding": 1, "groups": 3}),
    ((2, 6, 5, 4), (6, 3, 2, 2), {"strides": 2, "groups": 2}),
    ((1, 4, 3, 3, 3), (4, 3, 3, 3, 3), {"strides": 2, "padding": 1, "output_padding": 1}),
    ((2, 4, 3, 5, 4), (4, 3, 4, 3, 2), {"strides": (2, 1, 2), "padding": (1, 1, 0)}),
    ((1, 4, 3, 3, 3), (4, 3, 2, 2, 2), {"strides": 2, "groups": 2}),
]
OTHERS: list[Case] = [
    ((1, 4, 7, 7), (4, 3, 3, 3), {"strides": 2, "dilation": 2}),
    ((1, 4, 7, 7), (4, 2, 1, 1), {"strides": 2, "groups": 2}),
    ((1, 4, 7, 7), (4, 3, 2, 2), {"padding": 2}),
    ((1, 4, 7, 7), (4, 1, 3, 3), {"groups": 4}),
    ((1, 4, 7, 7), (4, 1, 3, 3), {"strides": 2, "groups": 4}),
    ((1, 7, 7, 4), (4, 3, 3, 3), {"data_layout": "NHWC"}),
    ((1, 7, 7, 4), (4, 3, 3, 3), {"data_layout": "NHWC", "strides": 2}),
    ((1, 7, 4), (4, 3, 3), {"data_layout": "NWC"}),
    ((1, 4, 3, 3, 3), (4, 3, 3, 3, 3), {"strides": 2, "dilation": 2}),
    ((1, 4, 3, 3, 3), (4, 3, 1, 2, 2), {"strides": 2, "groups": 2}),
    ((1, 4, 3, 3, 3), (4, 3, 2, 2, 2), {"padding": 2}),
]


def module(
    image: tuple[Any, ...],
    weight: tuple[int, ...] | np.ndarray[Any, Any],
    options: dict[str, Any],
    dtype: str = "float32",
) -> rx.IRModule:
    """A transposed convolution; the weight is given by its shape, or constant."""
    x = rx.Var("x", rx.TensorStructInfo(image, dtype))
    w = rx.Var("w", rx.TensorStructInfo(weight, dtype)) if isinstance(weight, tuple) else None
    operator = {3: R.nn.conv1d_transpose, 4: R.nn.conv2d_transpose, 5: R.nn.conv3d_transpose}
    builder = rx.BlockBuilder()
    with builder.function("main", [x] if w is None else [x, w]):
        with builder.dataflow():
            made = operator[len(image)](x, rx.const(weight) if w is None else w, **options)
            result = builder.emit_output(made)
        builder.emit_func_output(result)
    return builder.get()


def convolutions(mod: rx.IRModule) -> list[str]:
    """Their operators, in order."""
    values = [b.value for b in bindings_of(mod["main"].body)]
    names = [f"conv{n}d{kind}" for n in (1, 2, 3) for kind in ("", "_transpose")]
    return [n for v in values for n in names if is_op(v, f"relax.nn.{n}")]


def check(case: Case, constant: bool = False) -> list[str]:
    """The convolutions that the pass makes of a case, whose values are those of torch."""
    image, shape, options = case
    x, w = (RNG.standard_normal(s, "float32") for s in (image, shape))
    mod = module(image, w if constant else shape, options)
    made = PlainConvolutions()(mod)
    assert made["main"].ret_struct_info == mod["main"].ret_struct_info
    call = getattr(torch.nn.functional, f"conv_transpose{len(image) - 2}d")
    named = {"stride" if k == "strides" else k: v for k, v in options.items()}
    wanted = call(torch.from_numpy(x).double(), torch.from_numpy(w).double(), **named)
    got = np.asarray(evaluate(made["main"], [x] if constant else [x, w]))
    np.testing.assert_allclose(got, wanted.numpy(), rtol=1e-5, atol=2e-5)
    return convolutions(made)


def plain(case: Case) -> str:
    """The operator that it becomes: lines become planes."""
    return f"conv{max(2, len(case[0]) - 2)}d"


@pytest.mark.parametrize("case", PLAIN, ids=range(len(PLAIN)))
def test_with_steps_of_1_they_are_one_convolution(case: Case) -> None:
    assert check(case) == [plain(case)]


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("case", BLOCKS, ids=range(len(BLOCKS)))
def test_one_product_has_all_blocks(case: Case, constant: bool) -> None:
    assert check(case, constant) == ["conv2d"]


@pytest.mark.parametrize("case", PHASES, ids=range(len(PHASES)))
def test_each_phase_is_a_convolution(case: Case) -> None:
    strides = case[2]["strides"]
    phases = strides ** (len(case[0]) - 2) if isinstance(strides, int) else math.prod(strides)
    assert check(case, constant=True) == [plain(case)] * phases


def test_weights_that_are_given_are_turned_for_many_pixels_alone() -> None:
    options = {"strides": 2, "padding": 1}
    assert len(check(((1, 6, 6, 5), (6, 18, 4, 4), options))) == 4
    assert len(check(((1, 6, 5, 5), (6, 18, 4, 4), options))) == 1


@pytest.mark.parametrize("constant", [False, True])
def test_with_steps_of_1_and_few_pixels_a_given_weight_is_read_as_it_lies(constant: bool) -> None:
    image, shape = (1, 36, 3, 3), (36, 5, 3, 3)
    mod = module(image, np.ones(shape, "float32") if constant else shape, {"padding": 1})
    made = PlainConvolutions()(mod)["main"]
    assert check((image, shape, {"padding": 1}), constant) == ["conv2d"]
    turned = [b for b in bindings_of(made.body) if is_op(b.value, "relax.flip")]
    assert bool(turned) is constant


@st.composite
def _cases(draw: st.DrawFn) -> Case:
    rank, groups = draw(st.integers(1, 3)), draw(st.sampled_from([1, 1, 2]))

    def each(low: int, high: int) -> list[int]:
        return [draw(st.integers(low, high)) for _ in range(rank)]

    space, window, strides = each(1, 5), each(1, 5), each(1, 3)
    padding = [draw(st.integers(0, k)) for k in window]
    more = [draw(st.integers(0, s - 1)) for s in strides]
    made = [
        (size - 1) * s - 2 * p + k + m
        for size, s, p, k, m in zip(space, strides, padding, window, more, strict=True)
    ]
    assume(min(made) > 0)
    channels, results = 2 * groups, draw(st.sampled_from([2, 18]))
    options = {"strides": strides, "padding": padding, "output_padding": more, "groups": groups}
    return (draw(st.integers(1, 2)), channels, *space), (channels, results, *window), options


@given(_cases(), st.booleans())
@settings(deadline=None, max_examples=20)
def test_values_of_any_are_those_of_torch(case: Case, constant: bool) -> None:
    check(case, constant)


@pytest.mark.parametrize("case", OTHERS, ids=range(len(OTHERS)))
def test_others_stay(case: Case) -> None:
    mod = module(*case)
    assert PlainConvolutions()(mod) is mod


def test_sums_in_half_precision_are_not_taken_apart() -> None:
    mod = module((1, 4, 7, 7), (4, 3, 3, 3), {"strides": 2}, "float16")
    assert PlainConvolutions()(mod) is mod


def test_images_of_any_size() -> None:
    n = rx.tir.Var("n", "int64")
    mod = module((n, 6, 9, n), (6, 5, 3, 3), {"padding": 1})
    made = PlainConvolutions()(mod)
    assert convolutions(made) == ["conv2d"]
    assert made["main"].ret_struct_info == mod["main"].ret_struct_info
    mod = module((n, 6, 9, n), (6, 5, 3, 3), {"strides": 2})
    assert PlainConvolutions()(mod) is mod


@pytest.mark.parametrize("results", [5, 18])
def test_batches_of_any_size(results: int) -> None:
    w = RNG.standard_normal((6, results, 3, 3), "float32")
    mod = module((rx.tir.Var("n", "int64"), 6, 5, 4), w, {"strides": 2})
    made = PlainConvolutions()(mod)
    assert len(convolutions(made)) == (4 if results > 16 else 1)
    assert made["main"].ret_struct_info == mod["main"].ret_struct_info
    x = RNG.standard_normal((2, 6, 5, 4), "float32")
    wanted = torch.nn.functional.conv_transpose2d(*map(torch.from_numpy, (x, w)), stride=2)
    got = np.asarray(rx.VirtualMachine(rx.build(mod))["main"](x))
    np.testing.assert_allclose(got, wanted.numpy(), rtol=1e-5, atol=2e-5)


def test_channels_stay_last_between_them() -> None:
    """What follows reads the result as it lies, with the channels last."""
    x = rx.Var("x", rx.TensorStructInfo((1, 32, 8, 8)))
    builder = rx.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            value: rx.Expr = x
            for k in (4, 2):
                w = RNG.standard_normal((32, 32, k, k), "float32")
                made = builder.emit(R.nn.conv2d_transpose(value, rx.const(w), strides=2))
                value = builder.emit(R.nn.relu(made))
            result = builder.emit_output(value)
        builder.emit_func_output(result)
    made = get_pipeline("default")(builder.get())["main"]
    sizes = [dims_of(b.var) for b in bindings_of(made.body) if is_op(b.value, "relax.nn.relu")]
    assert sizes == [(1, 18, 18, 32), (1, 36, 36, 32)]


def test_what_is_stated_of_the_result_is_kept() -> None:
    mod = module((1, 4, 7, 7), (4, 3, 3, 3), {"out_dtype": "float32"})
    assert PlainConvolutions()(mod)["main"].ret_struct_info == mod["main"].ret_struct_info
