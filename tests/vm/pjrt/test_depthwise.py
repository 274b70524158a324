"""The functions in C++ for depthwise convolutions, against their forms in rows and torch."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from relax2xla.errors import TVMError
from relax2xla.kernels.depthwise import (
    ENDINGS,
    FAMILY,
    LAYOUTS,
    Convolution,
    Expanded,
    WeightGradient,
)
from relax2xla.kernels.native import Call, Tensor
from relax2xla.runtime.compiler import has_compiler
from relax2xla.runtime.native import NativeFunction
from relax2xla.testing import evaluate
from relax2xla.transform.cpu.calls.depthwise import form
from relax2xla.vm.pjrt import native_calls

from . import native_programs
from .native_programs import Array, no_library, program, replaced, run

pytestmark = pytest.mark.skipif(not has_compiler(), reason="needs a C++ compiler")


@functools.cache
def library() -> Mapping[str, NativeFunction]:
    return native_calls.library(FAMILY, FAMILY.flags())


def called(call: Convolution | WeightGradient, operands: list[Array]) -> Array:
    """What the function in C++ gives."""
    return native_programs.called(library(), call, operands)


def operands_of(call: Call) -> list[Array]:
    rng = np.random.default_rng(len(call.operands))
    return [rng.standard_normal(t.shape, "float32") for t in call.operands]


# Channels that fill vectors, overlap in the last, and fill none; windows of every width, even ones,
# and taller than wide; steps that differ; padding that differs, and rows under padding alone.
CONVOLUTIONS = [
    Convolution((2, 9, 11, 32), (3, 3), (1, 1), (1, 1, 1, 1)),
    Convolution((1, 30, 31, 24), (5, 5), (2, 2), (2, 2, 2, 2)),
    Convolution((1, 15, 16, 21), (7, 7), (1, 1), (3, 3, 3, 3)),
    Convolution((3, 8, 9, 5), (2, 4), (1, 2), (0, 3, 1, 0)),
    Convolution((1, 6, 40, 16), (9, 1), (3, 1), (8, 0, 9, 0)),
    Convolution((2, 4, 5, 17), (1, 6), (5, 2), (0, 2, 0, 7)),
    # Several bands of lines, and several parts.
    Convolution((1, 150, 112, 40), (3, 3), (1, 1), (1, 1, 1, 1)),
]


@pytest.mark.parametrize("layouts", [(a, b) for a in LAYOUTS for b in LAYOUTS])
@pytest.mark.parametrize("call", CONVOLUTIONS, ids=range(len(CONVOLUTIONS)))
def test_convolutions(call: Convolution, layouts: tuple[str, str]) -> None:
    call = replace(call, image_layout=layouts[0], result_layout=layouts[1])
    assert not call.problem()
    operands = operands_of(call)
    wanted = evaluate(form(call), operands)
    np.testing.assert_allclose(called(call, operands), wanted, rtol=1e-5, atol=2e-5)


# Of products whose rows are short or long, and fill tiles or do not; bands that go on with lines of
# the one before, and one that has all it reads.
EXPANDED = [
    Expanded((2, 9, 11, 32), (3, 3), (1, 1), (1, 1, 1, 1), given=5, first="relu"),
    Expanded((1, 60, 31, 24), (5, 5), (2, 2), (2, 2, 2, 2), given=16, first="silu"),
    Expanded((3, 8, 9, 5), (2, 4), (1, 2), (0, 3, 1, 0), given=3, first="hardswish"),
    Expanded((1, 6, 40, 16), (9, 1), (3, 1), (8, 0, 9, 0), given=1),
    Expanded((2, 150, 112, 72), (3, 3), (1, 1), (1, 1, 1, 1), given=12, first="relu6"),
    Expanded((1, 5, 700, 200), (4, 3), (1, 1), (3, 1, 3, 1), given=2, first="gelu"),
]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("call", EXPANDED, ids=range(len(EXPANDED)))
def test_convolutions_of_products(call: Expanded, layout: str) -> None:
    call = replace(call, result_layout=layout, ending="relu" if layout == "NCHW" else "")
    assert not call.problem()
    operands = operands_of(call)
    # What lies behind the last result of a panel is no number of the product.
    operands[1][-1, :, (call.image[3] - 1) % 16 + 1 :] = 0
    wanted = evaluate(form(call), operands)
    np.testing.assert_allclose(called(call, operands), wanted, rtol=1e-5, atol=5e-5)


@pytest.mark.usefixtures("quickly_compiled")
@pytest.mark.parametrize("call", CONVOLUTIONS, ids=range(len(CONVOLUTIONS)))
@pytest.mark.parametrize("layouts", [(a, b) for a in LAYOUTS for b in LAYOUTS])
def test_weight_gradients(call: Convolution, layouts: tuple[str, str]) -> None:
    where = (call.window, call.strides, *call.padding[:2], *layouts)
    gradient = WeightGradient(call.image, call.made, *where)
    assert not gradient.problem()
    x, g = operands_of(gradient)
    weight = torch.zeros(call.image[3], 1, *call.window, requires_grad=True)
    planes, given = (
        torch.from_numpy(v if layout == "NCHW" else np.moveaxis(v, -1, 1))
        for v, layout in zip((x, g), layouts, strict=True)
    )
    top, left, bottom, right = call.padding
    padded = torch.nn.functional.pad(planes, (left, right, top, bottom))
    made = torch.nn.functional.conv2d(padded, weight, None, call.strides, groups=call.image[3])
    made.backward(given)
    assert weight.grad is not None
    wanted = np.moveaxis(weight.grad.numpy(), [2, 3, 1, 0], [0, 1, 2, 3])
    np.testing.assert_allclose(called(gradient, [x, g]), wanted, rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(evaluate(form(gradient), [x, g]), wanted, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("ending", ENDINGS)
def test_what_follows(ending: str) -> None:
    call = replace(CONVOLUTIONS[0], ending=ending)
    x, weight, bias = operands_of(call)
    bias *= 5
    x[0, 3, 3, 1] = np.nan
    made = called(call, [x, weight, bias])
    wanted = evaluate(form(call), [x, weight, bias])
    assert np.isnan(made).sum() == 9
    np.testing.assert_allclose(made, wanted, rtol=1e-5, atol=1e-5)


def test_composites_become_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Large ones in parts, on the threads of the program: the numbers are the same."""
    made = replaced(monkeypatch)
    small = WeightGradient((2, 9, 9, 8), (2, 9, 9, 8), (3, 3), (1, 1), 1, 1)
    large = CONVOLUTIONS[-1]
    of_large = WeightGradient(large.image, large.made, large.window, large.strides, 1, 1)
    for call in (CONVOLUTIONS[1], EXPANDED[1], small, large, EXPANDED[4], of_large):
        operands = operands_of(call)
        got = run(program(call, FAMILY, form(call)), operands)
        np.testing.assert_array_equal(got, called(call, operands))
    assert [m.symbol for m in made] == [*FAMILY.symbols] * 2


def test_without_a_library_rows_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    with no_library(monkeypatch):
        call, made = CONVOLUTIONS[1], replaced(monkeypatch)
        operands = operands_of(call)
        wanted = evaluate(form(call), operands)
        got = run(program(call, FAMILY, form(call)), operands)
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=2e-5)
        assert not made
        with pytest.raises(TVMError, match="integers and depthwise"):
            native_calls.require()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"strides": (0, 1)}, "positive"),
        ({"strides": (1, 3)}, "one or two"),
        ({"padding": (0, 0, 0, -1)}, "nothing away"),
        ({"padding": (1 << 21, 0, 0, 0)}, "too large"),
        ({"image_layout": "NHCW"}, "lie as one of"),
        ({"ending": "tanh"}, "what follows"),
        ({"first": "tanh"}, "what follows"),
    ],
)
def test_what_files_bring_is_checked(change: dict[str, Any], why: str) -> None:
    calls = [c for c in (CONVOLUTIONS[0], EXPANDED[0]) if {*change} <= {*c.attributes}]
    assert calls
    for call in calls:
        attributes = {**call.attributes, **change}
        found = FAMILY.read(call.name, attributes, call.operands, [call.result])
        assert isinstance(found, str)
        assert why in found


def test_what_would_take_all_memory_is_refused() -> None:
    """Lines under a row of results are in memory at once, those of a product for all channels."""
    far = (0, 1 << 19, 0, 1 << 19)
    for call in (
        Convolution((1, 1, 1, 1), (64, 1), (1, 1), (63, *far[1:])),
        Expanded((1, 1, 1, 1 << 10), (1, 1), (1, 1), far, given=1),
    ):
        assert "too large" in call.problem()
        assert not replace(call, padding=(63, 0, 0, 0)).problem()


@pytest.mark.parametrize(
    "call",
    [
        CONVOLUTIONS[2],
        EXPANDED[1],
        WeightGradient((2, 9, 9, 8), (2, 9, 9, 8), (3, 3), (1, 1), 1, 1),
    ],
)
def test_operands_of_other_shapes_are_refused(call: Convolution | WeightGradient) -> None:
    for place in range(len(call.operands)):
        for shape in ((*call.operands[place].shape[:-1], 1), call.operands[place].shape[:-1]):
            given = call.operands
            given[place] = Tensor(shape, "float32")
            found = FAMILY.read(call.name, call.attributes, given, [call.result])
            assert isinstance(found, str), (place, shape)
    assert FAMILY.read(call.name, call.attributes, call.operands, [call.result]) == call
    assert isinstance(FAMILY.read(call.name, {}, call.operands, [call.result]), str)
