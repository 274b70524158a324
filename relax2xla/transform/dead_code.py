"""DeadCodeElimination: bindings that nothing needs and that have no side effect go."""

from __future__ import annotations

from relax2xla.ir import (
    Binding,
    BindingBlock,
    Call,
    Expr,
    ExternFunc,
    FuncStructInfo,
    Function,
    If,
    IRModule,
    MatchCast,
    Op,
    SeqExpr,
    Var,
    VarBinding,
)
from relax2xla.ir.rewrite import post_order
from relax2xla.transform._pass import Pass, PassContext, PassInfo


class DeadCodeElimination(Pass):
    """Remove unused pure bindings of every function.

    Casts (``R.match_cast``) stay: they are checks, and may define symbolic variables.
    """

    def __init__(self) -> None:
        super().__init__(PassInfo("DeadCodeElimination", opt_level=1), self._run)

    def _run(self, mod: IRModule, context: PassContext) -> IRModule:
        new = {g: remove_unused(f) if isinstance(f, Function) else f for g, f in mod.items()}
        return mod.replace(new)


def remove_unused(func: Function) -> Function:
    """``func`` without unused pure bindings."""
    live: set[Expr] = set()
    body = _seq(func.body, live)
    return func if body is func.body else func.replace(body=body)


def _uses(root: Expr, live: set[Expr]) -> None:
    """Add every variable that ``root`` reads, also inside functions and branches."""
    for node in post_order(root):
        if isinstance(node, Var):
            live.add(node)
        for inner in _inner(node):
            for block in inner.blocks:
                for b in block.bindings:
                    if isinstance(b, VarBinding | MatchCast):
                        _uses(b.value, live)
            _uses(inner.body, live)


def _inner(node: Expr) -> tuple[SeqExpr, ...]:
    if isinstance(node, Function):
        return (node.body,)
    if isinstance(node, If):
        return (node.true_branch, node.false_branch)
    return (node,) if isinstance(node, SeqExpr) else ()


def _seq(seq: SeqExpr, live: set[Expr]) -> SeqExpr:
    _uses(seq.body, live)
    blocks: list[BindingBlock] = []
    for block in reversed(seq.blocks):
        kept: list[Binding] = []
        for b in reversed(block.bindings):
            if isinstance(b, VarBinding) and b.var not in live and is_pure(b.value):
                continue
            kept.append(b)
            if isinstance(b, VarBinding | MatchCast):
                _uses(b.value, live)
        if len(kept) == len(block.bindings):
            blocks.append(block)
        elif kept:
            blocks.append(type(block)(kept[::-1], block.span))
    blocks.reverse()
    same = len(blocks) == len(seq.blocks) and all(
        a is b for a, b in zip(blocks, seq.blocks, strict=True)
    )
    return seq if same else SeqExpr(blocks, seq.body, seq.span)


def is_pure(value: Expr) -> bool:
    """Whether dropping ``value`` changes nothing but the time it takes."""
    for node in post_order(value):
        if isinstance(node, If):
            return all(
                isinstance(b, VarBinding) and is_pure(b.value)
                for branch in (node.true_branch, node.false_branch)
                for block in branch.blocks
                for b in block.bindings
            )
        if isinstance(node, Call) and not _pure_callee(node):
            return False
    return True


def _pure_callee(call: Call) -> bool:
    if isinstance(call.op, Op):
        return call.op.is_pure_call(call)
    info = call.op.struct_info_
    if isinstance(call.op, ExternFunc):
        return False
    return isinstance(info, FuncStructInfo) and info.purity
