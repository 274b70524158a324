"""What is computed again for the gradient: the marks of ``R.grad.start_checkpoint``.

A variable is kept for the gradient (it is a checkpoint) if it is a parameter, if it is marked as
the start of a region, or if all that its value reads is kept or is the end of a region. Values of
other variables are computed again where the gradient reads them. Source: TVM Relax v0.20.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from relax2xla.builder import BlockBuilder
from relax2xla.errors import TransformError
from relax2xla.ir import (
    Binding,
    Call,
    DataflowBlock,
    DataflowVar,
    Expr,
    Function,
    SeqExpr,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
)
from relax2xla.ir.op import Op, is_op
from relax2xla.ir.rewrite import Rewriter, post_order

START, END = "relax.grad.start_checkpoint", "relax.grad.end_checkpoint"
_START, _END = Op.get(START), Op.get(END)


@dataclass
class Marks:
    """The marks of a function. ``kept``: its checkpoints, None where nothing is marked;
    ``origin``: what stands for each variable that was bound to a mark."""

    kept: set[Var] | None = None
    origin: dict[Var, Var] = field(default_factory=dict[Var, Var])


def without_marks(func: Function) -> tuple[Function, Marks]:
    """``func``, of one dataflow block, without its marks, and what they said."""
    block = func.body.blocks[0]
    if not any(is_mark(b) for b in block.bindings):
        return func, Marks()
    kept, ends, marks = set(func.params), set[Var](), Marks()
    rewriter = Rewriter()
    bindings: list[Binding] = []
    for b in block.bindings:
        if not is_mark(b):
            read = [v for v in post_order(b.value) if isinstance(v, Var)]
            if all(v in kept or v in ends for v in read):
                kept.add(b.var)
            bindings.append(rewriter.binding(b))
            continue
        assert isinstance(b.value, Call)
        marked, (given,) = b.var, b.value.args
        origin = rewriter.expr(given)
        if not isinstance(origin, Var):
            raise TransformError(f"Gradient: {b.value.op!r} marks {origin!r}, not a variable")
        marks.origin[marked] = rewriter.env[marked] = origin
        if isinstance(given, DataflowVar) and not isinstance(marked, DataflowVar):
            # What the block gives to the outside is a variable of its own.
            shown = Var(origin.name_hint, marked.struct_info, b.span)
            bindings.append(VarBinding(shown, origin, b.span))
            rewriter.env[marked] = shown
        if is_op(b.value, START):
            kept.add(origin)
        else:
            ends.add(marked)
    marks.kept = kept
    body = SeqExpr([DataflowBlock(bindings, block.span)], rewriter.expr(func.body.body))
    return func.replace(body=body), marks


def is_mark(b: Binding) -> bool:
    """Whether a binding marks the start or the end of a region."""
    call = b.value
    if type(call) is not Call or (call.op is not _START and call.op is not _END):
        return False
    return isinstance(b, VarBinding)


class Again:
    """Computes values again for the gradient: those that are not ``kept``."""

    def __init__(self, builder: BlockBuilder, values: Mapping[Var, Expr], kept: set[Var]) -> None:
        self.builder, self.values, self.kept = builder, values, kept
        self.new: dict[Var, Var] = {}

    def call(self, var: Var, call: Call) -> tuple[Var, Call]:
        """The variable and the call that the gradient of ``var = call`` is to read."""
        args = [self.operand(a) for a in call.args]
        made = Call(call.op, args, call.attrs, call.sinfo_args, call.span)
        if var in self.kept or var not in self.values:
            return var, made
        if var not in self.new:
            self.new[var] = self.builder.emit(made, f"{var.name_hint}_cp")
        return self.new[var], made

    def operand(self, expr: Expr) -> Expr:
        """An operand over values that are there; those that are not are computed before."""
        # A value that is missing waits until all that it reads is there; no recursion.
        waiting = self._missing(expr)
        while waiting:
            var = waiting[-1]
            deeper = [] if var in self.new else self._missing(self.values[var])
            if deeper:
                waiting.extend(deeper)
                continue
            waiting.pop()
            if var not in self.new:
                value = self._replaced(self.values[var])
                self.new[var] = self.builder.emit(value, f"{var.name_hint}_cp")
        return self._replaced(expr)

    def _missing(self, expr: Expr) -> list[Var]:
        """Variables in ``expr`` that have to be computed again first, the first one last."""
        found = [v for v in post_order(expr) if isinstance(v, Var) and v in self.values]
        return [v for v in reversed(found) if v not in self.kept and v not in self.new]

    def _replaced(self, expr: Expr) -> Expr:
        """``expr`` over the new variables; calls and what they sit in are new objects."""
        match expr:
            case Var():
                return self.new.get(expr, expr)
            case Tuple():
                return Tuple([self._replaced(f) for f in expr.fields], expr.span)
            case TupleGetItem():
                return TupleGetItem(self._replaced(expr.tuple_value), expr.index, expr.span)
            case Call():
                args = [self._replaced(a) for a in expr.args]
                return Call(expr.op, args, expr.attrs, expr.sinfo_args, expr.span)
            case _:
                return expr
