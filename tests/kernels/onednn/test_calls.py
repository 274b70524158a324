"""Descriptions of calls: what is right goes there and back, what is wrong is said before XLA."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from relax2xla.kernels.native import Tensor
from relax2xla.kernels.onednn import choice
from relax2xla.kernels.onednn.calls import (
    FEATURES,
    FUSIONS,
    Call,
    Convolution,
    Product,
    read,
)

CONV = Convolution((1, 8, 9, 12), (3, 2, 4, 6), (1, 2), (1, 1, 0, 1), (2, 1), 3)
PRODUCT = Product(Tensor((2, 5, 7), "float32"), Tensor((2, 7, 3), "float32"))
INTEGERS = Product(Tensor((5, 7), "uint8"), Tensor((7, 3), "int8"))


@pytest.mark.parametrize("name", FEATURES)
def test_each_feature_has_a_call_that_is_right_and_needs_it(name: str) -> None:
    call = FEATURES[name]
    assert call.problem() == ""
    assert name in call.features
    assert read(call.name, call.attributes, call.operands, [call.result]) == call


def test_shapes_of_results() -> None:
    assert CONV.result == Tensor((1, 6, 5, 6), "float32")
    assert PRODUCT.result == Tensor((2, 5, 3), "float32")
    turned = Product(Tensor((7, 5), "uint8"), Tensor((3, 7), "int8"), True, True)
    assert turned.result == INTEGERS.result == Tensor((5, 3), "int32")


def test_operands_of_what_is_fused() -> None:
    fusions = ("BIAS", "BINARY_ADD", "TANH")
    assert [t.shape for t in replace(CONV, fusions=fusions).operands[2:]] == [(6,), (1, 6, 5, 6)]
    given = [t.shape for t in replace(PRODUCT, fusions=fusions).operands[2:]]
    assert given == [(1, 1, 3), (2, 5, 3)]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"groups": 2}, "do not fit the groups"),
        ({"window": (3, 2, 4, 7)}, "do not fit the groups"),
        ({"strides": (0, 1)}, "positive"),
        ({"strides": (1,)}, "each axis"),
        ({"padding": (5, 0, 0, 0)}, "smaller than the window"),
        ({"padding": (-1, 0, 0, 0)}, "smaller than the window"),
        ({"window": (9, 2, 4, 6)}, "larger than the image"),
        ({"image": (1, 12)}, "1 to 3 axes"),
        ({"fusions": ("MISH",)}, "are fused"),
        ({"fusions": ("TANH",) * 4}, "are fused"),
        ({"fusions": ("TANH", "BIAS")}, "a bias comes first"),
        ({"image": (1 << 20, 80, 90, 12)}, "elements"),
    ],
)
def test_wrong_convolutions(change: dict[str, Any], said: str) -> None:
    assert CONV.problem() == ""
    assert said in replace(CONV, **change).problem()


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (replace(PRODUCT, right=Tensor((2, 6, 3), "float32")), "do not fit"),
        (replace(PRODUCT, right=Tensor((7, 3), "float32")), "same in front"),
        (replace(PRODUCT, right=Tensor((2, 7, 3), "int8")), "multiplies"),
        (replace(INTEGERS, fusions=("TANH",)), "integers"),
    ],
)
def test_wrong_products(call: Call, said: str) -> None:
    assert said in call.problem()


@pytest.mark.parametrize(
    "change",
    [
        {"groups": True},
        {"strides": "11"},
        {"strides": (1.0, 2)},
        {"fusions": (1,)},
        {"padding": None},
    ],
)
def test_attributes_of_other_kinds_are_refused(change: dict[str, Any]) -> None:
    given = {**CONV.attributes, **change}
    made = read(CONV.name, given, CONV.operands, [CONV.result])
    assert isinstance(made, str)
    assert "attributes" in made


def test_what_does_not_fit_its_attributes_is_refused() -> None:
    def of(operands: list[Tensor], result: Tensor, name: str = CONV.name) -> Call | str:
        return read(name, CONV.attributes, operands, [result])

    image, window = CONV.operands
    assert of([image, window], CONV.result) == CONV
    assert isinstance(of([image, window], Tensor((1, 6, 6, 6), "float32")), str)
    assert isinstance(of([image, window, window], CONV.result), str)
    assert isinstance(of([image, Tensor(window.shape, "int8")], CONV.result), str)
    assert isinstance(of([image], CONV.result), str)
    assert isinstance(of([image, window], CONV.result, "relax2xla.onednn.pooling"), str)


def test_every_fusion_is_tried_behind_both() -> None:
    for fusion in FUSIONS:
        for kind in ("convolution", "product"):
            assert FEATURES[f"{kind} {fusion}"].fusions == (fusion,)


def test_the_table() -> None:
    grouped = Convolution((1, 56, 56, 128), (3, 3, 4, 128), (1, 1), (1,) * 4, (1, 1), 32)
    assert choice.kind_of(grouped) == "groups"
    for kind in choice.TABLE:
        assert choice.gain(grouped, kind) > 0
        # What is small is as fast in rows.
        assert choice.gain(replace(grouped, image=(1, 3, 3, 128)), kind) == 0
    assert choice.gain(grouped, "an unknown processor") == 0
    assert not choice.is_faster_somewhere(PRODUCT)
    assert choice.pays(0.01, 100)
    assert not choice.pays(0.0001, 100)
