"""Dead code elimination inside one function."""

from __future__ import annotations

import operator
from collections.abc import Sequence

from relax2xla.analysis.variables import contains_impure_call, used_vars
from relax2xla.ir.deep import nests
from relax2xla.ir.expr import (
    Binding,
    BindingBlock,
    Expr,
    Function,
    If,
    MatchCast,
    SeqExpr,
    Var,
    VarBinding,
)


def remove_all_unused(func: Function) -> Function:
    """``func`` without bindings whose variables are never used and whose values are pure.

    Match-casts stay: what they check at run time is part of the program.
    Branches and local functions are cleaned as well. The cost is linear.
    """
    live: set[Var] = set()
    body = _clean(func.body, live)
    return func if body is func.body else func.replace(body=body)


@nests
def _clean(seq: SeqExpr, live: set[Var]) -> SeqExpr:
    """Backwards, so that one pass finds whole chains; ``live`` collects the variables in use."""
    live.update(used_vars(seq.body))
    blocks: list[BindingBlock] = []
    for block in reversed(seq.blocks):
        kept: list[Binding] = []
        for b in reversed(block.bindings):
            if b.var not in live and not _must_stay(b):
                continue
            value = _inside(b.value, live)
            # What scopes use, cleaning them has added.
            if isinstance(value, If):
                live.update(used_vars(value.cond))
            elif not isinstance(value, Function):
                live.update(used_vars(value))
            kept.append(b if value is b.value else VarBinding(b.var, value, b.span))
        kept.reverse()
        if _same(kept, block.bindings):
            blocks.append(block)
        elif kept:
            blocks.append(type(block)(kept, block.span))
    blocks.reverse()
    if _same(blocks, seq.blocks):
        return seq
    return SeqExpr(blocks, seq.body, seq.span)


def _same(new: Sequence[object], old: Sequence[object]) -> bool:
    return len(new) == len(old) and all(map(operator.is_, new, old))


def _must_stay(b: Binding) -> bool:
    if isinstance(b, MatchCast):
        return True
    return not isinstance(b.value, Function) and contains_impure_call(b.value)


def _inside(value: Expr, live: set[Var]) -> Expr:
    if isinstance(value, Function):
        body = _clean(value.body, live)
        return value if body is value.body else value.replace(body=body)
    if isinstance(value, If):
        yes, no = _clean(value.true_branch, live), _clean(value.false_branch, live)
        if yes is value.true_branch and no is value.false_branch:
            return value
        return If(value.cond, yes, no, value.span)
    return value
