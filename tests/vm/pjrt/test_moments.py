"""The functions in C++ for moments and sums of channels, against numpy in float64."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from relax2xla.kernels.moments import FAMILY, AnyCall, BatchGradient, Moments, RowSums, Sums
from relax2xla.kernels.native import Tensor
from relax2xla.runtime.compiler import has_compiler
from relax2xla.runtime.native import NativeFunction
from relax2xla.testing import evaluate
from relax2xla.transform.cpu.calls.moments import form
from relax2xla.vm.pjrt import native_calls

from . import native_programs
from .native_programs import Array, Threads, no_library, program, replaced, run

pytestmark = pytest.mark.skipif(not has_compiler(), reason="needs a C++ compiler")

# Channels that fill vectors and do not; rows that are read together and that are left, of one block
# and of several; planes likewise; one number of each.
SHAPES: list[tuple[int, int, int]] = [
    *((1, 1, 1), (5, 1, 1), (4, 16, 1), (9, 17, 1), (70, 40, 1), (3, 100, 1)),
    *((1000, 72, 1), (70, 2050, 1), (5000, 33, 1)),
    *((1, 3, 7), (2, 5, 16), (3, 4, 49), (2, 3, 64), (4, 2, 65), (2, 7, 200), (3, 20, 784)),
]
CALLS: list[AnyCall] = [
    *(kind(shape) for shape in SHAPES for kind in (Moments, Sums)),
    *(RowSums(shape[:2]) for shape in SHAPES if shape[2] == 1),
    *(BatchGradient(shape) for shape in SHAPES if shape[2] > 1),
]


@functools.cache
def library() -> Mapping[str, NativeFunction]:
    return native_calls.library(FAMILY, FAMILY.flags())


def called(
    call: AnyCall, operands: list[Array], functions: Mapping[str, NativeFunction] | None = None
) -> Array:
    """What the function in C++ gives: two numbers of each channel, and a gradient behind them."""
    made = native_programs.all_called(functions or library(), call, operands, FAMILY.results(call))
    return joined(made)


def joined(results: list[Array] | Array) -> Array:
    """The sums first, and a gradient behind them, a column of channels each."""
    if not isinstance(results, list):
        return results
    *gradient, sums = results
    return np.concatenate([sums, *(g.swapaxes(1, 2).reshape(-1, g.shape[1]) for g in gradient)])


def operands_of(call: AnyCall, offset: float = 0.0) -> list[Array]:
    rng = np.random.default_rng(call.shape[1])
    made = [rng.standard_normal(t.shape, "float32") for t in call.operands]
    made[0] += np.float32(offset)
    return made


def exact(call: AnyCall, operands: list[Array]) -> npt.NDArray[np.float64]:
    """In float64."""
    given = [v.astype("float64") for v in operands]
    if isinstance(call, Moments):
        return np.stack([given[0].mean((0, 2)), given[0].var((0, 2))])
    g, x, mean, *more = given
    if isinstance(call, RowSums):
        return np.stack([g.sum(0), (g * (x - mean[:, None]) * more[0][:, None]).sum(0)])
    left = x - mean[:, None]
    sums = np.stack([g.sum((0, 2)), (g * left).sum((0, 2))])
    if isinstance(call, Sums):
        return sums
    power, factor = (v[:, None] for v in more)
    shift, slope = (s[:, None] / (g.shape[0] * g.shape[2]) for s in sums)
    return joined([(g - left * slope * power - shift) * factor, sums])


def size_of(call: AnyCall) -> float:
    """How large a result may be, and so its error."""
    _, *inner = call.shape[1:]
    return 1.0 if isinstance(call, Moments) else 4 * float(np.sqrt(call.shape[0] * np.prod(inner)))


@pytest.mark.usefixtures("quickly_compiled")
@pytest.mark.parametrize("call", CALLS, ids=str)
def test_all_shapes(call: AnyCall) -> None:
    operands = operands_of(call)
    wanted, atol = exact(call, operands), 1e-6 * size_of(call)
    np.testing.assert_allclose(called(call, operands), wanted, rtol=2e-6, atol=atol)
    made = evaluate(form(call), operands)
    in_rows = joined(list(made)) if isinstance(made, tuple) else made
    np.testing.assert_allclose(in_rows, wanted, rtol=1e-4, atol=100 * atol)


@pytest.mark.parametrize("offset", [1e4, -3e5])
@pytest.mark.parametrize("shape", [(5000, 33, 1), (50, 17, 1), (3, 20, 784)])
def test_numbers_far_from_zero_lose_nothing(shape: tuple[int, int, int], offset: float) -> None:
    """Their means have errors as large as what is left without them may be."""
    call = Moments(shape)
    operands = operands_of(call, offset)
    mean, variance = called(call, operands)
    wanted = exact(call, operands)
    np.testing.assert_allclose(mean, wanted[0], rtol=1e-7)
    np.testing.assert_allclose(variance, wanted[1], rtol=1e-5)


def test_a_channel_of_one_number_has_no_variance() -> None:
    for shape in ((40, 20, 1), (4, 20, 33)):
        call = Moments(shape)
        operands = operands_of(call)
        operands[0][:] = np.linspace(-1e6, 3e5, 20, dtype="float32")[:, None]
        mean, variance = called(call, operands)
        np.testing.assert_allclose(mean, operands[0][0, :, 0], rtol=1e-7)
        assert (variance >= 0).all()
        assert (variance <= 1e-12 * np.square(mean) + 1e-30).all()


@pytest.mark.usefixtures("quickly_compiled")
@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("shape", [(9, 17, 1), (2, 17, 20)])
def test_what_is_no_number_stays_in_its_channel(shape: tuple[int, int, int], value: float) -> None:
    last = [BatchGradient(shape)] if shape[2] > 1 else []
    for call in (Moments(shape), Sums(shape), *last):
        operands = operands_of(call)
        operands[0][-1, 16, -1] = value
        with np.errstate(invalid="ignore"):
            wanted = exact(call, operands)
        made = called(call, operands)
        np.testing.assert_allclose(made[:, :16], wanted[:, :16], rtol=1e-5, atol=1e-4)
        assert not np.isfinite(made[:, 16]).any()


@pytest.mark.parametrize("count", [2, 5])
def test_channels_and_rows_are_shared_out(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = Threads(count)
    monkeypatch.setattr(native_calls, "share_threads", lambda m: m.use_threads(threads.address))
    shared = native_calls.library(FAMILY, FAMILY.flags())
    for shape, parts in (((5000, 33, 1), True), ((20, 20, 784), True), ((50, 10, 1), False)):
        last = RowSums(shape[:2]) if shape[2] == 1 else BatchGradient(shape)
        for call in (Moments(shape), Sums(shape), last):
            operands = operands_of(call)
            before = len(threads.parts)
            made = called(call, operands, shared)
            wanted = exact(call, operands)
            np.testing.assert_allclose(made, wanted, rtol=2e-6, atol=1e-6 * size_of(call))
            assert len(threads.parts) - before == parts


def test_a_program_calls_it(monkeypatch: pytest.MonkeyPatch) -> None:
    made = replaced(monkeypatch)
    for call in (*CALLS[4:6], RowSums((9, 17)), CALLS[-2]):
        operands = operands_of(call)
        result = run(program(call, FAMILY, form(call)), operands)
        assert made.pop() == call
        np.testing.assert_allclose(joined(result), exact(call, operands), rtol=1e-5, atol=1e-5)


def test_without_a_library_rows_are_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    for call in (CALLS[5], CALLS[-2]):
        with no_library(monkeypatch):
            made = replaced(monkeypatch)
            operands = operands_of(call)
            result = run(program(call, FAMILY, form(call)), operands)
        assert not made
        np.testing.assert_allclose(joined(result), exact(call, operands), rtol=1e-5, atol=1e-4)


def test_what_files_bring_is_checked() -> None:
    def read(call: Any, operands: list[Tensor], *results: Tensor) -> object:
        made = [*results, *FAMILY.further(call)] if results else FAMILY.results(call)
        return FAMILY.read(call.name, {}, operands, made)

    several = BatchGradient((3, 4, 20))
    for good in (Moments((3, 4, 20)), Sums((3, 4, 20)), RowSums((3, 4)), several):
        assert read(good, good.operands) == good
        for place, given in enumerate(good.operands):
            for wrong in (given._replace(shape=given.shape[1:]), given._replace(dtype="float64")):
                operands = [*good.operands[:place], wrong, *good.operands[place + 1 :]]
                assert isinstance(read(good, operands, good.result), str)
        assert isinstance(read(good, good.operands, Tensor((2, 5), "float32")), str)
        assert isinstance(read(good, [], good.result), str)
    for results in ([several.result], [*FAMILY.results(several), several.result], []):
        assert isinstance(FAMILY.read(several.name, {}, several.operands, results), str)
    for empty in (Moments((3, 0, 20)), BatchGradient((3, 0, 20))):
        assert "positive" in str(read(empty, empty.operands))
