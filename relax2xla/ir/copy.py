"""Copies of functions and expressions with variables of their own."""

from __future__ import annotations

from typing import TypeVar

from relax2xla import tir
from relax2xla.ir import lattice
from relax2xla.ir.expr import Binding, Call, Expr, Function, MatchCast, SeqExpr, Var, VarBinding
from relax2xla.ir.op import Op
from relax2xla.ir.rewrite import Rewriter, bindings_of, holders_deep
from relax2xla.ir.struct_info import StructInfo, TensorStructInfo

E = TypeVar("E", Function, SeqExpr)


class _Copier(Rewriter):
    """A Rewriter that makes every variable anew at its definition."""

    def var(self, var: Var, info: StructInfo | None) -> Var:
        new = type(var)(var.name_hint, var.struct_info_ if info is None else info, var.span)
        self.env[var] = new
        return new

    def binding(self, b: Binding) -> Binding:
        call = b.value
        if self.symbolic or type(b) is not VarBinding or type(call) is not Call:
            return super().binding(b)
        info = b.var.struct_info_
        plain = (
            type(call.op) is Op
            and _names_nothing(info)
            # Most results are of the very struct info of their variable.
            and (call.struct_info_ is info or _names_nothing(call.struct_info_))
            and (not call.sinfo_args or all(map(_names_nothing, call.sinfo_args)))
        )
        args = self.flat_args(call.args) if plain else None
        if args is None:
            return super().binding(b)
        # What most bindings hold. A copy says of its value what the original says.
        var = self.var(b.var, info)
        if args is not call.args:
            call = Call.make(call, args, call.span)
        return VarBinding(var, call, b.span)


def _names_nothing(info: StructInfo | None) -> bool:
    """Whether it is plain that ``info`` names no variable of Relax as its shape."""
    return type(info) is TensorStructInfo and info.dims is not None


def copy_function(func: Function) -> Function:
    """``func`` with new variables; symbolic variables are shared with the original."""
    return _Copier().function(func)


def copy_expr(expr: Expr) -> Expr:
    """``expr`` with new variables wherever it binds any."""
    return _Copier().expr(expr)


def copy_with_new_vars(node: E, symbolic: bool = True) -> E:
    """A copy of a function or sequence that shares no bound variable with it.

    ``symbolic``: also new symbolic variables in place of those that parameters and match-casts
    define; wrong for a function inside another one, whose symbolic variables it may share.
    """
    fresh: dict[tir.Var, tir.Dim] = {}
    for inner in holders_deep(node) if symbolic else ():
        infos: list[StructInfo] = []
        if isinstance(inner, Function):
            infos = [p.struct_info for p in inner.params]
        elif isinstance(inner, SeqExpr):
            infos = [b.struct_info for b in bindings_of(inner) if isinstance(b, MatchCast)]
        for var in (v for info in infos for v in lattice.definable_vars(info)):
            fresh.setdefault(var, type(var)(var.name, var.dtype))
    copier = _Copier(fresh)
    return copier.function(node) if isinstance(node, Function) else copier.seq(node)
