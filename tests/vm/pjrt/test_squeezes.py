"""Squeeze and excitation, and pooling, in C++: against numpy in float64 and the forms in rows."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from relax2xla.kernels.native import ENDINGS, Tensor
from relax2xla.kernels.squeezes import FAMILY, GATES, Described, Excitation, Pool
from relax2xla.runtime.compiler import has_compiler
from relax2xla.runtime.native import NativeFunction
from relax2xla.testing import evaluate
from relax2xla.transform.cpu.calls.squeezes import form
from relax2xla.vm.pjrt import native_calls

from . import native_programs
from .native_programs import Array, Threads, no_library, program, replaced, run

pytestmark = pytest.mark.skipif(not has_compiler(), reason="needs a C++ compiler")

# Images of one pixel and of several pieces; channels that fill no vector, vectors, and some more;
# batches that are computed together, in turn, and with a rest.
EXCITATIONS = [
    Excitation((1, 1, 1, 8), 3, "relu"),
    Excitation((2, 7, 7, 16), 8, "silu"),
    Excitation((5, 14, 14, 24), 8, "relu", "hardsigmoid"),
    Excitation((1, 56, 56, 40), 24, "hardswish", "hardsigmoid"),
    Excitation((5, 7, 7, 72), 24),
    Excitation((2, 14, 14, 672), 168, "relu", "hardsigmoid"),
    Excitation((1, 5, 13, 33), 17, "gelu"),
    Excitation((2, 28, 28, 200), 1, "relu"),
    Excitation((1, 3, 1, 1), 1, "relu"),
]
POOLS = [Pool(call.image) for call in EXCITATIONS]
ALL: list[Described] = [*EXCITATIONS, *POOLS]


@functools.cache
def library() -> Mapping[str, NativeFunction]:
    return native_calls.library(FAMILY, FAMILY.flags())


def called(call: Described, operands: list[Array]) -> Array:
    """What the function in C++ gives."""
    return native_programs.called(library(), call, operands)


def operands_of(call: Described) -> list[Array]:
    rng = np.random.default_rng(call.image[3])
    made = [rng.standard_normal(t.shape, "float32") for t in call.operands]
    for weight in made[1::2]:
        weight *= weight.shape[1] ** -0.5
    return made


def unpacked(weight: Array, results: int) -> Array:
    """Of panels [panels, depth, 16] the matrix."""
    return np.concatenate(list(weight.astype("float64")), axis=1)[:, :results]


def in_torch(call: Described, operands: list[Array]) -> Array:
    """What a call gives, in float64."""
    image, *rest = (torch.from_numpy(v.astype("float64")) for v in operands)
    means = image.mean((1, 2))
    if isinstance(call, Pool):
        return means.numpy()
    down, up = (
        torch.from_numpy(unpacked(v, n))
        for v, n in ((operands[1], call.squeezed), (operands[3], call.image[3]))
    )
    functional = torch.nn.functional
    functions: dict[str, Any] = {
        "": lambda v: v,
        "relu": torch.relu,
        "relu6": functional.relu6,
        "hardswish": functional.hardswish,
        "sigmoid": torch.sigmoid,
        "silu": functional.silu,
        "gelu": functional.gelu,
        "gelu_tanh": functools.partial(functional.gelu, approximate="tanh"),
        "hardsigmoid": functional.hardsigmoid,
    }
    hidden = functions[call.first](means @ down + rest[1])
    return (image * functions[call.gate](hidden @ up + rest[3])[:, None, None]).numpy()


@pytest.mark.parametrize("call", ALL, ids=range(len(ALL)))
def test_functions_and_forms(call: Described) -> None:
    assert not call.problem()
    assert FAMILY.read(call.name, call.attributes, call.operands, [call.result]) == call
    operands = operands_of(call)
    wanted = in_torch(call, operands)
    np.testing.assert_allclose(called(call, operands), wanted, rtol=2e-6, atol=2e-6)
    np.testing.assert_allclose(evaluate(form(call), operands), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("first", ENDINGS)
def test_what_follows(first: str, gate: str) -> None:
    call = replace(EXCITATIONS[4], first=first, gate=gate)
    operands = operands_of(call)
    operands[2] *= 4
    operands[4][...] = np.linspace(-6, 6, call.image[3], dtype="float32")
    wanted = in_torch(call, operands)
    np.testing.assert_allclose(called(call, operands), wanted, rtol=5e-6, atol=5e-6)


def test_means_far_from_zero() -> None:
    """The rounding of many numbers of one sign stays within few units of the last place."""
    call = Pool((1, 224, 224, 24))
    (image,) = operands_of(call)
    image = image + np.float32(1000)
    wanted = image.mean((1, 2), dtype="float64")
    np.testing.assert_allclose(called(call, [image]), wanted, rtol=1e-6, atol=0)


def test_what_is_no_number_stays_in_its_image_and_channel() -> None:
    call = Pool((2, 9, 9, 40))
    (image,) = operands_of(call)
    image[1, 8, 8, 39] = np.nan
    image[0, 3, 2, 0] = np.inf
    made = called(call, [image])
    assert np.argwhere(np.isnan(made)).tolist() == [[1, 39]]
    assert np.argwhere(np.isinf(made)).tolist() == [[0, 0]]


@pytest.mark.parametrize("count", [2, 3])
def test_threads_change_no_number(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = Threads(count)
    monkeypatch.setattr(native_calls, "share_threads", lambda m: m.use_threads(threads.address))
    shared = native_calls.library(FAMILY, FAMILY.flags())
    for call in (Excitation((2, 28, 28, 200), 50, "relu"), Excitation((1, 57, 53, 72), 9, "silu")):
        threads.parts.clear()
        operands = operands_of(call)
        made = native_programs.called(shared, call, operands)
        np.testing.assert_array_equal(made, called(call, operands))
        assert len([parts for parts in threads.parts if parts > 1]) >= 2  # means, and scaling


def test_composites_become_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    made = replaced(monkeypatch)
    for call in (EXCITATIONS[5], POOLS[5]):
        operands = operands_of(call)
        given = [v.copy() for v in operands]
        got = run(program(call, FAMILY, form(call)), operands)
        np.testing.assert_array_equal(got, called(call, operands))
        # The result lies where the image did, which is the caller's.
        np.testing.assert_array_equal(operands[0], given[0])
    assert [type(m) for m in made] == [Excitation, Pool]


def test_without_a_library_rows_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    with no_library(monkeypatch):
        call, made = EXCITATIONS[1], replaced(monkeypatch)
        operands = operands_of(call)
        got = run(program(call, FAMILY, form(call)), operands)
        assert not made
    np.testing.assert_allclose(got, in_torch(call, operands), rtol=1e-5, atol=1e-5)


WRONG: list[tuple[Described, str]] = [
    (replace(EXCITATIONS[1], first="elu"), "what follows is one of"),
    (replace(EXCITATIONS[1], gate="relu"), "a gate one of"),
    (replace(EXCITATIONS[1], squeezed=0), "sizes are positive"),
    (Pool((1, 0, 3, 4)), "sizes are positive"),
]


@pytest.mark.parametrize(("call", "problem"), WRONG, ids=range(len(WRONG)))
def test_calls_that_cannot_be(call: Described, problem: str) -> None:
    assert problem in call.problem()


def read(
    call: Described,
    attributes: Mapping[str, object] | None = None,
    operands: list[Tensor] | None = None,
    result: Tensor | None = None,
) -> object:
    """What a file gets that asks for a call, but for what is given."""
    given = call.attributes if attributes is None else attributes
    return FAMILY.read(call.name, given, operands or call.operands, [result or call.result])


@pytest.mark.parametrize("call", [EXCITATIONS[1], POOLS[1]], ids=["excitation", "pool"])
def test_what_files_bring_is_checked(call: Described) -> None:
    for place, operand in enumerate(call.operands):
        for wrong in (
            operand._replace(shape=(*operand.shape[:-1], 99)),
            operand._replace(shape=(99, *operand.shape[1:])),
            operand._replace(shape=()),
            operand._replace(dtype="float16"),
        ):
            changed = list(call.operands)
            changed[place] = wrong
            assert isinstance(read(call, operands=changed), str)
    assert isinstance(read(call, result=Tensor((2, 7, 7, 17), "float32")), str)
    assert isinstance(read(call, operands=call.operands[1:] or [Tensor((3,), "float32")]), str)
    if isinstance(call, Excitation):
        for wrong in ({}, {**call.attributes, "gate": 3}, {**call.attributes, "first": "tanh"}):
            assert isinstance(read(call, wrong), str)
