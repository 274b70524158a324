"""What calls in loops and branches take of constants alone, bound before them.

Weights are laid out for functions in C++ where a call is. In the body of a loop that would be done
at each step; before it, LiftWeights takes it out of the program.
"""

from __future__ import annotations

from collections.abc import Sequence

from relax2xla.dpl.constancy import FromConstants
from relax2xla.dpl.rules import with_scopes
from relax2xla.ir import (
    Binding,
    BindingBlock,
    Call,
    DataflowBlock,
    DataflowVar,
    Expr,
    Function,
    SeqExpr,
    Var,
    VarBinding,
)
from relax2xla.ir.op import is_op
from relax2xla.ir.rewrite import Rewriter, bindings_deep, bindings_of, reads

_COMPOSITE = "relax.stablehlo.composite"


def constants_before_loops(func: Function) -> Function:
    """``func`` with constant operands of composites in loops and branches bound before these."""
    outer = {b.var for b in bindings_of(func.body)}
    values: dict[Expr, Expr] = {
        b.var: b.value
        for b in bindings_deep(func.body)
        # What functions read is not told: what calls one counts as no constant.
        if isinstance(b, VarBinding) and not isinstance(b.value, Function)
    }
    from_constants = FromConstants(values)
    wanted: set[Var] = set()
    for var, value in values.items():
        if var not in outer and isinstance(value, Call) and is_op(value, _COMPOSITE):
            wanted |= {v for v in reads(value) if v not in outer and from_constants(v)}
    todo = list(wanted)
    while todo:
        more = [v for v in reads(values[todo.pop()]) if v not in outer and v not in wanted]
        wanted.update(more)
        todo += more
    if not wanted:
        return func
    blocks = [_Before(wanted, block).made for block in func.body.blocks]
    return func.replace(body=SeqExpr(blocks, func.body.body, func.body.span))


class _Before:
    """A block with what is wanted of the scopes in its bindings before each of them."""

    def __init__(self, wanted: set[Var], block: BindingBlock) -> None:
        self._wanted = wanted
        out: list[Binding] = []
        for b in block.bindings:
            moved = [x for x in bindings_deep(b.value) if x.var in wanted]
            if not moved or not isinstance(b, VarBinding):
                out.append(b)
                continue
            rewriter = Rewriter()
            kind = DataflowVar if isinstance(block, DataflowBlock) else Var
            for x in moved:
                assert isinstance(x, VarBinding)
                new = kind(x.var.name_hint, x.var.struct_info_)
                out.append(VarBinding(new, rewriter.expr(x.value), x.span))
                rewriter = Rewriter(values={**rewriter.env, x.var: new})
            value = rewriter.expr(self._without(b.value))
            out.append(VarBinding(b.var, value, b.span))
        self.made = block if out == [*block.bindings] else type(block)(out, block.span)

    def _without(self, value: Expr) -> Expr:
        return with_scopes(value, self._seq)

    def _seq(self, seq: SeqExpr) -> SeqExpr:
        blocks = [type(b)(self._kept(b.bindings), b.span) for b in seq.blocks]
        return SeqExpr(blocks, seq.body, seq.span)

    def _kept(self, bindings: Sequence[Binding]) -> list[Binding]:
        return [
            VarBinding(b.var, self._without(b.value), b.span)
            if isinstance(b, VarBinding) and next(bindings_deep(b.value), None) is not None
            else b
            for b in bindings
            if b.var not in self._wanted
        ]
