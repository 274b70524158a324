"""InlineSymbolicFunctions: calls of module functions with symbolic shapes become their bodies.

A program for one call shape is static. A callee with symbolic dimensions would need a program of
its own for each call site, so it is inlined there; callees of static shape stay functions, which
StableHLO calls. Recursive functions stay, too.
"""

from __future__ import annotations

from typing import Any

from relax2xla.errors import TransformError
from relax2xla.ir import (
    Binding,
    BindingBlock,
    Call,
    DataflowBlock,
    Function,
    GlobalVar,
    IRModule,
    MatchCast,
    SeqExpr,
    VarBinding,
)
from relax2xla.ir.copy import copy_function
from relax2xla.ir.lattice import Mismatch, SymMap, free_symbolic_vars, unify
from relax2xla.ir.rewrite import Rewriter, post_order
from relax2xla.transform._pass import Pass, PassContext, PassInfo


class InlineSymbolicFunctions(Pass):
    """Inline calls of functions whose parameters have symbolic dimensions."""

    def __init__(self) -> None:
        super().__init__(PassInfo("InlineSymbolicFunctions"), self._run)

    def _run(self, mod: IRModule, context: PassContext) -> IRModule:
        symbolic = {
            g.name_hint: f
            for g, f in mod.relax_functions().items()
            if any(free_symbolic_vars(p.struct_info) for p in f.params)
        }
        if not symbolic:
            return mod
        done: dict[str, Function] = {}

        def inlined(gvar: GlobalVar, trail: tuple[str, ...]) -> Function:
            name = gvar.name_hint
            if name in trail:
                raise TransformError(
                    f"{' -> '.join((*trail, name))}: a recursive function with symbolic shapes "
                    "cannot be compiled"
                )
            if name not in done:
                done[name] = _inline_calls(
                    mod[name],
                    lambda g: inlined(g, (*trail, name)) if g.name_hint in symbolic else None,
                )
            return done[name]

        new: dict[GlobalVar, Any] = {
            g: inlined(g, ()) if isinstance(f, Function) else f for g, f in mod.items()
        }
        return mod.replace(new)


def _inline_calls(func: Function, callee_of: Any) -> Function:
    if not _calls(func, callee_of):
        return func
    blocks: list[BindingBlock] = []
    for block in func.body.blocks:
        out: list[Binding] = []
        for b in block.bindings:
            callee = (
                callee_of(b.value.op)
                if isinstance(b, VarBinding)
                and isinstance(b.value, Call)
                and isinstance(b.value.op, GlobalVar)
                else None
            )
            if callee is None:
                out.append(b)
                continue
            assert isinstance(b, VarBinding)
            assert isinstance(b.value, Call)
            seq = _body_for(callee, b.value)
            out.extend(inner for ib in seq.blocks for inner in ib.bindings)
            out.append(VarBinding(b.var, seq.body, b.span))
        kind = DataflowBlock if isinstance(block, DataflowBlock) else BindingBlock
        blocks.append(kind(out, block.span))
    return func.replace(body=SeqExpr(blocks, func.body.body, func.body.span))


def _calls(func: Function, callee_of: Any) -> bool:
    return any(
        isinstance(node, Call) and isinstance(node.op, GlobalVar) and callee_of(node.op) is not None
        for block in func.body.blocks
        for b in block.bindings
        if isinstance(b, VarBinding | MatchCast)
        for node in post_order(b.value)
    )


def _body_for(callee: Function, call: Call) -> SeqExpr:
    """The body of ``callee`` for the arguments of ``call``, with variables of its own."""
    env: SymMap = {}
    for p, a in zip(callee.params, call.args, strict=True):
        try:
            unify(p.struct_info, a.struct_info, env)
        except Mismatch as e:
            raise TransformError(f"the argument for {p.name_hint} has {e}") from None
    fresh = copy_function(callee)
    values = dict(zip(fresh.params, call.args, strict=True))
    return Rewriter(env, values).seq(fresh.body)
