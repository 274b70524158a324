"""ConvertToDataflow: pure bindings in a row become dataflow blocks."""

from __future__ import annotations

from relax2xla.ir import (
    Binding,
    BindingBlock,
    DataflowBlock,
    Function,
    If,
    IRModule,
    SeqExpr,
)
from relax2xla.ir.check import is_impure_call
from relax2xla.ir.deep import nests
from relax2xla.ir.rewrite import Rewriter, joined
from relax2xla.transform.core import FunctionPass, PassContext, register
from relax2xla.transform.normal.blocks import with_blocks
from relax2xla.transform.normal.canonicalize import canonical


@register()
class ConvertToDataflow(FunctionPass):
    """Gather bindings without effects and without branches into dataflow blocks.

    ``min_size``: how many must follow each other to make a block (TVMError where it is negative);
    a block that is there grows by its neighbours, however few. What only its block reads becomes
    its own (CanonicalizeBindings, which runs afterwards).
    """

    def __init__(self, min_size: int = 2) -> None:
        self.min_size = min_size

    def transform_function(self, func: Function, mod: IRModule, context: PassContext) -> Function:
        return canonical(_Gatherer(self.min_size).function(func))


class _Gatherer(Rewriter):
    def __init__(self, min_size: int) -> None:
        super().__init__()
        self.min_size = min_size

    @nests
    def seq(self, seq: SeqExpr) -> SeqExpr:
        new = super().seq(seq)
        blocks = _gathered(new, self.min_size)
        return new if blocks is None else with_blocks(new, joined(blocks))


def _gathered(seq: SeqExpr, min_size: int) -> list[BindingBlock] | None:
    """The blocks of ``seq``, pure bindings in dataflow blocks; None where they are as they were."""
    made: list[BindingBlock] = []
    streak: list[Binding] = []  # pure, and not in a block yet
    home: BindingBlock | None = None  # a dataflow block that is part of the streak
    changed = False

    def close() -> None:
        nonlocal streak, home, changed
        if home is None and len(streak) < min_size:
            made.append(BindingBlock(streak))
        elif streak:
            same = home is not None and len(home.bindings) == len(streak)
            made.append(home if same and home else DataflowBlock(streak, home and home.span))
            changed = changed or not same
        streak, home = [], None

    for block in seq.blocks:
        if isinstance(block, DataflowBlock):
            streak += block.bindings
            home = block
            continue
        for b in block.bindings:
            if isinstance(b.value, If) or is_impure_call(b.value):
                close()
                made.append(BindingBlock([b], block.span))
            else:
                streak.append(b)
    close()
    return made if changed else None
