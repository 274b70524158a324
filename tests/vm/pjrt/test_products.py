"""The functions in C++ for convolutions and products, against numpy, torch and their forms."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import relax2xla as rx
from relax2xla.kernels.native import ENDINGS, Tensor
from relax2xla.kernels.products import (
    FAMILY,
    PANEL,
    PARTS,
    SIZES,
    Convolution,
    JoinedProduct,
    Product,
    Winograd,
    by_winograd,
    interleaving,
    points,
)
from relax2xla.runtime.compiler import has_compiler
from relax2xla.runtime.native import NativeFunction
from relax2xla.testing import evaluate
from relax2xla.transform.cpu.calls import products as call_products
from relax2xla.transform.cpu.calls.products import Described, form
from relax2xla.vm.pjrt import native_calls

from . import native_programs
from .native_programs import Array, Threads, no_library, program, replaced, run

pytestmark = pytest.mark.skipif(not has_compiler(), reason="needs a C++ compiler")

# Channels and results that fill panels and that do not, and sums of more numbers than one part has;
# windows of several sizes, even ones; steps, padding and distances that differ along the axes.
CONVOLUTIONS = [
    Convolution((2, 9, 11, 32), (3, 3), 24, (1, 1), (1, 1, 1, 1)),
    Convolution((1, 15, 16, 21), (1, 1), 17),
    Convolution((3, 8, 9, 5), (2, 4), 5, (1, 2), (0, 3, 1, 0), (2, 1)),
    Convolution((1, 6, 14, 300), (3, 1), 33, (3, 1), (8, 0, 9, 0), added=True, ending="relu"),
    # Few channels, over an image with its padding; and where that is much larger than the image.
    Convolution((2, 17, 23, 3), (7, 7), 20, (2, 2), (3, 3, 3, 3), ending="hardswish"),
    Convolution((1, 3, 5, 2), (3, 3), 16, (50, 50), (200, 99, 200, 99)),
    # Groups that fill panels and that do not.
    Convolution((2, 9, 8, 48), (3, 3), 72, (2, 1), (1, 1, 1, 1), groups=3, added=True),
    Convolution((1, 7, 7, 30), (1, 3), 34, padding=(0, 1, 0, 1), groups=2, ending="silu"),
    # Groups of few results, whose channels are interleaved; a page apart; all ways to go on.
    Convolution((2, 9, 11, 32), (3, 3), 32, (1, 2), (1, 0, 2, 1), groups=4, added=True),
    Convolution((1, 7, 5, 24), (2, 3), 16, (2, 1), (0, 1, 1, 2), (1, 2), 2, ending="silu"),
    Convolution((3, 6, 7, 64), (3, 3), 64, padding=(1, 1, 1, 1), groups=16, ending="relu"),
    Convolution((1, 15, 8, 64), (1, 1), 32, groups=8, added=True, ending="relu6"),
    Convolution((1, 4, 4, 1024), (2, 1), 512, groups=64, ending="hardswish"),
    # Groups of few results whose channels are not: of odd sizes, or no panels in all.
    Convolution((2, 5, 6, 30), (3, 2), 42, (1, 1), (1, 1, 1, 1), groups=6, added=True),
    Convolution((1, 6, 5, 12), (3, 3), 12, (1, 1), (1, 1, 1, 1), groups=3, ending="relu"),
    Convolution((1, 5, 5, 18), (3, 3), 16, (1, 1), (1, 1, 1, 1), groups=2, ending="gelu"),
    # Pixels whose numbers are a page apart, in several parts of the sums.
    Convolution((1, 4, 5, 1024), (2, 2), 20, added=True),
    Convolution((2, 3, 5, 2048), (1, 1), 40, (2, 1), ending="relu"),
    # Several blocks of pixels and of columns.
    Convolution((1, 40, 40, 16), (3, 3), 270, (1, 1), (1, 1, 1, 1), added=True),
]
PRODUCTS = [
    Product((7, 600), 33),
    Product((2, 13, 90), 70, added=True),
    Product((1, 8), 1),
    Product((4, 50, 24), 300, ending="silu"),
    Product((30, 1700), 70, added=True, ending="relu6"),
    Product((25, 1024), 33, added=True, ending="gelu"),
    # Rows so few that the weight is read once.
    *(Product((rows, 37), 40, rows == 2, "relu" if rows == 3 else "") for rows in (1, 2, 3, 4)),
    Product((1, 1, 1, 300), 16, True, "gelu"),
]
WINOGRAD = [
    Winograd((2, 9, 11, 32), 48, (1, 1, 1, 1), 2, added=True, ending="relu"),
    Winograd((1, 28, 28, 64), 32, (1, 0, 2, 1), 4),
    Winograd((1, 7, 10, 288), 16, (0, 0, 0, 0), 4, added=True),
    Winograd((3, 30, 17, 16), 16, (1, 1, 1, 1), 2, ending="gelu"),
    Winograd((1, 8, 10, 1024), 16, (1, 1, 1, 1), 2, added=True),
]
# What fills vectors and what does not, one and several, in several parts of the sums, a page apart.
JOINED = [
    JoinedProduct((2, 5, 7), (64, 32, 32), 48, prepared=True),
    JoinedProduct((30,), (21, 5, 300), 33, added=True, ending="relu"),
    JoinedProduct((1, 9, 9), (1000, 24), 70, prepared=True, ending="gelu"),
    JoinedProduct((100,), (40,), 16, prepared=True),
    JoinedProduct((150,), (1024, 1024), 40, True, True),
    JoinedProduct((3,), (7, 1), 5, prepared=True, ending="hardswish"),
]
ALL = [*CONVOLUTIONS, *PRODUCTS, *JOINED, *WINOGRAD]
# Of weights that come with each call: besides, several blocks of pixels over panels that are kept
# and over panels that are too large for that, and parts of the sums of a window.
GIVEN = [
    *(c for c in [*CONVOLUTIONS, *PRODUCTS, *WINOGRAD] if c.groups == 1),
    Convolution((1, 20, 20, 200), (3, 3), 50, padding=(1, 1, 1, 1), ending="relu"),
    Convolution((1, 7, 7, 160), (3, 3), 100, (2, 2), (1, 1, 1, 1), added=True),
    Convolution((1, 40, 41, 2), (23, 24), 17),
    Product((600, 1030), 70, added=True, ending="gelu"),
    Product((450, 2100), 2050),
    Winograd((1, 40, 40, 64), 80, (1, 1, 1, 1), 4, added=True, ending="relu"),
    # Few pixels, whose weight is read where it lies: in vectors that are full and that are not, by
    # themselves, for tiles of all sizes, in several parts.
    Convolution((1, 1, 2, 24), (3, 3), 70, padding=(1, 1, 1, 1), ending="relu"),
    Convolution((2, 3, 3, 20), (2, 3), 17, padding=(1, 0, 0, 2), dilation=(2, 1)),
    Convolution((1, 7, 7, 300), (3, 3), 101, padding=(1, 1, 1, 1), added=True, ending="gelu"),
    Convolution((1, 8, 8, 131), (3, 3), 50, padding=(1, 1, 1, 1), added=True),
    Convolution((1, 5, 10, 17), (2, 2), 8, ending="hardswish"),
    Product((49, 1200), 97, added=True, ending="silu"),
    Product((31, 600), 130),
    Product((112, 2048), 70, ending="relu"),
    Product((32, 1300), 2100, added=True),
]


# Images of planes: one, two and three of them, with padding and without, several images.
PLANES = [
    replace(c, planes=True)
    for c in (
        CONVOLUTIONS[4],
        Convolution((1, 10, 8, 1), (1, 2), 3),
        Convolution((3, 8, 9, 5), (2, 4), 5, (1, 2), (0, 3, 1, 0), (2, 1)),
        Convolution((1, 33, 40, 3), (4, 4), 96, (4, 4), ending="gelu", added=True),
    )
]


def planes_of(call: Convolution) -> tuple[Convolution, list[Array], list[Array]]:
    """The same call of pixels, and the operands of both."""
    pixels = replace(call, planes=False)
    _, operands = case(pixels)
    image = np.ascontiguousarray(operands[0].transpose(0, 3, 1, 2))
    return pixels, operands, [image, *operands[1:]]


@functools.cache
def library() -> Mapping[str, NativeFunction]:
    return native_calls.library(FAMILY, FAMILY.flags())


def called(call: Described, operands: list[Array]) -> Array:
    """What the function in C++ gives."""
    return native_programs.called(library(), call, operands)


def window_of(call: Described) -> tuple[int, ...]:
    if isinstance(call, Product):
        return (call.rows[-1], call.results)
    if isinstance(call, JoinedProduct):
        return (call.channels, call.results)
    if isinstance(call, Winograd):
        return (3, 3, call.image[3], call.results)
    return (*call.window, call.channels, call.results)


def packed(weight: Array, call: Described) -> Array:
    """The weight of a call by numpy alone."""
    if isinstance(call, Winograd):
        by = points(call.size)
        weight = np.einsum("ph,qw,hwio->pqio", by, by, weight)
        weight = weight.reshape(-1, *weight.shape[2:]).astype("float32")
    groups = call.groups if isinstance(call, Convolution) else 1
    own = weight.shape[-1] // groups
    interleaved = interleaving(weight.shape[:-1], call.results, groups)
    if interleaved > 1:
        apart = weight.reshape(-1, interleaved, groups, own).transpose(2, 0, 3, 1)
        return np.ascontiguousarray(apart.reshape(call.operands[-3].shape))
    flat = np.pad(weight.reshape(-1, groups, own), ((0, 0), (0, 0), (0, -own % PANEL)))
    panels = flat.reshape(len(flat), -1, PANEL).transpose(1, 0, 2)
    return np.ascontiguousarray(panels.reshape(call.operands[-3].shape))


def case(call: Described) -> tuple[Array, list[Array]]:
    """A plain weight, and the operands of a call with it."""
    rng = np.random.default_rng(len(call.operands))
    *xs, _, bias, added = (rng.standard_normal(t.shape, "float32") for t in call.operands)
    depth = math.prod(window_of(call)[:-1])
    weight = rng.standard_normal(window_of(call), "float32") / math.sqrt(depth)
    weight = weight.astype("float32")
    return weight, [*xs, packed(weight, call), bias, added]


def as_it_lies(weight: Array, call: Described) -> Array:
    """A plain weight, in the order of axes in which a call takes it."""
    if call.lies == "turned":
        return weight[::-1, ::-1].transpose(2, 3, 0, 1).copy()
    axes = (1, 0) if weight.ndim == 2 else (3, 2, 0, 1)
    return np.ascontiguousarray(weight.transpose(axes) if call.lies == "first" else weight)


def lies_of(call: Described) -> tuple[str, ...]:
    """How the weight of a call may lie that comes with it."""
    return ("first", "last") if isinstance(call, Product) else ("first", "last", "turned")


def given(call: Described, lies: str, scaled: bool) -> tuple[Described, Array, list[Array]]:
    """A call of a weight as it lies, the weight that it comes to, and operands."""
    weight, (x, _, bias, added) = case(call)
    call = replace(call, lies=lies, scaled=scaled)
    lying = as_it_lies(weight, call)
    if scaled:
        scale = np.random.default_rng(1).uniform(-2, 2, call.results).astype("float32")
        weight, bias = weight * scale, np.stack([bias, scale])
    return call, weight, [x, lying, bias, added]


def in_torch(call: Described, weight: Array, operands: list[Array]) -> Array:
    """What the call gives, in float64."""
    x, *more, _, bias, added = (torch.from_numpy(v).double() for v in operands)
    bias = bias[0] if call.scaled else bias
    w = torch.from_numpy(weight).double()
    if isinstance(call, JoinedProduct):
        x = torch.cat([x, *more[: len(call.parts) - 1]], -1)
        x = torch.relu(x * more[-1][0] + more[-1][1]) if call.prepared else x
    if isinstance(call, Product | JoinedProduct):
        made = x @ w + bias
    else:
        c = call.convolution if isinstance(call, Winograd) else call
        top, left, bottom, right = c.padding
        image = torch.nn.functional.pad(x.permute(0, 3, 1, 2), (left, right, top, bottom))
        made = torch.nn.functional.conv2d(
            image, w.permute(3, 2, 0, 1), bias, c.strides, dilation=c.dilation, groups=c.groups
        ).permute(0, 2, 3, 1)
    made = made + added if call.added else made
    functions = {
        "": lambda v: v,
        "relu": torch.relu,
        "relu6": torch.nn.functional.relu6,
        "hardswish": torch.nn.functional.hardswish,
        "sigmoid": torch.sigmoid,
        "silu": torch.nn.functional.silu,
        "gelu": torch.nn.functional.gelu,
        "gelu_tanh": functools.partial(torch.nn.functional.gelu, approximate="tanh"),
        "hardsigmoid": torch.nn.functional.hardsigmoid,
    }
    return functions[call.ending](made).numpy()


@pytest.mark.parametrize("call", ALL, ids=range(len(ALL)))
def test_functions_and_forms(call: Described) -> None:
    assert not call.problem()
    weight, operands = case(call)
    wanted = in_torch(call, weight, operands)
    np.testing.assert_allclose(called(call, operands), wanted, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(evaluate(form(call), operands), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("call", CONVOLUTIONS, ids=range(len(CONVOLUTIONS)))
def test_weights_in_panels(call: Convolution) -> None:
    """As numpy has them, and back."""
    weight, operands = case(call)
    panels = call_products.packed(rx.const(weight), call.groups)
    np.testing.assert_array_equal(evaluate(panels, {}), operands[1])
    back = call_products.unpacked(
        rx.const(operands[1]), weight.shape[:-1], call.results, call.groups
    )
    np.testing.assert_array_equal(evaluate(back, {}), weight)


@pytest.mark.parametrize("scaled", [False, True], ids=["plain", "scaled"])
@pytest.mark.parametrize("lies", ["first", "last", "turned"])
@pytest.mark.parametrize("call", GIVEN, ids=range(len(GIVEN)))
def test_weights_as_they_lie(call: Described, lies: str, scaled: bool) -> None:
    if lies not in lies_of(call):
        pytest.skip("a product has no window to turn")
    call, weight, operands = given(call, lies, scaled)
    assert not call.problem()
    assert [v.shape for v in operands] == [t.shape for t in call.operands]
    assert FAMILY.read(call.name, call.attributes, call.operands, [call.result]) == call
    wanted = in_torch(call, weight, operands)
    np.testing.assert_allclose(called(call, operands), wanted, rtol=2e-5, atol=2e-5)
    if math.prod(weight.shape) < 100_000:
        np.testing.assert_allclose(evaluate(form(call), operands), wanted, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("call", [PRODUCTS[1], WINOGRAD[3]], ids=["product", "winograd"])
@pytest.mark.parametrize("ending", ENDINGS)
def test_what_follows(call: Described, ending: str) -> None:
    """Numbers of every size, columns that fill no vector, and what is no number."""
    call = replace(call, ending=ending)
    weight, operands = case(call)
    operands[2][...] = np.linspace(-30, 30, call.results, dtype="float32")
    operands[0].reshape(-1)[0] = np.nan
    made, wanted = called(call, operands), in_torch(call, weight, operands)
    if isinstance(call, Product) and ending:
        # Infinity stays, or is held.
        operands[0].reshape(-1)[0] = np.inf
        operands[1][...] = np.abs(operands[1])
        limit = {"relu6": 6.0, "sigmoid": 1.0, "hardsigmoid": 1.0}.get(ending, np.inf)
        np.testing.assert_array_equal(called(call, operands)[0, 0], limit)
    # A patch has the pixel in all of its results, a window in those that it lies under.
    assert np.isnan(wanted).any()
    assert np.isnan(made[np.isnan(wanted)]).all()
    plain = ~np.isnan(made)
    np.testing.assert_allclose(made[plain], wanted[plain], rtol=2e-6, atol=1e-5)


@pytest.mark.parametrize("size", SIZES)
def test_patches_round_little(size: int) -> None:
    call = Winograd((1, 32, 32, 256), 16, (1, 1, 1, 1), size)
    weight, operands = case(call)
    wanted = in_torch(call, weight, operands)
    assert np.abs(called(call, operands) - wanted).max() < 3e-6 * np.abs(wanted).max()


def test_composites_become_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Large ones in parts, on the threads of the program: the numbers are the same."""
    made = replaced(monkeypatch)
    for call in (CONVOLUTIONS[-1], PRODUCTS[-1], JOINED[0], WINOGRAD[1]):
        _, operands = case(call)
        got = run(program(call, FAMILY, form(call)), operands)
        np.testing.assert_array_equal(got, called(call, operands))
    assert [m.symbol for m in made] == [*FAMILY.symbols]


# Many pixels and few, columns that are no multiple of a tile's, groups, patches, and few rows.
SHARED = [
    Convolution((1, 31, 33, 64), (3, 3), 80, padding=(1, 1, 1, 1), added=True, ending="relu"),
    Convolution((1, 7, 7, 512), (1, 1), 610, ending="gelu"),
    Convolution((1, 30, 30, 60), (3, 3), 150, padding=(1, 1, 1, 1), groups=5),
    Convolution((1, 30, 31, 64), (3, 3), 64, padding=(1, 1, 1, 1), groups=8, ending="silu"),
    Product((2, 64, 300), 777, added=True),
    Product((3, 2000), 1000),
    JoinedProduct((1, 30, 30), (64, 32, 50), 130, prepared=True),
    Winograd((1, 14, 14, 128), 208, (1, 1, 1, 1), 2, added=True),
    Winograd((1, 57, 50, 64), 48, (1, 1, 1, 1), 4, ending="relu"),
]


@pytest.mark.parametrize("call", PLANES, ids=range(len(PLANES)))
def test_planes_are_pixels_in_another_order(call: Convolution) -> None:
    assert not call.problem()
    pixels, operands, given = planes_of(call)
    np.testing.assert_array_equal(called(call, given), called(pixels, operands))
    assert FAMILY.read(call.name, call.attributes, call.operands, [call.result]) == call
    wrong = [pixels.operands[0], *call.operands[1:]]
    assert isinstance(FAMILY.read(call.name, call.attributes, wrong, [call.result]), str)


@pytest.mark.usefixtures("quickly_compiled")
def test_planes_in_rows() -> None:
    _, _, operands = planes_of(PLANES[0])
    wanted = evaluate(form(PLANES[0]), operands)
    np.testing.assert_allclose(called(PLANES[0], operands), wanted, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize(
    "call",
    [
        Convolution((1, 9, 9, 16), (3, 3), 8, planes=True),
        Convolution((1, 9, 9, 3), (3, 1), 8, planes=True),
        Convolution((1, 9, 9, 3), (3, 3), 8, dilation=(1, 2), planes=True),
        Convolution((1, 9, 9, 3), (3, 3), 8, padding=(0, 0, 99, 0), planes=True),
        Convolution((1, 9, 9, 4), (3, 3), 8, groups=2, planes=True),
    ],
    ids=range(5),
)
def test_planes_that_no_call_takes(call: Convolution) -> None:
    assert "planes are those of few channels" in call.problem()
    assert not replace(call, planes=False).problem()


@pytest.mark.parametrize("count", [2, 3, 8, 31])
def test_any_number_of_threads_gives_the_same_numbers(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = Threads(count)
    monkeypatch.setattr(native_calls, "share_threads", lambda m: m.use_threads(threads.address))
    shared = native_calls.library(FAMILY, FAMILY.flags())
    cases = [(call, case(call)[1]) for call in SHARED]
    plain = [c for c in SHARED if c.groups == 1 and not isinstance(c, JoinedProduct)]
    lying = [given(c, lies, True) for c in plain for lies in lies_of(c)]
    cases += [(call, operands) for call, _, operands in lying]
    for call, operands in cases:
        made = np.full(call.result.shape, np.nan, call.result.dtype)
        shared[call.symbol](*operands, *call.numbers, made)
        np.testing.assert_array_equal(made, called(call, operands))
    # Each has something for two, and there are no more parts than threads find something to do in.
    assert len(threads.parts) == len(cases)
    assert all(2 <= parts <= 8 * count for parts in threads.parts)


def test_calls_at_the_same_time_share_the_threads() -> None:
    call = SHARED[0]
    _, operands = case(call)
    wanted = called(call, operands)
    machine = rx.VirtualMachine(rx.build(program(call, FAMILY, form(call)), "cpu"))
    with ThreadPoolExecutor(6) as pool:
        made = list(pool.map(lambda _: np.asarray(machine["main"](*operands)), range(48)))
    for found in made:
        np.testing.assert_array_equal(found, wanted)


def test_without_a_library_rows_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    with no_library(monkeypatch):
        call, made = WINOGRAD[0], replaced(monkeypatch)
        weight, operands = case(call)
        got = run(program(call, FAMILY, form(call)), operands)
        wanted = in_torch(call, weight, operands)
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)
        assert not made


def test_which_windows_are_filtered() -> None:
    wide = Convolution((1, 56, 56, 64), (3, 3), 64, padding=(1, 1, 1, 1))
    small = replace(wide, image=(1, 14, 14, 64))
    assert [getattr(by_winograd(c), "size", None) for c in (wide, small)] == [4, 2]
    for other in (
        replace(wide, image=(1, 7, 7, 64)),
        replace(wide, strides=(2, 2)),
        replace(wide, dilation=(1, 2)),
        replace(wide, window=(3, 1)),
        replace(wide, groups=2),
        replace(wide, results=40),
        replace(wide, image=(1, 56, 56, 24)),
    ):
        assert by_winograd(other) is None


@pytest.mark.parametrize(
    ("call", "change", "why"),
    [
        (CONVOLUTIONS[0], {"strides": (0, 1)}, "positive"),
        (CONVOLUTIONS[0], {"padding": (0, 0, 0, -1)}, "nothing away"),
        (CONVOLUTIONS[0], {"padding": (1 << 21, 0, 0, 0)}, "moderate"),
        (CONVOLUTIONS[0], {"dilation": (9, 9)}, "larger than the image"),
        (CONVOLUTIONS[0], {"ending": "tanh"}, "what follows"),
        (CONVOLUTIONS[0], {"groups": 5}, "groups of one size"),
        (CONVOLUTIONS[0], {"groups": 0}, "groups of one size"),
        (CONVOLUTIONS[0], {"added": True}, "not those that its attributes say"),
        (PRODUCTS[0], {"ending": "tanh"}, "what follows"),
        (PRODUCTS[0], {"lies": "first"}, "not those that its attributes say"),
        (PRODUCTS[0], {"lies": "here"}, "lies in one of"),
        (PRODUCTS[0], {"lies": "turned"}, "no windows"),
        (PRODUCTS[0], {"scaled": True}, "scaled already"),
        (CONVOLUTIONS[0], {"lies": "last"}, "not those that its attributes say"),
        (CONVOLUTIONS[6], {"lies": "first"}, "in panels"),
        (WINOGRAD[0], {"lies": "first"}, "not those that its attributes say"),
        (WINOGRAD[0], {"size": 3}, "squares"),
        (WINOGRAD[0], {"size": 4}, "not those that its attributes say"),
        (WINOGRAD[0], {"ending": None}, "what follows"),
        (JOINED[0], {"ending": "tanh"}, "what follows"),
        (JOINED[0], {"prepared": False}, "not those that its attributes say"),
        (JOINED[1], {"prepared": True}, "not those that its attributes say"),
    ],
)
def test_what_files_bring_is_checked(call: Described, change: dict[str, Any], why: str) -> None:
    found = FAMILY.read(call.name, {**call.attributes, **change}, call.operands, [call.result])
    assert isinstance(found, str)
    assert why in found


def test_windows_of_many_taps_are_refused() -> None:
    assert "taps" in Convolution((1, 99, 99, 1), (64, 64), 1).problem()
    assert "multiples" in Winograd((1, 9, 9, 24), 16, (1, 1, 1, 1), 2).problem()


def test_as_many_are_joined_as_calls_take() -> None:
    assert not JoinedProduct((8,), (1,) * PARTS, 8).problem()
    assert "are joined" in JoinedProduct((8,), (1,) * (PARTS + 1), 8).problem()
    assert "are joined" in JoinedProduct((8,), (), 8).problem()
    assert "positive" in JoinedProduct((8,), (4, 0), 8).problem()


@pytest.mark.parametrize("call", [CONVOLUTIONS[1], PRODUCTS[1], JOINED[0], WINOGRAD[0]])
def test_operands_of_other_shapes_are_refused(call: Described) -> None:
    for place in range(len(call.operands)):
        for shape in ((*call.operands[place].shape, 1), call.operands[place].shape[:-1]):
            given = call.operands
            given[place] = Tensor(shape, "float32")
            found = FAMILY.read(call.name, call.attributes, given, [call.result])
            assert isinstance(found, str), (place, shape)
    assert FAMILY.read(call.name, call.attributes, call.operands, [call.result]) == call
    assert isinstance(FAMILY.read(call.name, {}, call.operands, [call.result]), str)
