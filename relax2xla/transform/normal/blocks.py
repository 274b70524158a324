"""What passes leave behind, in its plain form: blocks of a sequence, results of functions."""

from __future__ import annotations

from collections.abc import Sequence

from relax2xla.ir import (
    Binding,
    BindingBlock,
    DataflowVar,
    Function,
    SeqExpr,
    VarBinding,
)
from relax2xla.ir.lattice import held_shapes, is_base_of, result_info
from relax2xla.ir.normal import outside_dataflow
from relax2xla.ir.rewrite import Rewriter


def with_blocks(seq: SeqExpr, blocks: Sequence[BindingBlock]) -> SeqExpr:
    """``seq`` with other blocks; itself where they are the very same."""
    if len(blocks) == len(seq.blocks) and all(
        a is b for a, b in zip(blocks, seq.blocks, strict=True)
    ):
        return seq
    return SeqExpr(blocks, seq.body, seq.span)


class Precise(Rewriter):
    """A Rewriter that gives a variable whose value changes the struct info of the new value.

    Like TVM, whatever the variable declared.
    """

    def binding(self, b: Binding) -> Binding:
        new = super().binding(b)
        if not isinstance(new, VarBinding) or new.value is b.value:
            return new
        info = new.value.struct_info_
        if info is None or info == new.var.struct_info_ or isinstance(new.value, Function):
            return new
        if not isinstance(new.var, DataflowVar) and held_shapes(info):
            info = outside_dataflow(info)
        var = self.env[b.var] = type(new.var)(new.var.vid, info, new.var.span)
        return VarBinding(var, new.value, new.span)


def refined(func: Function) -> Function:
    """``func``, a function of a module, which says of its result what its body says, if more.

    Like TVM, whose functions say so as soon as they are made.
    """
    info = func.body.struct_info_
    if info is None or info == func.ret_struct_info:
        return func
    found = result_info(func.params, info)
    if found == func.ret_struct_info or not is_base_of(func.ret_struct_info, found):
        return func
    return func.replace(ret_struct_info=found)
