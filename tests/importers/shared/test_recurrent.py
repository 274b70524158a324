"""Recurrent cells that both importers step, against torch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from relax2xla import VirtualMachine, build
from relax2xla import op as R
from relax2xla.builder import BlockBuilder
from relax2xla.importers.shared.recurrent import State, gru_cell, lstm_cell, plain_cell
from relax2xla.ir import Expr, TensorStructInfo, Var, const

SIZE = 3


def _weights(cell: torch.nn.RNNCellBase) -> tuple[list[Any], State]:
    """The input's weights, and the state's as the cells take them."""
    own, other, of_input, of_state = (p.detach().numpy() for p in cell.parameters())
    state = State(const(np.ascontiguousarray(other.T)), const(of_state))
    return [const(np.ascontiguousarray(own.T)), const(of_input)], state


def test_cells_are_those_of_torch() -> None:
    torch.manual_seed(0)
    x, h, c = (torch.randn(2, SIZE) for _ in range(3))
    plain, gru, lstm = (
        make(SIZE, SIZE) for make in (torch.nn.RNNCell, torch.nn.GRUCell, torch.nn.LSTMCell)
    )
    bb = BlockBuilder()
    params = [Var(n, TensorStructInfo((2, SIZE), "float32")) for n in "xhc"]

    def gates(x: Expr, count: int) -> list[Expr]:
        parts = bb.emit(R.split(x, count, axis=-1))
        return [bb.emit(parts[i]) for i in range(count)]

    with bb.function("main", params):
        x_, h_, c_ = params
        results: list[Expr] = []
        (w, b), state = _weights(plain)
        results += plain_cell(bb.emit, R.add(R.matmul(x_, w), b), h_, state, R.tanh)
        (w, b), state = _weights(gru)
        of_state = gates(state.product(h_), 3)
        results += gru_cell(
            bb.emit,
            gates(R.add(R.matmul(x_, w), b), 3),
            of_state,
            h_,
            lambda r: R.multiply(r, of_state[2]),
        )
        (w, b), state = _weights(lstm)
        sums = R.add(R.add(R.matmul(x_, w), b), state.product(h_))
        results += lstm_cell(bb.emit, gates(sums, 4), c_)
        bb.emit_func_output(results)
    machine = VirtualMachine(build(bb.get(), "cpu"), "cpu")
    found = machine["main"](x.numpy(), h.numpy(), c.numpy())
    wanted = [plain(x, h), gru(x, h), *lstm(x, (h, c))]
    for y, want in zip(found, wanted, strict=True):
        np.testing.assert_allclose(y, want.detach().numpy(), 1e-5, 1e-6)
