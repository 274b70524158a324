"""ToNonDataflow: ordinary blocks in the place of dataflow blocks."""

from __future__ import annotations

from relax2xla.ir import (
    BindingBlock,
    DataflowBlock,
    Function,
    IRModule,
    SeqExpr,
)
from relax2xla.ir.deep import nests
from relax2xla.ir.rewrite import joined
from relax2xla.transform.core import FunctionPass, PassContext, register
from relax2xla.transform.normal.blocks import with_blocks
from relax2xla.transform.normal.homes import Ordinary


@register()
class ToNonDataflow(FunctionPass):
    """Make ordinary blocks of dataflow blocks, and ordinary variables of their variables.

    The pass before lowerings that need effects, or allocations, between pure values.
    """

    def transform_function(self, func: Function, mod: IRModule, context: PassContext) -> Function:
        return _Flat().function(func)


class _Flat(Ordinary):
    @nests
    def seq(self, seq: SeqExpr) -> SeqExpr:
        new = super().seq(seq)
        return new if new is seq else with_blocks(new, joined(new.blocks))

    def block(self, block: BindingBlock) -> BindingBlock:
        new = super().block(block)
        if isinstance(block, DataflowBlock):
            return BindingBlock(new.bindings, block.span)
        return new
