"""Calls of small private functions become their bodies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from relax2xla.analysis.variables import by_symbol, named_functions
from relax2xla.ir import (
    Binding,
    BindingBlock,
    Call,
    Expr,
    Function,
    GlobalVar,
    If,
    IRModule,
    MatchCast,
    Op,
    SeqExpr,
    Var,
    VarBinding,
)
from relax2xla.ir.copy import copy_function
from relax2xla.ir.lattice import free_symbolic_vars
from relax2xla.ir.rewrite import Rewriter, bindings_of, post_order, post_order_deep
from relax2xla.transform.raising.graph import flat
from relax2xla.transform.raising.match import filled

LIMIT: Final = 64


def inline_private(mod: IRModule) -> IRModule:
    """``mod`` with calls of private functions of at most 64 bindings inlined.

    Functions with attributes, with effects or of symbolic shapes, recursive ones, and calls with
    attributes stay. Private functions that nothing calls any more go.
    """
    functions = mod.relax_functions()
    if not any(g.name_hint != "main" and _plain(f) for g, f in functions.items()):
        return mod
    order = _callees_first(mod)
    done: dict[GlobalVar, Function] = {}
    small: dict[Expr, Function] = {}
    for gvar in order:
        func = _inlined(mod[gvar], small)
        done[gvar] = func
        if gvar.name_hint == "main" or not _plain(func) or _size(func) > LIMIT:
            continue
        # A function that is not done yet, but called, is part of a cycle.
        if set(_callees(func)) <= done.keys() - {gvar}:
            small[gvar] = func
    used: set[GlobalVar] = set()
    symbols = {s: g for s, g in by_symbol(mod).items() if g in done}
    stack = [g for g in done if g not in small]
    while stack:
        gvar = stack.pop()
        if gvar not in used and gvar in done:
            used.add(gvar)
            stack += _callees(done[gvar])
            stack += [symbols[n] for n in _named(done[gvar]) if n in symbols]
    kept = {g: done.get(g, f) for g, f in mod.items() if g in used or g not in done}
    return mod.replace(kept)


def _plain(func: Function) -> bool:
    """Whether nothing is lost with the function itself: it is private and has no attributes."""
    rest = {k: v for k, v in func.attrs.items() if k != "sym_name"}
    arguments, results = rest.pop("arg_attrs", {}), rest.pop("res_attrs", ())
    dynamic = any(free_symbolic_vars(p.struct_info) for p in func.params)
    return not rest and not arguments and not any(results) and not dynamic


def _size(func: Function) -> int:
    return sum(1 for _ in bindings_of(func.body))


def _callees(func: Function) -> list[GlobalVar]:
    """Functions that ``func`` calls or names, in order."""
    found: dict[GlobalVar, None] = {}
    seqs = [func.body]
    for seq in seqs:
        for value in (*(b.value for b in bindings_of(seq)), seq.body):
            if isinstance(value, Call) and isinstance(value.op, Op) and flat(value):
                continue  # Most are; the rest is walked.
            for node in post_order(value):
                if isinstance(node, Call) and isinstance(node.op, GlobalVar):
                    found[node.op] = None
                elif isinstance(node, GlobalVar):
                    found[node] = None
                seqs += _inside(node)
    return list(found)


def _named(func: Function) -> list[str]:
    """Functions that attributes of calls in ``func`` name, such as the comparison of a top-k."""
    return [n for c in post_order_deep(func) if isinstance(c, Call) for n in named_functions(c)]


def _callees_first(mod: IRModule) -> list[GlobalVar]:
    functions = mod.relax_functions()
    order: dict[GlobalVar, None] = {}
    for root in functions:
        stack = [(root, iter(_callees(functions[root])))]
        active = {root}
        while stack:
            gvar, rest = stack[-1]
            below = next(
                (g for g in rest if g in functions and g not in order and g not in active), None
            )
            if below is not None:
                active.add(below)
                stack.append((below, iter(_callees(functions[below]))))
            else:
                stack.pop()
                active.discard(gvar)
                order.setdefault(gvar)
    return list(order)


def _inlined(func: Function, small: Mapping[Expr, Function]) -> Function:
    """``func`` with the bodies of ``small`` functions where they are called; no recursion."""
    if small.keys().isdisjoint(_callees(func)):
        return func
    # What takes the place of variables; outer sequences come before those inside them.
    env: dict[Expr, Expr] = {}
    seqs, blocks = [func.body], list[list[BindingBlock]]()
    for seq in seqs:
        blocks.append([_block(block, small, env) for block in seq.blocks])
        seqs += (inner for b in bindings_of(seq) for inner in _inside(b.value))
    done: dict[int, SeqExpr] = {}
    for seq, new in zip(reversed(seqs), reversed(blocks), strict=True):
        for i, block in enumerate(new):
            new[i] = type(block)([_closed(b, done) for b in block.bindings], block.span)
        done[id(seq)] = SeqExpr(new, filled(seq.body, env), seq.span)
    return func.replace(body=done[id(func.body)])


def _inside(value: Expr) -> tuple[SeqExpr, ...]:
    """The sequences directly inside what is bound."""
    match value:
        case Function():
            return (value.body,)
        case If():
            return value.true_branch, value.false_branch
        case SeqExpr():
            return (value,)
        case _:
            return ()


def _closed(b: Binding, done: Mapping[int, SeqExpr]) -> Binding:
    """``b`` with the sequences inside it that are done; those of inlined bodies are as they are."""
    inner = _inside(b.value)
    if not inner or id(inner[0]) not in done or not isinstance(b, VarBinding):
        return b
    made = [done[id(s)] for s in inner]
    match b.value:
        case Function() as f:
            return VarBinding(b.var, f.replace(body=made[0]), b.span)
        case If() as f:
            return VarBinding(b.var, If(f.cond, made[0], made[1], f.span), b.span)
        case _:
            return VarBinding(b.var, made[0], b.span)


def _block(
    block: BindingBlock, small: Mapping[Expr, Function], env: dict[Expr, Expr]
) -> BindingBlock:
    """The bindings of a block, calls inlined; ``env`` learns what variables have become."""
    out: list[Binding] = []
    for b in block.bindings:
        call = b.value
        func = small.get(call.op) if isinstance(call, Call) and not call.attrs else None
        if func is None or not isinstance(call, Call) or not isinstance(b, VarBinding):
            value = filled(call, env)
            if isinstance(value, Var) and not isinstance(call, Var):
                env[b.var] = value  # A field of a tuple that was inlined.
            elif isinstance(b, MatchCast):
                out.append(MatchCast(b.var, value, b.struct_info, b.span))
            else:
                out.append(VarBinding(b.var, value, b.span))
            continue
        copy = copy_function(func)
        arguments = [filled(a, env) for a in call.args]
        values: dict[Var, Expr] = dict(zip(copy.params, arguments, strict=True))
        result = copy.body.body
        if isinstance(result, Var) and result not in values:
            values[result] = b.var  # The result keeps the caller's name.
        body = Rewriter(values=values).seq(copy.body)
        for inner in bindings_of(body):
            if inner.var is result and isinstance(inner, VarBinding):
                inner = VarBinding(b.var, inner.value, inner.span or b.span)
            out.append(inner)
        if body.body is not b.var:
            env[b.var] = body.body
    return type(block)(out, block.span)
