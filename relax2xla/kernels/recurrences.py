"""Recurrent layers, all steps in one call of a function in C++.

``kernels/native.py`` says how a call stands in a program, and
``runtime/include/relax2xla/recurrences.cpp`` how it is computed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from relax2xla.kernels.native import Call, Family, Tensor, is_measured
from relax2xla.kernels.products import PANEL

#: The cells there are, in the order of ``Cell`` in recurrences.cpp, each with how many gates.
CELLS: Final[Mapping[str, int]] = {"lstm": 4, "gru": 3, "tanh": 1, "relu": 1}
# What the function takes as the order of gates.
_MOST_GATES: Final = 4


@dataclass(frozen=True, slots=True)
class Recurrence:
    """A cell from the first row of a sequence to the last, or from the last to the first.

    operands: the input's part of the sums of the gates [T, B, gates * H]; the state's weight
    [panels, H, gates, PANEL], zeros behind the last number of the state; its bias (gates * H,); the
    first state [B, H]; the first cells [B, H] of an LSTM, (1,) for others
    result: the states in the order of the rows [T, B, H]; of an LSTM [T + 1, B, H], the last cells
    behind them

    With the sums of the gates s = x + (h W + b), in the order i, f, g, o: c' = sigmoid(f) c +
    sigmoid(i) tanh(g), h' = sigmoid(o) tanh(c'); r, z, n of a GRU: h' = (1 - sigmoid(z)) tanh(x_n +
    sigmoid(r) (h W_n + b_n)) + sigmoid(z) h; else h' = tanh(s) or max(s, 0). ``order``: where these
    gates are among the sums of the input and in the bias; in the weight they are in order.
    """

    cell: str
    steps: int
    batch: int
    size: int
    order: tuple[int, ...]
    backwards: bool = False

    name: ClassVar[str] = "relax2xla.recurrences.recurrence"
    symbol: ClassVar[str] = "relax2xla_recurrences_recur"

    @property
    def gates(self) -> int:
        """How many the cell has."""
        return CELLS[self.cell]

    @property
    def attributes(self) -> dict[str, Any]:
        """See :class:`~relax2xla.kernels.native.Call`."""
        return {"backwards": self.backwards, "cell": self.cell, "order": self.order}

    @property
    def operands(self) -> list[Tensor]:
        """See :class:`~relax2xla.kernels.native.Call`."""
        wide, state = self.gates * self.size, (self.batch, self.size)
        shapes: list[tuple[int, ...]] = [
            (self.steps, self.batch, wide),
            (-(-self.size // PANEL), self.size, self.gates, PANEL),
            (wide,),
            state,
            state if self.cell == "lstm" else (1,),
        ]
        return [Tensor(shape, "float32") for shape in shapes]

    @property
    def result(self) -> Tensor:
        """See :class:`~relax2xla.kernels.native.Call`."""
        rows = self.steps + (self.cell == "lstm")
        return Tensor((rows, self.batch, self.size), "float32")

    @property
    def numbers(self) -> list[int]:
        """See :class:`~relax2xla.kernels.native.Call`."""
        rest = [0] * (_MOST_GATES - self.gates)
        return [list(CELLS).index(self.cell), int(self.backwards), *self.order, *rest]

    def problem(self) -> str:
        """See :class:`~relax2xla.kernels.native.Call`."""
        if self.cell not in CELLS:
            return f"a cell is one of {tuple(CELLS)}"
        if sorted(self.order) != list(range(self.gates)):
            return "each gate is in one place"
        if min(self.steps, self.batch, self.size) < 1:
            return "sizes are positive"
        return ""


def _recurrence(at: Mapping[str, Any], given: Sequence[Tensor], made: Tensor) -> Call:
    (steps, batch, _), size = given[0].shape, made.shape[2]
    order = tuple(map(int, at["order"]))
    return Recurrence(str(at["cell"]), steps, batch, size, order, bool(at["backwards"]))


FAMILY: Final = Family(
    name="recurrences",
    readers={Recurrence: _recurrence},
    source="recurrences.cpp",
    headers=(
        "activations.h",
        "numbers.h",
        "products/few_rows.h",
        "products/tile.h",
        "steps.h",
        "threads.h",
    ),
)
# Rows of a batch up to which it pays. One core with AVX-512 (Cascade Lake), beside the loop of
# products, states of 256: LSTM 0.9 of the time with one row, 0.86 with 4, 0.94 with 8, 1.06 with
# 16; GRU 0.68 with one, RNN 0.83. States of 64 0.61, of 1024 0.95.
_FEW: Final = 8


def pays(call: Recurrence) -> bool:
    """Whether a call is faster than its form in rows here; False where nobody knows."""
    return is_measured() and call.batch <= _FEW
