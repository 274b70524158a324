"""Recurrent layers for importers: cells, and a cell stepped over a sequence.

The products of all inputs with the weights are one matmul before the loop, so that a cell takes
rows of sums of all its gates; a step of the loop multiplies the state alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from relax2xla import op as R
from relax2xla.builder import BlockBuilder
from relax2xla.importers.shared import loops
from relax2xla.importers.shared.tensors import dims_of, dtype_of
from relax2xla.ir import Expr, const

#: New states, the first of them the output, from a row of the sequence and the states.
Cell = Callable[[Expr, Sequence[Expr]], Sequence[Expr]]
Activation = Callable[[Expr], Expr]
#: Binds a value that is used more than once.
Emit = Callable[[Expr], Expr]


@dataclass(frozen=True, slots=True)
class State:
    """What a state is multiplied with: ``weight`` (h, gates * h), and what is added (gates * h)."""

    weight: Expr
    bias: Expr | None = None

    def product(self, h: Expr) -> Expr:
        """The state's part of the sums of all gates, (batch, gates * h)."""
        made = R.matmul(h, self.weight)
        return made if self.bias is None else R.add(made, self.bias)


def plain_cell(emit: Emit, x: Expr, h: Expr, state: State, activation: Activation) -> list[Expr]:
    """``h = f(x + h W)``."""
    return [emit(activation(R.add(x, state.product(h))))]


def gru_cell(
    emit: Emit,
    of_input: Sequence[Expr],
    of_state: Sequence[Expr],
    h: Expr,
    hidden: Callable[[Expr], Expr],
    activations: Sequence[Activation] = (R.sigmoid, R.tanh),
) -> list[Expr]:
    """``h = (1 - z) n + z h`` of the sums of the gates r (reset), z (update) and n (new).

    of_input:    those of the input: r, z, n
    of_state:    those of the state: r, z
    hidden:      from r the state's part of n
    activations: of the gates, of n
    """
    of_gate, of_new = activations
    r, z = (emit(of_gate(R.add(of_input[k], of_state[k]))) for k in (0, 1))
    n = of_new(R.add(of_input[2], hidden(r)))
    one = const(1, dtype_of(h))
    return [emit(R.add(R.multiply(R.subtract(one, z), n), R.multiply(z, h)))]


def lstm_cell(
    emit: Emit,
    gates: Sequence[Expr],
    c: Expr,
    activations: Sequence[Activation] = (R.sigmoid, R.tanh, R.tanh),
    peepholes: Sequence[Expr] = (),
    coupled: bool = False,
) -> list[Expr]:
    """``c = f c + i g`` and ``h = o tanh(c)``, given as h and c.

    gates:       sums of i (input), f (forget), g (cell) and o (output)
    activations: of the gates, of g, of c
    peepholes:   weights by which the gates i, f and o see the cell
    coupled:     f is 1 - i
    """
    of_gate, of_new, of_cell = activations
    i, f, g, o = gates

    def seen(gate: Expr, at: int, cell: Expr) -> Expr:
        return of_gate(R.add(gate, R.multiply(peepholes[at], cell)) if peepholes else gate)

    i = emit(seen(i, 0, c))
    f = R.subtract(const(1, dtype_of(c)), i) if coupled else seen(f, 1, c)
    c = emit(R.add(R.multiply(f, c), R.multiply(i, of_new(g))))
    return [emit(R.multiply(seen(o, 2, c), of_cell(c))), c]


def sweep(
    bb: BlockBuilder,
    rows: Expr,
    states: Sequence[Expr],
    cell: Cell,
    backwards: bool = False,
    lens: Expr | None = None,
) -> tuple[Expr, list[Expr]]:
    """Outputs (length, batch, ...) in the order of ``rows`` (length, batch, ...), and last states.

    backwards:  the cell begins at the last row
    lens:       (batch,) int64: beyond the end of a sequence states stay and outputs are zero
    """
    length = dims_of(rows)[0]
    size = loops.number(length)

    def body(i: Expr, values: Sequence[Expr]) -> tuple[Sequence[Expr], Sequence[Expr]]:
        at = i
        if backwards:
            at = bb.emit(R.subtract(R.subtract(size, loops.number(1)), i))
        new = cell(bb.emit(loops.element(rows, at, 0)), values)
        if lens is None:
            return new, [new[0]]
        within = bb.emit(R.expand_dims(R.less(at, lens), [1]))
        kept = [R.where(within, a, b) for a, b in zip(new, values, strict=True)]
        return kept, [R.where(within, new[0], const(0, dtype_of(new[0])))]

    last, stacked = loops.scan(bb, length, body, states, [loops.Stack(0, backwards)])
    return stacked[0], last
