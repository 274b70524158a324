"""TailRecursionToLoops: a function that only ever calls itself last becomes a ``while`` of XLA.

Before::

    def main(n, total):
        if n == 0:
            r = total
        else:
            r = main(n - 1, total + n)
        return r

After, with ``go`` and the result carried along::

    def main(n, total):
        return while_(True, n, total, zeros)[3]

Functions that call each other last are inlined into one another first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from relax2xla.analysis.variables import all_global_vars, contains_impure_call, detect_recursion
from relax2xla.errors import TransformError
from relax2xla.ir import (
    Binding,
    BindingBlock,
    Call,
    Constant,
    Expr,
    Function,
    GlobalVar,
    If,
    IRModule,
    Op,
    SeqExpr,
    StructInfo,
    TensorStructInfo,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
    const,
)
from relax2xla.ir.copy import copy_with_new_vars
from relax2xla.ir.lattice import free_symbolic_vars, is_base_of
from relax2xla.ir.rewrite import bindings_of, post_order_deep
from relax2xla.ir.struct_info import flatten_info
from relax2xla.transform.core import Pass, PassContext, register
from relax2xla.transform.lower.leaves import pack, unpack
from relax2xla.transform.normal.inline import inline_calls


@register()
class TailRecursionToLoops(Pass):
    """Rewrite pure functions whose calls of themselves are all last, over tensors of equal shapes.

    Other recursive functions stay as they are, for the virtual machine. Raises TransformError for
    one that calls itself on every path: as a loop without an end XLA would give anything for it.
    """

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        if not any(all_global_vars(f) for f in mod.relax_functions().values()):
            return mod
        new: dict[GlobalVar, Any] = dict(mod.functions)
        for group in detect_recursion(mod):
            for gvar in group:
                made = _as_loop(gvar, _alone(gvar, group, mod))
                if made is not None:
                    new[gvar] = made
        return mod.replace(new)


def _alone(gvar: GlobalVar, group: Sequence[GlobalVar], mod: IRModule) -> Function:
    """The function with the others of its group inlined, as far as they do not call themselves."""
    func: Function = mod[gvar]
    others = [g for g in group if g is not gvar and g not in all_global_vars(mod[g])]
    # Each round may bring in calls of others; a group that never settles is not of this kind.
    bodies = {g.name_hint: mod[g] for g in others}
    for _ in others:
        func = inline_calls(func, bodies, nested=False)
    return func


def _as_loop(gvar: GlobalVar, func: Function) -> Function | None:
    """``func`` as a loop; None where it is no loop over arrays."""
    infos = [p.struct_info for p in func.params]
    result = func.ret_struct_info
    leaves = flatten_info(result)
    known = {v for i in infos for v in free_symbolic_vars(i)}
    if not leaves or contains_impure_call(func, gvar):
        return None
    if not all(_is_array(i) and known.issuperset(free_symbolic_vars(i)) for i in [*infos, *leaves]):
        return None
    if not _only_last(func, gvar, infos):
        return None
    if _never_ends(func.body, gvar):
        where = f" (at {func.span})" if func.span is not None else ""
        raise TransformError(
            f"{gvar.name_hint} calls itself on every path{where}, so that it never gives a result"
        )
    return _Loop(gvar, func, leaves).made()


def _is_array(info: StructInfo) -> bool:
    return isinstance(info, TensorStructInfo) and info.dims is not None and bool(info.dtype)


def _calls(root: Expr, gvar: GlobalVar) -> list[Call]:
    return [n for n in post_order_deep(root) if isinstance(n, Call) and n.op is gvar]


def _only_last(func: Function, gvar: GlobalVar, infos: Sequence[StructInfo]) -> bool:
    """Whether ``gvar`` occurs in tail calls alone, with arguments of the parameters' shapes."""
    last: list[Call] = []
    todo = [func.body]
    while todo:
        end = _end(todo.pop())
        value = end.value if end is not None else None
        if isinstance(value, If):
            todo += [value.true_branch, value.false_branch]
        elif isinstance(value, Call) and value.op is gvar:
            last.append(value)
    calls = _calls(func, gvar)
    uses = sum(
        1
        for node in post_order_deep(func)
        for a in (node.args if isinstance(node, Call) else ())
        if a is gvar
    )
    if uses or len(calls) != len(last):
        return False
    return all(
        len(c.args) == len(infos)
        and all(is_base_of(i, a.struct_info) for a, i in zip(c.args, infos, strict=True))
        for c in last
    )


def _never_ends(seq: SeqExpr, gvar: GlobalVar) -> bool:
    """Whether each path through a body of :func:`_only_last` ends with another call."""
    end = _end(seq)
    if end is not None and isinstance(end.value, If):
        branches = (end.value.true_branch, end.value.false_branch)
        return all(_never_ends(b, gvar) for b in branches)
    return end is not None and isinstance(end.value, Call) and end.value.op is gvar


def _end(seq: SeqExpr) -> VarBinding | None:
    """The binding of a sequence's result, looked up through other names of it."""
    found = {b.var: b for b in bindings_of(seq)}
    var: Expr = seq.body
    while isinstance(var, Var) and var in found:
        b = found[var]
        if not isinstance(b, VarBinding):
            return None
        if not isinstance(b.value, Var):
            return b
        var = b.value
    return None


class _Loop:
    """The loop of one function: it carries ``go``, the parameters, and the result."""

    def __init__(self, gvar: GlobalVar, func: Function, leaves: Sequence[StructInfo]) -> None:
        self.gvar, self.func, self.leaves = gvar, func, leaves
        self.flag = TensorStructInfo((), "bool")

    def made(self) -> Function:
        """``func`` with the loop as its body."""
        func = self.func
        body = copy_with_new_vars(func, symbolic=False)
        state = self._state(body.params)
        results = state[1 + len(body.params) :]
        step = Function(state, self._step(body.body, body.params, results))
        test_state = self._state(None)
        test = Function(test_state, SeqExpr([], test_state[0]))
        bindings: list[Binding] = []
        zeros: list[Expr] = []
        for info in self.leaves:
            assert isinstance(info, TensorStructInfo)
            var = Var("zeros", info)
            bindings.append(VarBinding(var, Op.get("relax.zeros")(info.shape, info.dtype)))
            zeros.append(var)
        loop = Op.get("relax.stablehlo.while_")(const(True), *func.params, *zeros, test, step)
        carried = Var("loop", loop.struct_info, func.span)
        bindings.append(VarBinding(carried, loop, func.span))
        values: list[Expr] = []
        for i, info in enumerate(self.leaves):
            var = Var("result", info)
            at = 1 + len(func.params) + i
            bindings.append(VarBinding(var, TupleGetItem(carried, at)))
            values.append(var)
        body_expr = SeqExpr([BindingBlock(bindings)], pack(values, func.ret_struct_info))
        return func.replace(body=body_expr)

    def _state(self, params: Sequence[Var] | None) -> list[Var]:
        if params is None:
            params = [Var(p.name_hint, p.struct_info) for p in self.func.params]
        return [Var("go", self.flag), *params, *(Var("result", i) for i in self.leaves)]

    def _step(self, seq: SeqExpr, params: Sequence[Var], results: Sequence[Var]) -> SeqExpr:
        """A sequence that ends with the next state instead of the result."""
        end = _end(seq)
        kept: Mapping[bool, Constant] = {b: const(b) for b in (True, False)}
        if end is not None and isinstance(end.value, Call) and end.value.op is self.gvar:
            blocks = _without(seq, end)
            return SeqExpr(blocks, Tuple([kept[True], *end.value.args, *results]))
        if end is not None and isinstance(end.value, If) and _calls(end.value, self.gvar):
            node = end.value
            new = If(
                node.cond,
                self._step(node.true_branch, params, results),
                self._step(node.false_branch, params, results),
                node.span,
            )
            var = Var("state", new.struct_info)
            blocks = [*_without(seq, end), BindingBlock([VarBinding(var, new, end.span)])]
            return SeqExpr(blocks, var)
        bindings: list[Binding] = []
        values: list[Expr] = []
        for leaf in unpack(seq.body, self.func.ret_struct_info):
            if isinstance(leaf, TupleGetItem):
                var = Var("leaf", leaf.struct_info)
                bindings.append(VarBinding(var, leaf))
                leaf = var
            values.append(leaf)
        blocks = [*seq.blocks, BindingBlock(bindings)] if bindings else list(seq.blocks)
        return SeqExpr(blocks, Tuple([kept[False], *params, *values]))


def _without(seq: SeqExpr, end: VarBinding) -> list[BindingBlock]:
    """The blocks without the binding ``end`` and the other names of its variable."""
    gone = {end.var}
    blocks: list[BindingBlock] = []
    for block in seq.blocks:
        rest: list[Binding] = []
        for b in block.bindings:
            if b is end or (isinstance(b.value, Var) and b.value in gone):
                gone.add(b.var)
            else:
                rest.append(b)
        if rest:
            blocks.append(BindingBlock(rest, block.span))
    return blocks
