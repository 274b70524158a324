"""Normalize: A-normal form, with every struct info known."""

from __future__ import annotations

from relax2xla.errors import TransformError
from relax2xla.ir import (
    Binding,
    BindingBlock,
    DataflowBlock,
    Expr,
    Function,
    IRModule,
    SeqExpr,
    Tuple,
    TupleStructInfo,
    Var,
    VarBinding,
)
from relax2xla.ir.deep import nests
from relax2xla.ir.normal import Normalizer
from relax2xla.ir.rewrite import Rewriter, holders_deep, joined
from relax2xla.transform.core import FunctionPass, PassContext, register
from relax2xla.transform.normal.blocks import refined, with_blocks


@register(opt_level=1)
class Normalize(FunctionPass):
    """Bring functions into A-normal form: every operand that computes something is bound first.

    Sequences inside sequences become one, neighbouring blocks of one kind become one, and variables
    without struct info get that of their value. A variable of an empty tuple, which is what an
    operator without a result gives, is read as ``R.tuple()``. Raises TransformError where a
    dataflow block holds a sequence with bindings that are no dataflow.
    """

    def transform_function(self, func: Function, mod: IRModule, context: PassContext) -> Function:
        _check_nesting(func)
        new = _Plain().function(_Builder().normal(func))
        return func if new is func else refined(new)


class _Builder(Normalizer):
    def normal(self, func: Function) -> Function:
        """``func`` in A-normal form."""
        return self._function(func)


def _check_nesting(func: Function) -> None:
    for node in holders_deep(func):
        if not isinstance(node, SeqExpr):
            continue
        for block in node.blocks:
            if not isinstance(block, DataflowBlock):
                continue
            for b in block.bindings:
                inner = b.value
                if isinstance(inner, SeqExpr) and any(
                    not isinstance(i, DataflowBlock) and i.bindings for i in inner.blocks
                ):
                    raise TransformError(
                        f"the dataflow block that binds {b.var.name_hint} holds a sequence with an "
                        "ordinary block, which may have effects; make that a DataflowBlock, or "
                        "bind it outside"
                    )


class _Plain(Rewriter):
    """What is left to do in A-normal form."""

    @nests
    def seq(self, seq: SeqExpr) -> SeqExpr:
        new = super().seq(seq)
        return with_blocks(new, joined(new.blocks))

    def block(self, block: BindingBlock) -> BindingBlock:
        kept: list[Binding] = []
        for b in block.bindings:
            new = self.binding(b)
            if isinstance(new, VarBinding):
                new = self._informed(b.var, new)
            if _is_void(new.var):
                self.env[b.var] = self.env[new.var] = Tuple(())
            kept.append(new)
        if all(a is b for a, b in zip(kept, block.bindings, strict=True)):
            return block
        return type(block)(kept, block.span)

    def _informed(self, old: Var, b: VarBinding) -> VarBinding:
        """``b`` with a variable that knows what it holds."""
        if b.var.struct_info_ is not None or b.value.struct_info_ is None:
            return b
        var = self.var(b.var, b.value.struct_info_)
        self.env[old] = var
        return VarBinding(var, b.value, b.span)


def _is_void(var: Expr) -> bool:
    info = var.struct_info_
    return isinstance(info, TupleStructInfo) and not info.fields
