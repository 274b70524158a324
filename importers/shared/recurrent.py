"""Recurrent layers for importers: a cell stepped over a sequence."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from relax2xla import op as R
from relax2xla.builder import BlockBuilder
from relax2xla.importers.shared import loops as _loops
from relax2xla.importers.shared.loops import Stack
from relax2xla.importers.shared.tensors import dims_of, dtype_of
from relax2xla.ir import Expr, const

#: New states, the first of them the output, from a row of the sequence and the states.
Cell = Callable[[Expr, Sequence[Expr]], Sequence[Expr]]


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
    size = _loops.number(length)

    def body(i: Expr, values: Sequence[Expr]) -> tuple[Sequence[Expr], Sequence[Expr]]:
        at = i
        if backwards:
            at = bb.emit(R.subtract(R.subtract(size, _loops.number(1)), i))
        new = cell(bb.emit(_loops.element(rows, at, 0)), values)
        if lens is None:
            return new, [new[0]]
        within = bb.emit(R.expand_dims(R.less(at, lens), [1]))
        kept = [R.where(within, a, b) for a, b in zip(new, values, strict=True)]
        return kept, [R.where(within, new[0], const(0, dtype_of(new[0])))]

    last, stacked = _loops.scan(bb, length, body, states, [Stack(0, backwards)])
    return stacked[0], last
