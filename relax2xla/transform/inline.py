"""InlineSymbolicFunctions: calls of module functions with symbolic shapes become their bodies.

A program for one call shape is static. A callee with symbolic dimensions would need a program of
its own for each call site, so it is inlined there; callees of static shape stay functions, which
StableHLO calls. Recursive functions stay, too.
"""

from __future__ import annotations

from typing import Any

from relax2xla.analysis.variables import detect_recursion
from relax2xla.errors import TransformError
from relax2xla.ir import (
    Binding,
    BindingBlock,
    Call,
    DataflowBlock,
    Function,
    GlobalVar,
    If,
    IRModule,
    PrimStructInfo,
    SeqExpr,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
    VarBinding,
)
from relax2xla.ir.copy import copy_with_new_vars
from relax2xla.ir.deep import nests
from relax2xla.ir.lattice import Mismatch, SymMap, free_symbolic_vars, unify
from relax2xla.ir.rewrite import Rewriter, post_order_deep
from relax2xla.transform._pass import Pass, PassContext, PassInfo


class InlineSymbolicFunctions(Pass):
    """Inline calls of functions whose parameters have symbolic dimensions or are no tensors.

    Recursive functions stay.
    """

    def __init__(self) -> None:
        super().__init__(PassInfo("InlineSymbolicFunctions"), self._run)

    def _run(self, mod: IRModule, context: PassContext) -> IRModule:
        # Recursive functions are for the virtual machine, which binds symbols at each call.
        recursive = {g for group in detect_recursion(mod) for g in group}
        symbolic = {
            g.name_hint: f
            for g, f in mod.relax_functions().items()
            if g not in recursive and not _is_static(f)
        }
        if not symbolic:
            return mod
        done: dict[str, Function] = {}

        @nests
        def inlined(gvar: GlobalVar) -> Function:
            name = gvar.name_hint
            if name not in done:
                done[name] = inline_calls(
                    mod[name], lambda g: inlined(g) if g.name_hint in symbolic else None
                )
            return done[name]

        new: dict[GlobalVar, Any] = {
            g: inlined(g) if isinstance(f, Function) else f for g, f in mod.items()
        }
        return mod.replace(new)


def inline_calls(func: Function, callee_of: Any) -> Function:
    """``func`` with each call of a GlobalVar for which ``callee_of`` gives a function inlined."""
    if not _calls(func, callee_of):
        return func
    return func.replace(body=_inline_seq(func.body, callee_of))


@nests
def _inline_seq(seq: SeqExpr, callee_of: Any) -> SeqExpr:
    blocks: list[BindingBlock] = []
    for block in seq.blocks:
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
                out.append(_inline_inside(b, callee_of))
                continue
            assert isinstance(b, VarBinding)
            assert isinstance(b.value, Call)
            body = _body_for(callee, b.value)
            out.extend(inner for ib in body.blocks for inner in ib.bindings)
            out.append(VarBinding(b.var, body.body, b.span))
        kind = DataflowBlock if isinstance(block, DataflowBlock) else BindingBlock
        blocks.append(kind(out, block.span))
    return SeqExpr(blocks, seq.body, seq.span)


def _inline_inside(b: Binding, callee_of: Any) -> Binding:
    """``b`` with calls inlined in the branches or the local function that it binds."""
    if not isinstance(b, VarBinding):
        return b
    if isinstance(b.value, If):
        value = b.value
        yes, no = (_inline_seq(s, callee_of) for s in (value.true_branch, value.false_branch))
        return VarBinding(b.var, If(value.cond, yes, no, value.span), b.span)
    if isinstance(b.value, Function):
        return VarBinding(b.var, inline_calls(b.value, callee_of), b.span)
    return b


def _is_static(func: Function) -> bool:
    """Whether ``func`` can be a function of a program as it stands."""
    infos = [p.struct_info for p in func.params]
    if any(free_symbolic_vars(i) for i in infos):
        return False
    return not any(
        isinstance(leaf, ShapeStructInfo | PrimStructInfo)
        or (isinstance(leaf, TensorStructInfo) and leaf.dims is None)
        for info in (*infos, func.ret_struct_info)
        for leaf in _leaves(info)
    )


def _leaves(info: StructInfo) -> list[StructInfo]:
    if not isinstance(info, TupleStructInfo):
        return [info]
    return [leaf for f in info.fields for leaf in _leaves(f)]


def _calls(func: Function, callee_of: Any) -> bool:
    return any(
        isinstance(node, Call) and isinstance(node.op, GlobalVar) and callee_of(node.op) is not None
        for node in post_order_deep(func)
    )


def _body_for(callee: Function, call: Call) -> SeqExpr:
    """The body of ``callee`` for the arguments of ``call``, with variables of its own."""
    fresh = copy_with_new_vars(callee)
    env: SymMap = {}
    for p, a in zip(fresh.params, call.args, strict=True):
        try:
            unify(p.struct_info, a.struct_info, env)
        except Mismatch as e:
            raise TransformError(f"the argument for {p.name_hint} has {e}") from None
    values = dict(zip(fresh.params, call.args, strict=True))
    return Rewriter(env, values).seq(fresh.body)
