"""The function in C++ for slices side by side, against numpy and its form in rows."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relax2xla.kernels.native import Tensor
from relax2xla.kernels.slices import FAMILY, Joined
from relax2xla.runtime.compiler import has_compiler
from relax2xla.runtime.native import NativeFunction
from relax2xla.testing import evaluate
from relax2xla.transform.cpu.calls.slices import form
from relax2xla.vm.pjrt import native_calls

from . import native_programs
from .native_programs import Array, Threads, no_library, program, replaced, run

pytestmark = pytest.mark.skipif(not has_compiler(), reason="needs a C++ compiler")

# Whole vectors of channels and parts of some, groups, steps, gaps, slices outside of the volume.
CALLS = [
    Joined((1, 4, 3, 5, 16), 3, 2),
    Joined((2, 5, 2, 3, 33), 3, 5, before=1),
    Joined((1, 6, 1, 7, 3), 2, 3, step=2),
    Joined((2, 7, 3, 2, 12), 3, 4, step=2, apart=2, before=2, groups=4),
    Joined((1, 3, 4, 4, 40), 5, 3, before=2, groups=2),
    Joined((1, 1, 2, 2, 1), 3, 1, before=1),
    Joined((1, 2, 3, 3, 20), 1, 2),
]


@functools.cache
def library() -> Mapping[str, NativeFunction]:
    return native_calls.library(FAMILY, FAMILY.flags())


def operands_of(call: Joined) -> list[Array]:
    """Numbers that are all different, and none of them 0."""
    count = int(np.prod(call.volume))
    return [np.arange(1, count + 1, dtype="float32").reshape(call.volume)]


def wanted(call: Joined, volume: Array) -> Array:
    """By numpy."""
    made = np.zeros(call.result.shape, "float32")
    each = call.volume[4] // call.groups
    for s in range(call.slices):
        for k in range(call.depth):
            under = s * call.step + k * call.apart - call.before
            if 0 <= under < call.volume[1]:
                pixels = volume[:, under].reshape((-1, *call.result.shape[2:5], each))
                made[:, s, ..., k * each : (k + 1) * each] = pixels
    return made


def check(call: Joined) -> None:
    operands = operands_of(call)
    made = native_programs.called(library(), call, operands)
    np.testing.assert_array_equal(made, wanted(call, *operands))


@pytest.mark.parametrize("call", CALLS, ids=str)
def test_slices_lie_side_by_side(call: Joined) -> None:
    check(call)
    operands = operands_of(call)
    np.testing.assert_array_equal(evaluate(form(call), operands), wanted(call, *operands))


@given(
    st.tuples(*[st.integers(1, 4)] * 4, st.integers(1, 20)),
    st.tuples(*[st.integers(1, 4)] * 4, st.integers(0, 3)),
    st.sampled_from([1, 2, 3]),
)
def test_all_sizes(
    volume: tuple[int, int, int, int, int], where: tuple[int, ...], groups: int
) -> None:
    *space, each = volume
    check(Joined((*space, each * groups), *where, groups))  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("count", [2, 5])
def test_pixels_are_shared_out(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = Threads(count)
    monkeypatch.setattr(native_calls, "share_threads", lambda m: m.use_threads(threads.address))
    shared = native_calls.library(FAMILY, FAMILY.flags())
    for call, parts in (
        (Joined((1, 3, 40, 50, 32), 3, 3, before=1), True),
        (Joined((2, 9, 60, 7, 16), 2, 4, step=2), True),
        (Joined((1, 3, 8, 8, 16), 3, 1), False),
    ):
        operands = operands_of(call)
        before = len(threads.parts)
        made = native_programs.called(shared, call, operands)
        np.testing.assert_array_equal(made, wanted(call, *operands))
        assert len(threads.parts) - before == parts
    assert min(threads.parts) >= 2


def test_a_program_calls_it(monkeypatch: pytest.MonkeyPatch) -> None:
    made, call = replaced(monkeypatch), CALLS[3]
    operands = operands_of(call)
    result = run(program(call, FAMILY, form(call)), operands)
    assert made == [call]
    np.testing.assert_array_equal(result, wanted(call, *operands))


def test_without_a_library_rows_are_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    with no_library(monkeypatch):
        call, made = CALLS[3], replaced(monkeypatch)
        operands = operands_of(call)
        result = run(program(call, FAMILY, form(call)), operands)
    assert not made
    np.testing.assert_array_equal(result, wanted(call, *operands))


SIZES = (1, 4, 3, 5, 16)
WRONG: list[tuple[Joined, str]] = [
    (Joined((1, 0, 3, 5, 16), 3, 2), "sizes and distances"),
    (Joined(SIZES, 3, 0), "sizes and distances"),
    (Joined(SIZES, 3, 2, step=0), "sizes and distances"),
    (Joined(SIZES, 3, 2, before=-1), "sizes and distances"),
    (Joined(SIZES, 3, 2, apart=1 << 40), "moderate"),
    (Joined(SIZES, 3, 1 << 40), "moderate"),
    (Joined(SIZES, 0, 2), "slices deep"),
    (Joined(SIZES, 1 << 20, 2), "slices deep"),
    (Joined(SIZES, 3, 2, groups=3), "groups of one size"),
    (Joined(SIZES, 3, 2, groups=0), "groups of one size"),
]


@pytest.mark.parametrize(("call", "problem"), WRONG, ids=range(len(WRONG)))
def test_calls_that_cannot_be(call: Joined, problem: str) -> None:
    assert problem in call.problem()


GOOD = CALLS[3]


def read(attributes: Mapping[str, Any], operands: list[Tensor], result: Tensor) -> object:
    return FAMILY.read(GOOD.name, attributes, operands, [result])


def test_what_files_bring_is_checked() -> None:
    assert read(GOOD.attributes, GOOD.operands, GOOD.result) == GOOD
    (operand,) = GOOD.operands
    for wrong in ({"step": 0}, {"depth": 9}, {"groups": 5}, {"slices": -1}, {"before": "a"}):
        attributes = {**GOOD.attributes, **wrong}
        assert isinstance(read(attributes, GOOD.operands, GOOD.result), str)
    assert isinstance(read({}, GOOD.operands, GOOD.result), str)
    for operands in ([], [operand] * 2, [operand._replace(shape=operand.shape[1:])]):
        assert isinstance(read(GOOD.attributes, operands, GOOD.result), str)
    assert isinstance(read(GOOD.attributes, [operand._replace(dtype="int32")], GOOD.result), str)
    assert isinstance(read(GOOD.attributes, GOOD.operands, operand), str)
