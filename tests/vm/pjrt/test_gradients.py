"""The function in C++ for gradients of weights, against torch in float64 and its form in rows."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
import torch

from relax2xla.kernels.gradients import FAMILY, LAYOUTS, MatrixGradient, WeightGradient
from relax2xla.kernels.native import Tensor
from relax2xla.runtime.compiler import has_compiler
from relax2xla.runtime.native import NativeFunction
from relax2xla.testing import evaluate
from relax2xla.transform.cpu.calls.gradients import form
from relax2xla.vm.pjrt import native_calls

from . import native_programs
from .native_programs import Array, Threads, no_library, program, replaced, run

pytestmark = pytest.mark.skipif(not has_compiler(), reason="needs a C++ compiler")

G = WeightGradient
CALLS = [
    # One tap: rows that fill tiles and panels, and do not; rows of pixels that are pages apart.
    G((1, 1, 7, 5), (1, 1, 7, 3)),
    G((2, 5, 4, 16), (2, 5, 4, 12)),
    G((1, 1, 9, 40), (1, 1, 9, 1024)),
    G((1, 1, 530, 300), (1, 1, 530, 256)),
    G((2, 7, 9, 17), (2, 4, 5, 33), strides=(2, 2)),
    G((1, 5, 6, 4), (1, 7, 8, 5), top=1, left=1),
    # More pixels than are added up at once, which do not part evenly.
    G((2, 29, 19, 19), (2, 29, 19, 35)),
    # Windows of few channels, whose rows are runs, and of more.
    G((2, 9, 8, 3), (2, 9, 8, 20), (3, 3), top=1, left=1),
    G((1, 15, 14, 3), (1, 8, 7, 9), (7, 7), (2, 2), 3, 3),
    G((2, 8, 9, 24), (2, 8, 9, 18), (3, 3), top=1, left=1),
    G((1, 10, 11, 20), (1, 5, 5, 31), (3, 3), (2, 2), 1, 1),
    G((1, 9, 9, 18), (1, 5, 5, 7), (3, 3), dilation=(2, 2)),
    G((1, 9, 12, 5), (1, 6, 7, 7), (2, 3), (1, 1), 0, 0, (3, 2)),
    G((1, 4, 4, 17), (1, 6, 5, 6), (1, 2), (1, 1), 1, 1),
    # Padding of more than the window, and behind images that windows do not reach.
    G((1, 5, 5, 6), (1, 11, 11, 4), (3, 3), top=4, left=4),
    G((2, 7, 7, 16), (2, 2, 2, 16), (3, 3), (3, 3)),
    # Groups that are computed together, and alone.
    G((2, 6, 7, 24), (2, 6, 7, 40), (3, 3), (1, 1), 1, 1, groups=8),
    G((1, 6, 7, 30), (1, 6, 7, 15), (1, 1), groups=5),
    G((1, 6, 7, 40), (1, 6, 7, 60), (3, 2), (1, 1), 1, 0, groups=2),
    G((1, 6, 6, 12), (1, 6, 6, 24), (3, 3), (1, 1), 1, 1, groups=12),
    # Groups with so few results that several fill a vector: more pixels than are added up at once,
    # channels that fill a tile and that do not; and the same with odd sizes.
    G((2, 13, 11, 32), (2, 13, 11, 32), (3, 3), (1, 1), 1, 1, groups=4),
    G((1, 6, 7, 20), (1, 3, 4, 16), (3, 3), (2, 2), 1, 1, groups=2),
    G((1, 6, 7, 48), (1, 4, 7, 16), (3, 1), (1, 1), 0, 0, groups=4),
    G((1, 9, 8, 64), (1, 8, 7, 64), (2, 4), (1, 1), 0, 1, groups=16),
    G((1, 5, 6, 32), (1, 5, 6, 32), groups=8),
    G((1, 5, 6, 24), (1, 5, 6, 24), (3, 3), (1, 1), 1, 1, groups=3),
    G((1, 5, 6, 10), (1, 5, 6, 16), (3, 3), (1, 1), 1, 1, groups=2),
    # So few pixels that rows are written one behind the other, whose ends fill vectors and do not.
    G((1, 1, 3, 37), (1, 1, 3, 9)),
    G((2, 1, 2, 64), (2, 1, 2, 8)),
    G((1, 1, 1, 5), (1, 1, 1, 3)),
]
ALL = [replace(call, lies=lies) for call in CALLS for lies in LAYOUTS]
# Rows that are copied and that are not, and so few that they are written one behind the other.
MATRICES = [
    MatrixGradient((pixels, channels), results)
    for pixels, channels, results in ((7, 5, 3), (530, 300, 256), (70, 1024, 20), (3, 37, 9))
]


@functools.cache
def library() -> Mapping[str, NativeFunction]:
    return native_calls.library(FAMILY, FAMILY.flags())


def called(call: WeightGradient | MatrixGradient, operands: list[Array]) -> Array:
    """What the function in C++ gives."""
    return native_programs.called(library(), call, operands)


def operands_of(call: WeightGradient | MatrixGradient) -> list[Array]:
    rng = np.random.default_rng(call.operands[0].shape[-1])
    return [rng.standard_normal(t.shape, "float32") for t in call.operands]


def exact(call: WeightGradient, operands: list[Array]) -> Array:
    """The gradient by torch in float64, of an image with all its padding."""
    image, gradient = (torch.from_numpy(x).double().permute(0, 3, 1, 2) for x in operands)
    reach = [
        (many - 1) * s + (taps - 1) * d + 1
        for many, s, taps, d in zip(
            call.gradient[1:3], call.strides, call.window, call.dilation, strict=True
        )
    ]
    below = [
        max(0, r - low - size)
        for r, low, size in zip(reach, (call.top, call.left), call.image[1:3], strict=True)
    ]
    around = (call.left, below[1], call.top, below[0])
    padded = torch.nn.functional.pad(image, around)[:, :, : reach[0], : reach[1]]
    weight = torch.zeros(call.gradient[3], call.image[3] // call.groups, *call.window).double()
    where = (call.strides, [0, 0], call.dilation, False, [0, 0], call.groups)
    made = torch.ops.aten.convolution_backward(
        gradient, padded, weight, None, *where, [False, True, False]
    )[1].numpy()
    return made if call.lies == "first" else made.transpose(2, 3, 1, 0)


@pytest.mark.usefixtures("quickly_compiled")
@pytest.mark.parametrize("call", ALL, ids=str)
def test_values(call: WeightGradient) -> None:
    operands = operands_of(call)
    wanted = exact(call, operands)
    assert call.problem() == ""
    scale = np.abs(wanted).max()
    np.testing.assert_allclose(called(call, operands), wanted, rtol=1e-5, atol=2e-6 * scale)
    in_rows = evaluate(form(call), operands)
    np.testing.assert_allclose(in_rows, wanted, rtol=1e-5, atol=2e-6 * scale)


@pytest.mark.usefixtures("quickly_compiled")
@pytest.mark.parametrize("call", MATRICES, ids=str)
def test_matrices(call: MatrixGradient) -> None:
    rows, gradient = operands = operands_of(call)
    wanted = gradient.astype("float64").T @ rows
    atol = 4e-6 * np.sqrt(call.rows[0])
    np.testing.assert_allclose(called(call, operands), wanted, rtol=2e-6, atol=atol)
    np.testing.assert_allclose(evaluate(form(call), operands), wanted, rtol=1e-5, atol=10 * atol)


def test_what_files_may_ask_for_of_matrices_is_checked() -> None:
    good = MATRICES[0]
    assert FAMILY.read(good.name, {}, good.operands, [good.result]) == good
    flat, matrix = Tensor((7,), "float32"), Tensor((8, 3), "float32")
    for operands in (
        [flat, good.operands[1]],
        [good.operands[0], flat],
        [good.operands[0], matrix],
    ):
        assert isinstance(FAMILY.read(good.name, {}, operands, [good.result]), str)
    assert isinstance(FAMILY.read(good.name, {}, good.operands, [matrix]), str)


@pytest.mark.parametrize("count", [2, 3])
def test_work_is_shared_out(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """By groups, by columns, and by rows where there are few columns; small calls are not."""
    threads = Threads(count)
    monkeypatch.setattr(native_calls, "share_threads", lambda m: m.use_threads(threads.address))
    shared = native_calls.library(FAMILY, FAMILY.flags())
    large = [
        G((2, 20, 20, 64), (2, 20, 20, 128)),
        G((2, 20, 20, 300), (2, 20, 20, 16), lies="last"),
        G((1, 20, 20, 64), (1, 20, 20, 64), (3, 3), (1, 1), 1, 1),
        G((2, 20, 20, 64), (2, 20, 20, 64), (3, 3), (1, 1), 1, 1, groups=4),
        G((2, 20, 20, 64), (2, 20, 20, 64), (3, 3), (1, 1), 1, 1, groups=8),
    ]
    for call in large:
        operands = operands_of(call)
        before = len(threads.parts)
        made = native_programs.called(shared, call, operands)
        np.testing.assert_array_equal(made, called(call, operands))
        assert len(threads.parts) > before
    assert min(threads.parts) >= 2
    before = len(threads.parts)
    native_programs.called(shared, CALLS[0], operands_of(CALLS[0]))
    assert len(threads.parts) == before


def test_a_program_calls_it(monkeypatch: pytest.MonkeyPatch) -> None:
    made = replaced(monkeypatch)
    for call in (CALLS[10], replace(CALLS[16], lies="last")):
        operands = operands_of(call)
        result = run(program(call, FAMILY, form(call)), operands)
        assert made.pop() == call
        np.testing.assert_allclose(result, exact(call, operands), rtol=1e-4, atol=1e-4)


def test_without_a_library_rows_are_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    call = CALLS[7]
    operands = operands_of(call)
    with no_library(monkeypatch):
        result = run(program(call, FAMILY, form(call)), operands)
    np.testing.assert_allclose(result, exact(call, operands), rtol=1e-4, atol=1e-4)


GOOD = G((2, 8, 9, 24), (2, 8, 9, 18), (3, 3), (1, 1), 1, 1)
WRONG = {
    "the layout": (replace(GOOD, lies="between"), "lies as one of"),
    "no size": (replace(GOOD, window=(0, 3)), "are positive"),
    "no step": (replace(GOOD, strides=(0, 1)), "are positive"),
    "another batch": (replace(GOOD, gradient=(3, 8, 9, 18)), "one batch"),
    "groups that do not part": (replace(GOOD, groups=5), "groups of one size"),
    "no groups": (replace(GOOD, groups=0), "groups of one size"),
    "padding that takes away": (replace(GOOD, top=-1), "takes nothing away"),
    "far steps": (replace(GOOD, strides=(1 << 21, 1)), "are moderate"),
    "a huge window": (replace(GOOD, window=(64, 64)), "at most 1024 taps"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_files_may_ask_for_is_checked(name: str) -> None:
    call, why = WRONG[name]
    attributes, operands = call.attributes, [Tensor(t.shape, t.dtype) for t in GOOD.operands]
    if name == "another batch":
        operands = call.operands
    result = GOOD.result if name in ("the layout", "no groups") else call.result
    found = FAMILY.read(call.name, attributes, operands, [result])
    assert isinstance(found, str)
    assert why in found or "attributes are not" in found


def test_operands_and_results_are_those_of_the_attributes() -> None:
    known = FAMILY.read(GOOD.name, GOOD.attributes, GOOD.operands, [GOOD.result])
    assert known == GOOD
    longer = Tensor((*GOOD.result.shape[:1], 25, 3, 3), "float32")
    for operands, results in (
        (GOOD.operands[:1], [GOOD.result]),
        (GOOD.operands, [longer]),
        ([GOOD.operands[0]._replace(dtype="float64"), GOOD.operands[1]], [GOOD.result]),
        ([GOOD.operands[0]._replace(shape=(2, 8, 9)), GOOD.operands[1]], [GOOD.result]),
    ):
        assert isinstance(FAMILY.read(GOOD.name, GOOD.attributes, operands, results), str)
