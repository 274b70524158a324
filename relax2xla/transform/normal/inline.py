"""InlineSymbolicFunctions: calls of module functions with symbolic shapes become their bodies.

A program for one call shape is static. A callee with symbolic dimensions would need a program of
its own for each call site, so it is inlined there; callees of static shape stay functions, which
StableHLO calls. Recursive functions stay, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
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
    Span,
    TensorStructInfo,
    VarBinding,
)
from relax2xla.ir.copy import copy_with_new_vars
from relax2xla.ir.deep import nests
from relax2xla.ir.lattice import Mismatch, SymMap, free_symbolic_vars, unify
from relax2xla.ir.rewrite import Rewriter, bindings_of, children, joined, post_order_deep, rebuild
from relax2xla.ir.struct_info import flatten_info
from relax2xla.transform.core import Pass, PassContext, register
from relax2xla.transform.normal.homes import exposed


@register()
class InlineSymbolicFunctions(Pass):
    """Inline calls of functions whose parameters have symbolic dimensions or are no tensors.

    Recursive functions stay. Private functions that are only called, so that nothing needs them
    any more, stay as they are. The cost is linear in the size of the result.
    """

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        # Recursive functions are for the virtual machine, which binds symbols at each call.
        recursive = {g for group in detect_recursion(mod) for g in group}
        symbolic = {
            g.name_hint: f
            for g, f in mod.relax_functions().items()
            if g not in recursive and not _is_static(f)
        }
        if not symbolic:
            return mod
        spent = _only_called(mod) & symbolic.keys()
        new: dict[GlobalVar, Any] = {
            g: inline_calls(f, symbolic)
            if isinstance(f, Function) and g.name_hint not in spent
            else f
            for g, f in mod.items()
        }
        return mod.replace(new)


def _only_called(mod: IRModule) -> set[str]:
    """Private functions that others call and nobody passes around as values."""
    called, values = calls_and_values(mod)
    private = {
        g.name_hint for g, f in mod.relax_functions().items() if "global_symbol" not in f.attrs
    }
    return called & private - values


def calls_and_values(mod: IRModule) -> tuple[set[str], set[str]]:
    """Names of functions that are called, and of those that are passed around as values."""
    called: set[str] = set()
    values: set[str] = set()
    for func in mod.relax_functions().values():
        for node in post_order_deep(func):
            operands = children(node)
            if isinstance(node, Call) and isinstance(node.op, GlobalVar):
                called.add(node.op.name_hint)
                operands = node.args
            values.update(o.name_hint for o in operands if isinstance(o, GlobalVar))
            if isinstance(node, SeqExpr):
                ends = [node.body, *(b.value for b in bindings_of(node))]
                values.update(o.name_hint for o in ends if isinstance(o, GlobalVar))
    return called, values


def inline_calls(func: Function, callees: Mapping[str, Function], nested: bool = True) -> Function:
    """``func`` with each call of one of ``callees`` (by name) inlined, in branches too.

    Where a dataflow block calls a function with ordinary blocks, it is cut in two around them.
    ``nested``: also the calls that this brings in; then no callee may reach itself.
    """
    found = any(
        isinstance(node, Call) and isinstance(node.op, GlobalVar) and node.op.name_hint in callees
        for node in post_order_deep(func)
    )
    if not found:
        return func
    return exposed(func.replace(body=_inline_seq(func.body, callees, nested)))


def _callee(b: Binding, callees: Mapping[str, Function]) -> tuple[Function, Call] | None:
    if isinstance(b, VarBinding) and isinstance(b.value, Call):
        op = b.value.op
        if isinstance(op, GlobalVar) and op.name_hint in callees:
            return callees[op.name_hint], b.value
    return None


class _Blocks:
    """Blocks under construction."""

    def __init__(self, span: Span | None) -> None:
        self.span = span
        self.done: list[BindingBlock] = []
        self.bindings: list[Binding] = []
        self.dataflow = False

    def add(self, binding: Binding, dataflow: bool) -> None:
        """Append a binding to a block of that kind."""
        if dataflow is not self.dataflow:
            self.close()
            self.dataflow = dataflow
        self.bindings.append(binding)

    def close(self) -> list[BindingBlock]:
        """End the block; gives all."""
        if self.bindings:
            kind = DataflowBlock if self.dataflow else BindingBlock
            self.done.append(kind(self.bindings, self.span))
            self.bindings = []
        return self.done


@nests
def _inline_seq(seq: SeqExpr, callees: Mapping[str, Function], nested: bool) -> SeqExpr:
    blocks: list[BindingBlock] = []
    for block in seq.blocks:
        out = _Blocks(block.span)
        # The bindings of a callee come first, then what follows the call; with each whether it
        # stands in a dataflow block and whether calls in it are inlined.
        todo = [_steps(block, True)]
        while todo:
            step = next(todo[-1], None)
            if step is None:
                todo.pop()
                continue
            b, dataflow, active = step
            call = _callee(b, callees) if active else None
            if call is None:
                out.add(_inline_inside(b, callees, nested) if active else b, dataflow)
                continue
            body = _body_for(*call)
            result = VarBinding(b.var, body.body, b.span)
            inner = [_steps(ib, nested) for ib in body.blocks]
            todo.append(chain(*inner, [(result, dataflow, False)]))
        blocks += out.close()
    return SeqExpr(joined(blocks), seq.body, seq.span)


def _steps(block: BindingBlock, active: bool) -> Iterator[tuple[Binding, bool, bool]]:
    kind = isinstance(block, DataflowBlock)
    return ((b, kind, active) for b in block.bindings)


def _inline_inside(b: Binding, callees: Mapping[str, Function], nested: bool) -> Binding:
    """``b`` with calls inlined in the branches, the local function or the regions that it holds."""
    if not isinstance(b, VarBinding):
        return b
    if isinstance(b.value, If):
        value = b.value
        yes, no = (_inline_seq(s, callees, nested) for s in (value.true_branch, value.false_branch))
        return VarBinding(b.var, If(value.cond, yes, no, value.span), b.span)
    if isinstance(b.value, Function):
        return VarBinding(b.var, inline_calls(b.value, callees, nested), b.span)
    if isinstance(b.value, Call):
        inner = [
            inline_calls(a, callees, nested) if isinstance(a, Function) else a
            for a in children(b.value)
        ]
        value = rebuild(b.value, inner)
        return b if value is b.value else VarBinding(b.var, value, b.span)
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
        for leaf in flatten_info(info)
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
