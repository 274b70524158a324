"""The function in C++ for recurrent layers, against its form in rows and torch."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
import torch

import relax2xla as rx
from relax2xla.frontend.torch import from_exported_program
from relax2xla.kernels.native import Tensor
from relax2xla.kernels.recurrences import CELLS, FAMILY, Recurrence
from relax2xla.runtime.compiler import has_compiler
from relax2xla.runtime.native import NativeFunction
from relax2xla.testing import evaluate
from relax2xla.transform.cpu.calls.recurrences import form
from relax2xla.transform.pipeline import get_pipeline
from relax2xla.vm.pjrt import native_calls

from . import native_programs
from .native_programs import Array

pytestmark = pytest.mark.skipif(not has_compiler(), reason="needs a C++ compiler")


@functools.cache
def library() -> Mapping[str, NativeFunction]:
    return native_calls.library(FAMILY, FAMILY.flags())


def called(call: Recurrence, operands: list[Array]) -> Array:
    """What the function in C++ gives."""
    return native_programs.called(library(), call, operands)


def operands_of(call: Recurrence) -> list[Array]:
    rng = np.random.default_rng(call.size)
    rows, weight, *rest = (rng.standard_normal(t.shape, "float32") for t in call.operands)
    weight *= 0.5 * call.size**-0.5
    # What lies behind the last number of the state belongs to nothing.
    weight[-1, :, :, (call.size - 1) % 16 + 1 :] = 0
    return [rows, weight, *rest]


# States that fill panels and do not; rows of a batch that fill tiles and do not; one step.
SIZES = [(9, 1, 64), (5, 2, 40), (4, 3, 17), (3, 7, 16), (1, 1, 1), (2, 8, 33)]
ORDERS = {"lstm": (0, 2, 3, 1), "gru": (1, 0, 2), "tanh": (0,), "relu": (0,)}


@pytest.mark.usefixtures("quickly_compiled")
@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("cell", CELLS)
def test_all_steps_of_a_cell(cell: str, backwards: bool) -> None:
    for steps, batch, size in SIZES[backwards::2]:
        for order in {ORDERS[cell], tuple(range(CELLS[cell]))}:
            call = Recurrence(cell, steps, batch, size, order, backwards)
            assert not call.problem()
            operands = operands_of(call)
            wanted = evaluate(form(call), operands)
            np.testing.assert_allclose(called(call, operands), wanted, rtol=2e-6, atol=2e-6)


def test_states_far_out_and_what_is_no_number() -> None:
    """Gates that are wholly open or shut, and numbers that are not there, as numpy has them."""
    call = Recurrence("lstm", 1, 6, 16, (0, 1, 2, 3))
    operands = [np.zeros(t.shape, "float32") for t in call.operands]
    sums = np.array([-1e30, -200.0, -1e-30, 3e-5, 90.0, np.nan], "float32")
    operands[0][:] = sums[None, :, None]
    operands[4][:] = 2
    with np.errstate(over="ignore"):
        gate = 1 / (1 + np.exp(-sums.astype("float64")))
    cells = gate * 2 + gate * np.tanh(sums.astype("float64"))
    made = called(call, operands)
    np.testing.assert_allclose(made[1, :, 0], cells, rtol=5e-7, atol=1e-37)
    np.testing.assert_allclose(made[0, :, 0], gate * np.tanh(cells), rtol=1e-6, atol=1e-37)


class Layer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.LSTM(96, 256)

    def forward(self, x: torch.Tensor, h: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        return self.layer(x, (h, c))[0]


@pytest.mark.filterwarnings("ignore")
def test_threads_take_steps_together() -> None:
    """As many as come: what they give is what one gives, each time."""
    torch.manual_seed(0)
    layer = Layer().eval()
    given = torch.randn(200, 1, 96), torch.randn(1, 1, 256), torch.randn(1, 1, 256)
    mod = from_exported_program(torch.export.export(layer, given))
    assert "relax2xla.recurrences.recurrence" in get_pipeline("default")(mod).script()
    run = rx.VirtualMachine(rx.build(mod, "cpu"))["main"]
    with torch.no_grad():
        wanted = layer(*given).numpy()
    for _ in range(20):
        (got,) = run(*(g.numpy() for g in given))
        np.testing.assert_allclose(np.asarray(got), wanted, atol=2e-6)


WRONG: list[tuple[Recurrence, str]] = [
    (Recurrence("rnn", 1, 1, 1, (0,)), "a cell is one of"),
    (Recurrence("gru", 1, 1, 1, (0, 1, 1)), "each gate is in one place"),
    (Recurrence("lstm", 1, 1, 1, (0, 1, 2)), "each gate is in one place"),
    (Recurrence("lstm", 1, 1, 0, (0, 1, 2, 3)), "sizes are positive"),
]


@pytest.mark.parametrize(("call", "problem"), WRONG, ids=range(len(WRONG)))
def test_calls_that_cannot_be(call: Recurrence, problem: str) -> None:
    assert problem in call.problem()


GOOD = Recurrence("lstm", 3, 2, 5, (0, 1, 2, 3))


def read(attributes: Mapping[str, object], operands: list[Tensor], result: Tensor) -> object:
    return FAMILY.read(GOOD.name, attributes, operands, [result])


def test_what_files_bring_is_checked() -> None:
    assert read(GOOD.attributes, GOOD.operands, GOOD.result) == GOOD
    for place in range(5):
        changed = list(GOOD.operands)
        changed[place] = Tensor((*changed[place].shape[:-1], 99), "float32")
        assert isinstance(read(GOOD.attributes, changed, GOOD.result), str)
    for name, value in (("cell", "gru"), ("cell", 3), ("order", "none"), ("order", (0, 1, 2, 9))):
        changed_attributes = {**GOOD.attributes, name: value}
        assert isinstance(read(changed_attributes, GOOD.operands, GOOD.result), str)
    assert isinstance(read({}, GOOD.operands, GOOD.result), str)
    assert isinstance(read(GOOD.attributes, GOOD.operands[:2], GOOD.result), str)
    assert isinstance(read(GOOD.attributes, GOOD.operands, replace_row(GOOD.result)), str)


def replace_row(made: Tensor) -> Tensor:
    return made._replace(shape=(made.shape[0] - 1, *made.shape[1:]))


def test_directions_differ() -> None:
    operands = operands_of(GOOD)
    other = called(replace(GOOD, backwards=True), operands)
    assert not np.allclose(called(GOOD, operands)[:3], other[:3])
