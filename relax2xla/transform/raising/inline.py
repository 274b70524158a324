"""Calls of small private functions become their bodies."""

from __future__ import annotations

from typing import Final

from relax2xla.ir import (
    Binding,
    BindingBlock,
    Call,
    Expr,
    Function,
    GlobalVar,
    IRModule,
    Var,
    VarBinding,
)
from relax2xla.ir.copy import copy_function
from relax2xla.ir.rewrite import Rewriter, bindings_of, post_order_deep

LIMIT: Final = 64


def inline_private(mod: IRModule) -> IRModule:
    """``mod`` with calls of private functions of at most 64 bindings inlined.

    Functions with attributes, recursive ones, and calls with attributes stay. Private functions
    that nothing calls any more go.
    """
    order = _callees_first(mod)
    done: dict[GlobalVar, Function] = {}
    small: dict[Expr, Function] = {}
    for gvar in order:
        func = _Inliner(small).function(mod[gvar])
        done[gvar] = func
        private = _plain(func) and gvar.name_hint != "main"
        # A function that is not done yet, but called, is part of a cycle.
        called = {n for n in post_order_deep(func) if isinstance(n, GlobalVar)}
        if private and called <= done.keys() - {gvar} and _size(func) <= LIMIT:
            small[gvar] = func
    used: set[GlobalVar] = set()
    stack = [g for g in done if g not in small]
    while stack:
        gvar = stack.pop()
        if gvar not in used and gvar in done:
            used.add(gvar)
            stack += [n for n in _callees(done[gvar])]
    kept = {g: done.get(g, f) for g, f in mod.items() if g in used or g not in done}
    return mod.replace(kept)


def _plain(func: Function) -> bool:
    """Whether nothing is lost with the function itself: it is private and has no attributes."""
    rest = {k: v for k, v in func.attrs.items() if k != "sym_name"}
    arguments, results = rest.pop("arg_attrs", {}), rest.pop("res_attrs", ())
    return not rest and not arguments and not any(results)


def _size(func: Function) -> int:
    return sum(1 for _ in bindings_of(func.body))


def _callees(func: Function) -> list[GlobalVar]:
    """Functions that ``func`` calls or names, in order."""
    found: dict[GlobalVar, None] = {}
    for node in post_order_deep(func):
        if isinstance(node, Call) and isinstance(node.op, GlobalVar):
            found[node.op] = None
        if isinstance(node, GlobalVar):
            found[node] = None
    return list(found)


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


class _Inliner(Rewriter):
    """Puts the bodies of ``small`` functions where they are called."""

    def __init__(self, small: dict[Expr, Function]) -> None:
        super().__init__()
        self.small = small

    def block(self, block: BindingBlock) -> BindingBlock:
        out: list[Binding] = []
        for b in block.bindings:
            call = b.value
            func = self.small.get(call.op) if isinstance(call, Call) and not call.attrs else None
            if func is None or not isinstance(call, Call) or not isinstance(b, VarBinding):
                new = self.binding(b)
                if isinstance(new.value, Var) and not isinstance(b.value, Var):
                    self.env[b.var] = new.value  # A field of a tuple that was inlined.
                else:
                    out.append(new)
                continue
            copy = copy_function(func)
            values = dict(zip(copy.params, map(self.expr, call.args), strict=True))
            result = copy.body.body
            if isinstance(result, Var) and result not in values:
                values[result] = b.var  # The result keeps the caller's name.
            body = Rewriter(values=values).seq(copy.body)
            for inner in bindings_of(body):
                if inner.var is result and isinstance(inner, VarBinding):
                    inner = VarBinding(b.var, inner.value, inner.span or b.span)
                out.append(inner)
            if body.body is not b.var:
                self.env[b.var] = body.body
        return type(block)(out, block.span)
