"""Dead code elimination inside one function, or one part of it."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from relax2xla.analysis.variables import contains_impure_call, used_vars
from relax2xla.ir.deep import nests
from relax2xla.ir.expr import (
    Binding,
    BindingBlock,
    Call,
    Constant,
    DataflowBlock,
    DataflowVar,
    Expr,
    Function,
    If,
    MatchCast,
    SeqExpr,
    VarBinding,
)
from relax2xla.ir.op import Op
from relax2xla.ir.rewrite import VAR_TYPES, joined

Code = TypeVar("Code", bound=Expr | BindingBlock)

Keep = Callable[[Expr], bool]
"""Whether a value outside dataflow blocks stays although nothing uses it."""


def remove_all_unused(func: Code) -> Code:
    """``func`` without bindings whose variables are never used and whose values are pure.

    func: a Function, its body (a SeqExpr), an If, or one block of bindings. Of a block, what others
    can see stays: of a DataflowBlock its outputs, of an ordinary one everything that it binds.
    Other expressions hold no bindings and come back as they are.

    Match-casts stay: what they check at run time is part of the program.
    Branches and local functions are cleaned as well. The cost is linear. TypeError for what is
    neither expression nor block.
    """
    return remove_unused(func, lambda value: False)


def remove_unused(expr: Code, keep: Keep) -> Code:
    """:func:`remove_all_unused`, but for values outside dataflow blocks that ``keep`` names."""
    cleaner = _Cleaner(keep)
    made: Any = cleaner.top(expr)
    return made


_FLAT: Final = VAR_TYPES | {Constant}


class _Cleaner:
    """Walks backwards, so that one pass finds whole chains; ``live``: the variables in use."""

    def __init__(self, keep: Keep) -> None:
        self.keep = keep
        self.live: set[Expr] = set()

    def top(self, value: object) -> object:
        """What the caller has given, cleaned."""
        if isinstance(value, SeqExpr):
            return self.seq(value)
        if isinstance(value, Expr):
            return self.inside(value)
        if not isinstance(value, BindingBlock):
            raise TypeError(
                "remove_all_unused takes a Function, a SeqExpr or a block of bindings; got "
                f"{type(value).__name__}"
            )
        dataflow = isinstance(value, DataflowBlock)
        seen = (b.var for b in value.bindings)
        self.live.update(v for v in seen if not dataflow or not isinstance(v, DataflowVar))
        return self.block(value) or type(value)((), value.span)

    @nests
    def seq(self, seq: SeqExpr) -> SeqExpr:
        self.live.update(used_vars(seq.body))
        new = [self.block(block) for block in reversed(seq.blocks)]
        blocks = [block for block in reversed(new) if block is not None]
        if _same(blocks, seq.blocks):
            return seq
        return SeqExpr(joined(blocks), seq.body, seq.span)

    def block(self, block: BindingBlock) -> BindingBlock | None:
        """The block with what is in use; None where that is nothing."""
        kept: list[Binding] = []
        dataflow = isinstance(block, DataflowBlock)
        live, use, keep, flat = self.live, self.live.update, kept.append, _FLAT.issuperset
        for b in reversed(block.bindings):
            if b.var not in live and not self.stays(b, dataflow):
                continue
            value = b.value
            if type(value) is Call and type(value.op) is Op and flat(map(type, value.args)):
                # What most bindings hold; leaves that are no variables do no harm there.
                use(value.args)
                keep(b)
                continue
            value = self.inside(value)
            # What scopes use, cleaning them has added.
            if isinstance(value, If):
                use(used_vars(value.cond))
            elif not isinstance(value, Function):
                use(used_vars(value))
            keep(b if value is b.value else VarBinding(b.var, value, b.span))
        kept.reverse()
        if not kept:
            return None
        return block if _same(kept, block.bindings) else type(block)(kept, block.span)

    def stays(self, b: Binding, dataflow: bool) -> bool:
        """Whether a binding stays although nothing uses its variable."""
        if isinstance(b, MatchCast):
            return True
        if isinstance(b.value, Function):
            return False
        return contains_impure_call(b.value) or (not dataflow and self.keep(b.value))

    def inside(self, value: Expr) -> Expr:
        """A value with its scopes cleaned."""
        if isinstance(value, Function):
            body = self.seq(value.body)
            return value if body is value.body else value.replace(body=body)
        if isinstance(value, If):
            yes, no = self.seq(value.true_branch), self.seq(value.false_branch)
            if yes is value.true_branch and no is value.false_branch:
                return value
            return If(value.cond, yes, no, value.span)
        return value


def _same(new: Sequence[object], old: Sequence[object]) -> bool:
    return len(new) == len(old) and all(map(operator.is_, new, old))
