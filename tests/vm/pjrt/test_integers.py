"""The functions in C++ for integers against their forms in rows, bit for bit, in both packings."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import relax2xla as rx
from relax2xla.ir import Expr
from relax2xla.kernels.integers.calls import (
    FAMILY,
    Convolution,
    ConvolutionSum,
    MaxPool,
    Product,
    Quantisation,
    Sum,
)
from relax2xla.kernels.integers.packing import Packing, packing
from relax2xla.kernels.native import Call, Tensor
from relax2xla.runtime.compiler import has_compiler
from relax2xla.runtime.native import NativeFunction
from relax2xla.testing import evaluate
from relax2xla.transform.cpu.integers.rows import form, integers_of, packed, unpacked
from relax2xla.vm.pjrt import native_calls

from . import native_programs
from .native_programs import no_library, replaced, run

pytestmark = pytest.mark.skipif(not has_compiler(), reason="needs a C++ compiler")

# That of this processor, and the other way, which the compiler spells out.
PACKINGS = (packing(), Packing(8, not packing().bytes))
RNG = np.random.default_rng(5)
Array = np.ndarray[Any, Any]


@functools.cache
def library(by: Packing, *flags: str) -> Mapping[str, NativeFunction]:
    return native_calls.library(FAMILY, (*by.flags, *flags))


def called(call: Call, operands: list[Array], by: Packing, *flags: str) -> Array:
    """What the function in C++ gives."""
    made = np.zeros(call.result.shape, call.result.dtype)
    library(by, *flags)[call.symbol](*operands, *call.numbers, made)
    return made


@pytest.fixture(autouse=True)
def same_numbers() -> None:
    """Each test has numbers of its own, whichever ran before it."""
    RNG.bit_generator.state = np.random.default_rng(5).bit_generator.state


def numbers(kind: Tensor | tuple[tuple[int, ...], str], low: int = -128, high: int = 256) -> Array:
    """Of all sizes; bytes have their limits often."""
    shape, dtype = kind
    if dtype == "float32":
        return RNG.standard_normal(shape, "float32")
    info = np.iinfo(dtype)
    low, high = max(low, info.min), min(high, info.max + 1)
    made = RNG.integers(low, high, shape)
    return np.where(RNG.random(shape) < 0.2, RNG.choice([low, high - 1], shape), made).astype(dtype)


def values(*made: Expr) -> list[Array]:
    """Expressions of constants."""
    return list(evaluate(rx.Tuple(made), {}))


def rounded(real: Array, zero: int, dtype: str, relu: bool = False) -> Array:
    """Numbers as bytes."""
    info = np.iinfo(dtype)
    low = max(info.min, zero) if relu else info.min
    return np.clip(np.round(real) + zero, low, info.max).astype(dtype)


def constant(array: Array) -> Expr:
    return rx.const(array)


# image, window and results, strides, padding, dilation, groups
WINDOWS: list[tuple[tuple[int, ...], tuple[int, int], int, Any, Any, Any, int]] = [
    ((1, 1, 49, 64), (1, 1), 70, (1, 1), (0, 0, 0, 0), (1, 1), 1),
    ((2, 7, 6, 3), (7, 5), 9, (2, 1), (3, 2, 3, 1), (1, 1), 1),
    ((1, 9, 8, 5), (3, 3), 130, (1, 2), (1, 1, 0, 2), (1, 1), 1),
    ((1, 9, 11, 6), (2, 3), 8, (1, 1), (0, 2, 1, 0), (2, 2), 1),
    ((2, 5, 6, 12), (3, 3), 18, (1, 1), (1, 1, 1, 1), (1, 1), 3),
    ((1, 6, 7, 37), (3, 3), 37, (2, 1), (1, 1, 1, 0), (1, 1), 37),
    ((1, 1, 3, 3000), (1, 1), 5, (1, 1), (0, 0, 0, 0), (1, 1), 1),
    # Whole tiles, parts of some, taps that lie in two, and more rows than are copied at once.
    ((1, 10, 11, 64), (3, 3), 70, (1, 1), (1, 1, 1, 1), (1, 1), 1),
    ((1, 10, 11, 20), (3, 3), 70, (1, 1), (2, 2, 2, 2), (2, 2), 1),
    ((1, 1, 330, 2600), (1, 1), 5, (1, 1), (0, 0, 0, 0), (1, 1), 1),
]


def convolution(at: int, by: Packing, kind: str, dtype: str, **more: Any) -> Convolution:
    image, window, results, *where = WINDOWS[at]
    return Convolution(Tensor(image, kind), window, results, *where, by, dtype, **more)


def convolution_operands(call: Convolution, weight_kind: str, points: bool) -> list[Array]:
    """Operands as the pass makes them, of a weight of that dtype with its own zero points."""
    parts, results = call.parts, call.results
    raw = numbers(((*call.window, parts.channels, results), weight_kind))
    zero = numbers(((results,), weight_kind)) if points else None
    bias = RNG.integers(-(10**6), 10**6, results).astype("int32")
    given = None if zero is None else constant(zero)
    weight, table = values(
        packed(constant(raw), given, parts, call.packed, weight_kind),
        integers_of(constant(bias), constant(raw), given, parts, call.packed, weight_kind),
    )
    size = 0.002 * RNG.random(call.factors).astype("float32")
    return [
        numbers(call.image),
        weight,
        table,
        size,
        3 * RNG.standard_normal(call.addends).astype("float32"),
        np.array([int(numbers(((), call.image.dtype))), int(numbers(((), "uint8")))], "int32"),
    ]


@pytest.mark.parametrize("by", PACKINGS, ids=lambda p: p.name)
@pytest.mark.parametrize("at", range(len(WINDOWS)))
def test_convolution(at: int, by: Packing) -> None:
    for kind, weight_kind, points in (("uint8", "int8", False), ("int8", "uint8", True)):
        call = convolution(at, by, kind, "int32", factors=1)
        operands = convolution_operands(call, weight_kind, points)
        sums = evaluate(form(call), operands)
        np.testing.assert_array_equal(called(call, operands, by), sums)
        for dtype in ("uint8", "int8"):
            bytes_ = replace(call, dtype=dtype, relu=dtype == "int8")
            operands[5][1] = 3 if dtype == "uint8" else -7
            real = sums.astype("float32") * operands[3]
            expected = rounded(real, operands[5][1], dtype, bytes_.relu)
            np.testing.assert_array_equal(called(bytes_, operands, by), expected)


@pytest.mark.parametrize("at", range(len(WINDOWS)))
def test_results_are_those_without_tiles(at: int) -> None:
    """Processors with AMX compute the same sums in another order of the same exact additions."""
    for weight_kind, dtype, points in (("int8", "int32", False), ("uint8", "uint8", True)):
        call = convolution(at, packing(), "uint8", dtype)
        operands = convolution_operands(call, weight_kind, points)
        without = called(call, operands, packing(), "-DRELAX2XLA_TILES=0")
        np.testing.assert_array_equal(called(call, operands, packing()), without)


@pytest.mark.parametrize("relu", [False, True])
def test_forms_of_bytes(relu: bool) -> None:
    """The rows behind the sums, which are the same for all windows."""
    for dtype in ("uint8", "int8"):
        call = convolution(4, packing(), "uint8", dtype, factors=18, relu=relu)
        operands = convolution_operands(call, "int8", True)
        operands[5][1] = -7 if dtype == "int8" else 9
        made = called(call, operands, packing())
        np.testing.assert_array_equal(made, evaluate(form(call), operands))
        assert len(np.unique(made)) > 20


@pytest.mark.parametrize("by", PACKINGS, ids=lambda p: p.name)
def test_sums_are_numpys(by: Packing) -> None:
    """The form itself, by another road: a matrix product of int64."""
    call = convolution(0, by, "int8", "int32")
    raw = numbers(((1, 1, 64, 70), "uint8"))
    zero = numbers(((70,), "uint8"))
    bias = constant(np.zeros(70, "int32"))
    given = (constant(zero), call.parts, by, "uint8")
    weight, table = values(packed(constant(raw), *given), integers_of(bias, constant(raw), *given))
    x = numbers(call.image)
    expected = (x[0, 0].astype("int64") + 128) @ (raw[0, 0].astype("int64") - zero)
    points = np.array([-128, 0], "int32")
    one = np.ones(1, "float32")
    made = called(call, [x, weight, table, one, one, points], by)
    np.testing.assert_array_equal(made[0, 0], expected)


@pytest.mark.parametrize("by", PACKINGS, ids=lambda p: p.name)
def test_factors_and_addends_of_channels(by: Packing) -> None:
    call = convolution(2, by, "uint8", "float32", factors=130, addends=130, added=True)
    operands = convolution_operands(call, "int8", False)
    made, rows = called(call, operands, by), evaluate(form(call), operands)
    np.testing.assert_allclose(made, rows, rtol=1e-6, atol=1e-5)
    # Halves are where addition in one step or in two decides.
    bytes_ = replace(call, dtype="uint8")
    operands[5][1] = 100
    apart = called(bytes_, operands, by).astype("int32") - evaluate(form(bytes_), operands)
    assert np.abs(apart).max() <= 1
    assert np.mean(apart != 0) < 0.001


def with_added_bytes(
    at: int, by: Packing, kind: str, rest: str
) -> tuple[ConvolutionSum, list[Array]]:
    """A convolution and what it takes, bytes of the dtype ``rest`` that are added among it."""
    results = WINDOWS[at][2]
    how = {"factors": results, "addends": results, "added": True}
    call = ConvolutionSum.of(convolution(at, by, kind, "float32", **how), rest)
    operands = convolution_operands(call, "int8", False)
    zeros = np.append(operands[5], numbers(((), rest))).astype("int32")
    scale = np.full(1, 0.03, "float32")
    return call, [*operands[:5], zeros, numbers((call.result.shape, rest)), scale]


@pytest.mark.parametrize("by", PACKINGS, ids=lambda p: p.name)
@pytest.mark.parametrize("at", [0, 2, 4, 5])
def test_bytes_that_are_added(at: int, by: Packing) -> None:
    """Behind factors and addends, in the places of the results: panels, groups, depthwise."""
    for kind, rest, relu in (("uint8", "int8", True), ("int8", "uint8", False)):
        call, operands = with_added_bytes(at, by, kind, rest)
        assert call.problem() == ""
        made, rows = called(call, operands, by), evaluate(form(call), operands)
        np.testing.assert_allclose(made, rows, rtol=1e-6, atol=1e-5)
        bytes_ = replace(call, dtype="uint8", relu=relu)
        operands[5][1] = 100
        apart = called(bytes_, operands, by).astype("int32") - evaluate(form(bytes_), operands)
        assert np.abs(apart).max() <= 1
        assert np.mean(apart != 0) < 0.001


@pytest.mark.parametrize("by", PACKINGS, ids=lambda p: p.name)
def test_packing_is_undone(by: Packing) -> None:
    for at in range(len(WINDOWS)):
        call = convolution(at, by, "uint8", "int32")
        raw = numbers(((*call.window, call.parts.channels, call.results), "int8"))
        (weight,) = values(packed(constant(raw), None, call.parts, by, "int8"))
        assert weight.shape == call.parts.shape(by)
        np.testing.assert_array_equal(values(unpacked(constant(weight), call.parts, by))[0], raw)


def product_of(left: str, right: str, dtype: str, turned: bool) -> tuple[Product, list[Array]]:
    """A product and what it takes."""
    shape = (3, 21, 34) if turned else (3, 34, 21)
    call = Product(Tensor((3, 13, 34), left), Tensor(shape, right), turned, dtype)
    points = [int(numbers(((), k))) for k in (left, right, "uint8")]
    scale = np.full(1, 0.0007, "float32")
    return call, [*map(numbers, (call.left, call.right)), scale, np.array(points, "int32")]


@pytest.mark.parametrize("by", PACKINGS, ids=lambda p: p.name)
@pytest.mark.parametrize("turned", [False, True])
def test_product(turned: bool, by: Packing) -> None:
    for left, right, dtype in (
        ("uint8", "int8", "int32"),
        ("int8", "uint8", "uint8"),
        ("uint8", "uint8", "float32"),
    ):
        call, operands = product_of(left, right, dtype, turned)
        np.testing.assert_array_equal(called(call, operands, by), evaluate(form(call), operands))


@pytest.mark.parametrize("by", PACKINGS, ids=lambda p: p.name)
@pytest.mark.parametrize("count", [1, 15, 64, 1001])
def test_sum_and_quantisation(count: int, by: Packing) -> None:
    """Against numpy: XLA multiplies with inverses where rows divide by one number."""
    for a, b, dtype, relu in (("uint8", "int8", "uint8", False), ("int8", "uint8", "int8", True)):
        both = Sum(Tensor((count,), a), Tensor((count,), b), dtype, relu)
        points = np.array([int(numbers(((), k))) for k in (a, b, dtype)], "int32")
        scales = np.array([0.35, 1.05, 0.7], "float32")
        x, y = numbers(both.a), numbers(both.b)
        real = [
            (v.astype("int32") - p).astype("float32") * s
            for v, p, s in zip((x, y), points[:2], scales[:2], strict=True)
        ]
        expected = rounded((real[0] + real[1]) / scales[2], points[2], dtype, relu)
        np.testing.assert_array_equal(called(both, [x, y, scales, points], by), expected)
        whole = Quantisation(Tensor((count,), "float32"), dtype)
        x = (numbers(((count,), "int8")) * np.float32(0.35)).astype("float32")
        made = called(whole, [x, scales[2:], points[2:]], by)
        np.testing.assert_array_equal(made, rounded(x / scales[2], points[2], dtype))


def sum_and_quantisation_of(count: int) -> list[tuple[Call, list[Array]]]:
    """Both of so many numbers, and what they take."""
    both = Sum(Tensor((count,), "uint8"), Tensor((count,), "int8"), "uint8", relu=True)
    points, scales = np.array([3, -5, 9], "int32"), np.array([0.35, 1.05, 0.7], "float32")
    whole = Quantisation(Tensor((count,), "float32"), "int8")
    return [
        (both, [numbers(both.a), numbers(both.b), scales, points]),
        (whole, [numbers(((count,), "float32")), scales[2:], points[2:]]),
    ]


# The sums of quotients that are off by little, by more, and that are no numbers.
@pytest.mark.parametrize(
    "scales",
    [
        (0.0213, 0.0171, 0.0155),
        (0.7, 2.1, 0.7),
        (0.7, 2.1, 0.1),
        (0.011, 0.3, 2.5),
        (1.0, 1.0, 0.0),
    ],
)
@pytest.mark.parametrize("by", PACKINGS, ids=lambda p: p.name)
def test_sums_of_all_bytes(by: Packing, scales: tuple[float, float, float]) -> None:
    x, y = np.meshgrid(np.arange(256, dtype="uint8"), np.arange(-128, 128, dtype="int8"))
    call = Sum(Tensor(x.shape, "uint8"), Tensor(y.shape, "int8"), "uint8")
    points, by_scale = np.array([131, -9, 17], "int32"), np.array(scales, "float32")
    real = [
        (v.astype("int32") - p).astype("float32") * s
        for v, p, s in zip((x, y), points[:2], by_scale[:2], strict=True)
    ]
    with np.errstate(divide="ignore", invalid="ignore"):
        quotients = np.nan_to_num((real[0] + real[1]) / by_scale[2], nan=-np.inf)
    made = called(call, [x, y, by_scale, points], by)
    np.testing.assert_array_equal(made, rounded(quotients, points[2], "uint8"))


def test_forms_of_sum_and_quantisation() -> None:
    """With scales whose inverses are exact."""
    points = np.array([3, -5, 9], "int32")
    scales = np.array([0.5, 1.5, 0.25], "float32")
    both = Sum(Tensor((7, 9), "uint8"), Tensor((7, 9), "int8"), "uint8", True)
    operands = [numbers(both.a), numbers(both.b), scales, points]
    np.testing.assert_array_equal(called(both, operands, packing()), evaluate(form(both), operands))
    whole = Quantisation(Tensor((7, 9), "float32"), "int8")
    given = [(numbers(both.b) * np.float32(0.125)).astype("float32"), scales[2:], points[2:]]
    np.testing.assert_array_equal(called(whole, given, packing()), evaluate(form(whole), given))


def test_quotients_are_of_divisions() -> None:
    """Where a product with the inverse would fall on another side of a half."""
    scale = np.float32(0.0171)
    halves = (np.arange(-120, 120) + 0.5).astype("float32") * scale
    x = np.concatenate([np.nextafter(halves, to) for to in (np.float32(-9), np.float32(9))])
    call = Quantisation(Tensor(x.shape, "float32"), "int8")
    made = called(call, [x, np.full(1, scale), np.zeros(1, "int32")], packing())
    expected = np.clip(np.round(x / scale), -128, 127)
    np.testing.assert_array_equal(made, expected)
    assert (np.round(x * (np.float32(1) / scale)) != np.round(x / scale)).any()


def max_pool_of(kind: str) -> tuple[MaxPool, list[Array]]:
    """A pool and its image."""
    image = Tensor((2, 9, 8, 21), kind)
    return MaxPool(image, (3, 2), (2, 1), (1, 0, 1, 1), (1, 2)), [numbers(image)]


@pytest.mark.parametrize("kind", ["uint8", "int8"])
def test_max_pool(kind: str) -> None:
    call, x = max_pool_of(kind)
    np.testing.assert_array_equal(called(call, x, packing()), evaluate(form(call), x))


# -- composites ------------------------------------------------------------------------------------
def program(call: Call) -> rx.IRModule:
    return native_programs.program(call, FAMILY, form(call))


def test_composites_become_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    call = convolution(1, packing(), "uint8", "uint8")
    operands = convolution_operands(call, "int8", False)
    made = replaced(monkeypatch)
    np.testing.assert_array_equal(run(program(call), operands), evaluate(form(call), operands))
    assert [m.symbol for m in made] == [Convolution.symbol]


def test_another_processors_packing_stays_in_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    call = convolution(1, PACKINGS[1], "uint8", "uint8")
    operands = convolution_operands(call, "int8", False)
    made = replaced(monkeypatch)
    np.testing.assert_array_equal(run(program(call), operands), evaluate(form(call), operands))
    assert not made


def test_without_a_library_rows_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    with no_library(monkeypatch):
        call = convolution(1, packing(), "uint8", "uint8")
        operands = convolution_operands(call, "int8", False)
        made = replaced(monkeypatch)
        np.testing.assert_array_equal(run(program(call), operands), evaluate(form(call), operands))
        assert not made


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"window": (30, 30)}, "larger than the image"),
        ({"strides": (0, 1)}, "positive"),
        ({"padding": (0, 0, 0, -1)}, "nothing away"),
        ({"groups": 2}, "groups"),
        ({"dtype": "int32", "relu": True}, "begin at their zero point"),
        ({"dilation": (1 << 30, 1)}, "too large"),
    ],
)
def test_what_files_bring_is_checked(change: dict[str, Any], why: str) -> None:
    call = convolution(2, packing(), "uint8", "uint8")
    wrong = replace(call, **change)
    found = FAMILY.read(
        wrong.name, wrong.attributes, call.operands, [Tensor(call.result.shape, wrong.dtype)]
    )
    assert isinstance(found, str)
    assert why in found


def test_operands_of_other_shapes_are_refused() -> None:
    call = convolution(2, packing(), "uint8", "uint8")
    for place in range(6):
        given = call.operands
        given[place] = Tensor(
            (*given[place].shape[:-1], 1 + given[place].shape[-1]), given[place].dtype
        )
        assert isinstance(FAMILY.read(call.name, call.attributes, given, [call.result]), str), place
    assert FAMILY.read(call.name, call.attributes, call.operands, [call.result]) == call
    assert isinstance(FAMILY.read(call.name, {}, call.operands, [call.result]), str)
