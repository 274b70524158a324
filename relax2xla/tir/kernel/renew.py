"""A loop-level function with variables and buffers of its own, so that it can stand twice."""

from __future__ import annotations

from relax2xla.tir.buffer import Buffer, PointerVar
from relax2xla.tir.function import PrimFunc
from relax2xla.tir.node import PrimExpr, Var
from relax2xla.tir.stmt_functor import Rewriter


def renewed(func: PrimFunc) -> PrimFunc:
    """``func`` with a new variable for each of its own, and new buffers with them."""
    known: dict[Var, Var] = {}

    def new(e: PrimExpr) -> PrimExpr | None:
        if not isinstance(e, Var):
            return None
        if e not in known:
            known[e] = again(e)
        return known[e]

    rewriter = Rewriter(new)
    params = [new(p) for p in func.params]
    buffers: dict[Var, Buffer] = {}
    for p, buffer in func.buffer_map.items():
        handle = new(p)
        assert isinstance(handle, Var)
        buffers[handle] = rewriter.buffer(buffer)
    body = rewriter.stmt(func.body)
    own = [p for p in params if isinstance(p, Var)]
    return PrimFunc(own, body, func.ret_type, buffers, func.attrs)


def again(var: Var, name: str | None = None) -> Var:
    """Another variable of the same kind, by the same name where none is given."""
    name = var.name if name is None else name
    if isinstance(var, PointerVar):
        return PointerVar(name, var.element, var.scope)
    return type(var)(name, var.dtype)
