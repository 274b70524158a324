"""The function in C++ for layer and RMS norms, against numpy in float64 and its form in rows."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from relax2xla.kernels.native import Tensor
from relax2xla.kernels.norms import FAMILY, Norm, NormGradient
from relax2xla.runtime.compiler import has_compiler
from relax2xla.runtime.native import NativeFunction
from relax2xla.testing import evaluate
from relax2xla.transform.cpu.calls.norms import form
from relax2xla.vm.pjrt import native_calls

from . import native_programs
from .native_programs import Array, Threads, no_library, program, replaced, run

pytestmark = pytest.mark.skipif(not has_compiler(), reason="needs a C++ compiler")

# Rows that fill vectors and do not, also the several that are read at once; one row and many.
SHAPES: list[tuple[int, ...]] = [
    *((16,), (3, 16), (5, 17), (2, 3, 24), (1, 31), (7, 33), (4, 63), (2, 64), (3, 65)),
    *((1, 768), (2, 5, 768), (9, 1000), (2, 4096), (1, 40001)),
]
GRADIENTS = [
    NormGradient(shape) for shape in ((3, 5), (2, 16), (7, 33), (3, 64), (5, 768), (2, 1001))
]
CALLS = [Norm(shape, 1e-5, centered) for shape in SHAPES for centered in (True, False)]


@functools.cache
def library() -> Mapping[str, NativeFunction]:
    return native_calls.library(FAMILY, FAMILY.flags())


def called(call: Norm | NormGradient, operands: list[Array]) -> Array:
    """What the function in C++ gives."""
    return native_programs.called(library(), call, operands)


def operands_of(call: Norm, offset: float = 0.0) -> list[Array]:
    rng = np.random.default_rng(call.shape[-1])
    rows, scale, shift = (rng.standard_normal(t.shape, "float32") for t in call.operands)
    return [rows + np.float32(offset), scale, shift]


def exact(call: Norm, operands: list[Array]) -> npt.NDArray[np.float64]:
    """The norm in float64."""
    rows, scale, shift = (x.astype("float64") for x in operands)
    if call.centered:
        rows = rows - rows.mean(-1, keepdims=True)
    power = np.square(rows).mean(-1, keepdims=True)
    made = rows / np.sqrt(power + call.epsilon) * scale
    return made + shift if call.centered else made


@pytest.mark.usefixtures("quickly_compiled")
@pytest.mark.parametrize("call", CALLS, ids=str)
def test_rows_of_all_lengths(call: Norm) -> None:
    operands = operands_of(call)
    wanted = exact(call, operands)
    np.testing.assert_allclose(called(call, operands), wanted, rtol=1e-6, atol=1e-6)
    in_rows = evaluate(form(call), operands)
    np.testing.assert_allclose(in_rows, wanted, rtol=1e-5, atol=1e-5)


def gradient_operands_of(call: NormGradient) -> list[Array]:
    """Of rows whose means and factors are theirs."""
    rng = np.random.default_rng(call.shape[-1])
    gradient, rows, _, _, scale = (rng.standard_normal(t.shape, "float32") for t in call.operands)
    mean, factor = rows.mean(-1), 1 / np.sqrt(rows.var(-1) + np.float32(1e-5))
    return [gradient, rows, mean, factor, scale]


@pytest.mark.usefixtures("quickly_compiled")
@pytest.mark.parametrize("call", GRADIENTS, ids=str)
def test_gradients_by_rows(call: NormGradient) -> None:
    """As torch has them in float64."""
    operands = gradient_operands_of(call)
    gradient, rows, _, _, scale = (torch.from_numpy(x).double() for x in operands)
    rows.requires_grad_()
    torch.nn.functional.layer_norm(rows, rows.shape[1:], scale, None, 1e-5).backward(gradient)
    assert rows.grad is not None
    wanted = rows.grad.numpy()
    np.testing.assert_allclose(called(call, operands), wanted, rtol=1e-5, atol=2e-6)
    np.testing.assert_allclose(evaluate(form(call), operands), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("offset", [1e4, -3e5])
@pytest.mark.parametrize("shape", [(50, 17), (20, 768), (3, 1000)])
def test_rows_far_from_zero_lose_nothing(shape: tuple[int, ...], offset: float) -> None:
    """Their means have errors as large as what is left without them may be."""
    call = Norm(shape, 1e-5, centered=True)
    operands = operands_of(call, offset)
    wanted = exact(call, operands)
    error = np.abs(called(call, operands) - wanted).max()
    assert error < 3e-6
    assert error <= np.abs(evaluate(form(call), operands) - wanted).max()


def test_rows_of_one_number_again_and_again() -> None:
    """Without a variance the shift is left: rounding makes nothing of it, and no root of less."""
    call = Norm((6, 100), 1e-12, centered=True)
    operands = operands_of(call)
    operands[0][:] = np.array([0, 0.1, -1e4, 1e10, 3e-39, 123456.789], "float32")[:, None]
    np.testing.assert_allclose(called(call, operands), exact(call, operands), atol=1e-2)
    assert np.isfinite(called(replace(call, epsilon=1e-30), operands)).all()


def test_large_and_small_numbers() -> None:
    for centered in (True, False):
        call = Norm((4, 100), 1e-30, centered)
        operands = operands_of(call)
        operands[0] *= np.array([1e-10, 1e-5, 1e8, 1e15], "float32")[:, None]
        wanted = exact(call, operands)
        np.testing.assert_allclose(called(call, operands), wanted, rtol=2e-6, atol=2e-6)


@pytest.mark.usefixtures("quickly_compiled")
@pytest.mark.parametrize("size", [16, 40, 769])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_no_number(value: float, size: int) -> None:
    """In the first place of a row, in the last one, and in between: as numpy has it."""
    for centered in (True, False):
        call = Norm((4, size), 1e-5, centered)
        operands = operands_of(call)
        for row, place in enumerate((0, size // 2, size - 1)):
            operands[0][row, place] = value
        with np.errstate(invalid="ignore"):
            wanted = exact(call, operands)
        assert np.isnan(wanted[0, 0])
        np.testing.assert_allclose(called(call, operands), wanted, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(evaluate(form(call), operands), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("count", [2, 5])
def test_rows_are_shared_out(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = Threads(count)
    monkeypatch.setattr(native_calls, "share_threads", lambda m: m.use_threads(threads.address))
    shared = native_calls.library(FAMILY, FAMILY.flags())
    for shape, parts in (((7, 11, 1000), True), ((2, 70001), True), ((50, 100), False)):
        for centered in (True, False):
            call = Norm(shape, 1e-5, centered)
            operands = operands_of(call)
            before = len(threads.parts)
            made = native_programs.called(shared, call, operands)
            np.testing.assert_array_equal(made, called(call, operands))
            assert len(threads.parts) - before == parts
    assert min(threads.parts) >= 2


def test_gradients_of_many_rows_are_shared_out(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = Threads(2)
    monkeypatch.setattr(native_calls, "share_threads", lambda m: m.use_threads(threads.address))
    shared = native_calls.library(FAMILY, FAMILY.flags())
    call = NormGradient((100, 1000))
    operands = gradient_operands_of(call)
    made = native_programs.called(shared, call, operands)
    assert len(threads.parts) == 1
    np.testing.assert_array_equal(made, called(call, operands))


def test_a_program_calls_a_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    made, call = replaced(monkeypatch), GRADIENTS[2]
    operands = gradient_operands_of(call)
    result = run(program(call, FAMILY, form(call)), operands)
    assert made == [call]
    np.testing.assert_array_equal(result, called(call, operands))


@pytest.mark.parametrize("epsilon", [0.1 + 0.2, 1e-5, 1.1920928955078125e-07, 0.0])
def test_a_program_calls_it_with_its_epsilon(
    epsilon: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = replaced(monkeypatch)
    for centered in (True, False):
        call = Norm((4, 33), epsilon, centered)
        operands = operands_of(call)
        # The number added is most of what is under the root.
        operands[0] *= np.float32(1e-3)
        result = run(program(call, FAMILY, form(call)), operands)
        assert made.pop() == call
        np.testing.assert_allclose(result, exact(call, operands), rtol=1e-6, atol=1e-6)


def test_without_a_library_rows_are_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    with no_library(monkeypatch):
        call, made = CALLS[8], replaced(monkeypatch)
        operands = operands_of(call)
        result = run(program(call, FAMILY, form(call)), operands)
    assert not made
    np.testing.assert_allclose(result, exact(call, operands), rtol=1e-5, atol=1e-5)


WRONG: list[tuple[Norm, str]] = [
    (Norm((), 1e-5, True), "sizes are positive"),
    (Norm((0, 16), 1e-5, True), "sizes are positive"),
    (Norm((4, 15), 1e-5, True), "at least 16"),
    (Norm((16,), -1e-5, True), "finite"),
    (Norm((16,), float("nan"), True), "finite"),
    (Norm((16,), float("inf"), False), "finite"),
]


@pytest.mark.parametrize(("call", "problem"), WRONG, ids=range(len(WRONG)))
def test_calls_that_cannot_be(call: Norm, problem: str) -> None:
    assert problem in call.problem()


GOOD = Norm((3, 4, 20), 1e-5, centered=True)


def read(attributes: Mapping[str, Any], operands: list[Tensor], result: Tensor) -> object:
    return FAMILY.read(GOOD.name, attributes, operands, [result])


def test_what_files_bring_is_checked() -> None:
    other = replace(GOOD, centered=False)
    assert read(GOOD.attributes, GOOD.operands, GOOD.result) == GOOD
    assert read(other.attributes, other.operands, other.result) == other
    assert isinstance(read(other.attributes, GOOD.operands, GOOD.result), str)
    assert isinstance(read(GOOD.attributes, other.operands, GOOD.result), str)
    for place in range(3):
        for changed in (
            GOOD.operands[place]._replace(shape=(*GOOD.operands[place].shape[:-1], 19)),
            GOOD.operands[place]._replace(dtype="float64"),
        ):
            operands = [*GOOD.operands[:place], changed, *GOOD.operands[place + 1 :]]
            assert isinstance(read(GOOD.attributes, operands, GOOD.result), str)
    for name, value in (("epsilon", "much"), ("epsilon", -1.0), ("epsilon", float("nan"))):
        attributes = {**GOOD.attributes, name: value}
        assert isinstance(read(attributes, GOOD.operands, GOOD.result), str)
    assert isinstance(read({}, GOOD.operands, GOOD.result), str)
    assert isinstance(read(GOOD.attributes, GOOD.operands[:2], GOOD.result), str)
    assert isinstance(read(GOOD.attributes, [], GOOD.result), str)
    longer = GOOD.result._replace(shape=(4, 4, 20))
    assert isinstance(read(GOOD.attributes, GOOD.operands, longer), str)


def test_what_files_bring_of_gradients_is_checked() -> None:
    good = GRADIENTS[0]
    assert FAMILY.read(good.name, {}, good.operands, [good.result]) == good
    for place, given in enumerate(good.operands):
        for wrong in (given._replace(shape=(*given.shape, 2)), given._replace(dtype="float64")):
            operands = [*good.operands[:place], wrong, *good.operands[place + 1 :]]
            assert isinstance(FAMILY.read(good.name, {}, operands, [good.result]), str)
