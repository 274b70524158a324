"""The function in C++ for transpositions, against numpy and its form in rows."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relax2xla.kernels.native import Tensor
from relax2xla.kernels.transposes import FAMILY, Transpose
from relax2xla.runtime.compiler import has_compiler
from relax2xla.runtime.native import NativeFunction
from relax2xla.testing import evaluate
from relax2xla.transform.cpu.calls.transposes import form
from relax2xla.vm.pjrt import native_calls

from . import native_programs
from .native_programs import Array, Threads, no_library, program, replaced, run

pytestmark = pytest.mark.skipif(not has_compiler(), reason="needs a C++ compiler")

# Matrices that fill blocks and tiles and do not, images with few and many channels, filters, and
# axes that belong to either side.
CALLS = [
    *(Transpose((h, w), (1, 0)) for h in (2, 7, 16, 33, 255) for w in (3, 8, 17, 64, 130)),
    *(Transpose((2, h, w), (0, 2, 1)) for h, w in ((3, 1030), (1030, 3), (257, 520), (600, 150))),
    *(Transpose((3, 5, 24, 17), order) for order in ((0, 2, 3, 1), (0, 3, 1, 2), (3, 0, 1, 2))),
    *(Transpose((3, 3, 20, 40), order) for order in ((3, 2, 0, 1), (1, 3, 2, 0))),
    *(Transpose((40, 20, 3, 3), order) for order in ((2, 3, 1, 0), (3, 0, 2, 1))),
    Transpose((9, 130, 70), (2, 1, 0)),
    Transpose((130, 9, 70), (2, 1, 0)),
    Transpose((1, 6, 1, 5, 1), (3, 2, 4, 1, 0)),
    Transpose((2, 3, 2, 3, 2, 3, 2, 3), (7, 0, 6, 1, 5, 2, 4, 3)),
    # Weights as windows turned around, axes that go backwards beside others and between them.
    Transpose((40, 24, 3, 2, 3), (2, 3, 4, 0, 1), "float32", (0, 1, 2)),
    Transpose((40, 24, 3, 2, 3), (3, 4, 2, 1, 0), "float32", (0, 2)),
    Transpose((20, 33, 7), (2, 1, 0), "float32", (1,)),
    Transpose((20, 1, 33, 7), (0, 3, 1, 2), "float32", (0, 1)),
]


@functools.cache
def library() -> Mapping[str, NativeFunction]:
    return native_calls.library(FAMILY, FAMILY.flags())


def called(call: Transpose, operands: list[Array]) -> Array:
    """What the function in C++ gives."""
    return native_programs.called(library(), call, operands)


def operands_of(call: Transpose) -> list[Array]:
    """Numbers that are all different."""
    count = int(np.prod(call.shape))
    return [np.arange(count, dtype=call.dtype).reshape(call.shape)]


def wanted(call: Transpose, operand: Array) -> Array:
    """By numpy."""
    return np.flip(operand.transpose(call.order), call.flipped)


def check(call: Transpose) -> None:
    operands = operands_of(call)
    np.testing.assert_array_equal(called(call, operands), wanted(call, operands[0]))


@pytest.mark.parametrize("call", CALLS, ids=str)
def test_blocks_and_what_is_left_beside_them(call: Transpose) -> None:
    check(call)


@pytest.mark.parametrize("rank", [2, 3, 4, 5])
def test_all_orders(rank: int) -> None:
    rng = np.random.default_rng(rank)
    sizes = [1, 2, 3, 5, 9, 16, 17, 33]
    for order in itertools.permutations(range(rank)):
        for _ in range(4):
            call = Transpose(tuple(map(int, rng.choice(sizes[: 10 - rank], rank))), order)
            if not call.problem():
                check(call)


@given(st.permutations(range(4)), st.tuples(*[st.integers(1, 40)] * 4), st.sets(st.integers(0, 2)))
def test_all_sizes(order: list[int], shape: tuple[int, ...], backwards: set[int]) -> None:
    flipped = tuple(i for i in sorted(backwards) if shape[order[i]] > 1)
    call = Transpose(shape, tuple(order), "float32", flipped)
    if not call.problem():
        check(call)


def test_bits_stay_as_they_are() -> None:
    call = Transpose((20, 33), (1, 0))
    bits = np.random.default_rng(0).integers(0, 1 << 32, call.shape, "uint32")
    for dtype in ("float32", "int32", "uint32"):
        made = called(Transpose(call.shape, call.order, dtype), [bits.view(dtype)])
        np.testing.assert_array_equal(made.view("uint32"), bits.T)


@pytest.mark.parametrize("count", [2, 5])
def test_tiles_are_shared_out(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = Threads(count)
    monkeypatch.setattr(native_calls, "share_threads", lambda m: m.use_threads(threads.address))
    shared = native_calls.library(FAMILY, FAMILY.flags())
    for shape, order, parts in (
        ((3, 300, 270), (0, 2, 1), True),
        ((700, 600), (1, 0), True),
        ((1, 3, 224, 224), (0, 2, 3, 1), True),
        ((8, 16, 30, 30), (0, 2, 3, 1), True),
        ((90, 90), (1, 0), False),
    ):
        call = Transpose(shape, order)
        operands = operands_of(call)
        before = len(threads.parts)
        made = native_programs.called(shared, call, operands)
        np.testing.assert_array_equal(made, operands[0].transpose(order))
        assert len(threads.parts) - before == parts
    assert min(threads.parts) >= 2


@pytest.mark.parametrize("dtype", ["float32", "int32", "uint32"])
def test_a_program_calls_it(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = replaced(monkeypatch)
    call = Transpose((2, 33, 5, 20), (0, 2, 3, 1), dtype, (1, 2))
    operands = operands_of(call)
    result = run(program(call, FAMILY, form(call)), operands)
    assert made == [call]
    np.testing.assert_array_equal(result, wanted(call, operands[0]))
    np.testing.assert_array_equal(result, evaluate(form(call), operands))


def test_without_a_library_rows_are_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    with no_library(monkeypatch):
        call, made = CALLS[-3], replaced(monkeypatch)
        operands = operands_of(call)
        result = run(program(call, FAMILY, form(call)), operands)
    assert not made
    np.testing.assert_array_equal(result, wanted(call, operands[0]))


WRONG: list[tuple[Transpose, str]] = [
    (Transpose((), ()), "sizes are positive"),
    (Transpose((4, 0), (1, 0)), "sizes are positive"),
    (Transpose((2,) * 9, tuple(reversed(range(9)))), "at most 8 axes"),
    (Transpose((4, 5), (1, 1)), "each axis once"),
    (Transpose((4, 5), (1,)), "each axis once"),
    (Transpose((4, 5), (1, 2)), "each axis once"),
    (Transpose((1, 1), (1, 0)), "becomes another"),
    (Transpose((4, 5, 6), (1, 0, 2)), "becomes another"),
    (Transpose((4, 5, 1), (0, 2, 1)), "becomes another"),
    (Transpose((4, 5), (1, 0), "float64"), "float32"),
    (Transpose((4, 5, 6), (2, 1, 0), "float32", (2,)), "the last is none"),
    (Transpose((4, 5, 1), (1, 0, 2), "float32", (1,)), "the last is none"),
    (Transpose((4, 1, 6), (2, 1, 0), "float32", (1,)), "the last is none"),
    (Transpose((4, 5, 6), (2, 1, 0), "float32", (1, 0)), "in order"),
    (Transpose((4, 5, 6), (2, 1, 0), "float32", (0, 7)), "in order"),
]


@pytest.mark.parametrize(("call", "problem"), WRONG, ids=range(len(WRONG)))
def test_calls_that_cannot_be(call: Transpose, problem: str) -> None:
    assert problem in call.problem()


GOOD = Transpose((3, 4, 20), (2, 0, 1))


def read(attributes: Mapping[str, Any], operands: list[Tensor], result: Tensor) -> object:
    return FAMILY.read(GOOD.name, attributes, operands, [result])


def test_what_files_bring_is_checked() -> None:
    assert read(GOOD.attributes, GOOD.operands, GOOD.result) == GOOD
    (operand,) = GOOD.operands
    backwards = ({**GOOD.attributes, "flipped": v} for v in ([2], [-1], [5], 1, ["a"], [0, 0]))
    others = ({}, {"order": 1}, {"order": [2, 1, 0]}, {"order": [2, 0]}, {"order": ["a"]})
    for wrong in (*others, *backwards):
        assert isinstance(read(wrong, GOOD.operands, GOOD.result), str)
    for operands in ([], [operand, operand], [operand._replace(shape=(3, 4, 21))]):
        assert isinstance(read(GOOD.attributes, operands, GOOD.result), str)
    assert isinstance(read(GOOD.attributes, [operand._replace(dtype="int32")], GOOD.result), str)
    assert isinstance(read(GOOD.attributes, GOOD.operands, operand), str)
