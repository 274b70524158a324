"""Lowerings done once and played again: identical layers repeat their calls.

A key holds all that a lowering can see of a call: the operator, attributes with their exact types,
struct infos of the operands and which of them are one value. Scalar constants are known by their
bits, other constants and values that it could read by their identity. What a lowering bound is
recorded, and bound again with other operands and new variables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from relax2xla.analysis.variables import free_vars
from relax2xla.ir import (
    Binding,
    Call,
    Constant,
    DataflowVar,
    Expr,
    Function,
    GlobalVar,
    PrimValue,
    ShapeExpr,
    Span,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
)
from relax2xla.ir.base import EMPTY_ATTRS
from relax2xla.ir.copy import copy_function
from relax2xla.ir.op import Op

Key = tuple[Any, ...]


class NoKey(Exception):
    """Something is not known well enough to be compared."""


def key_of(
    call: Call, var: Var | None, dataflow: bool, places: dict[Var, int] | None = None
) -> Key | None:
    """What two calls have in common that are lowered alike; None where that is not known.

    ``places`` gets what :func:`leaves_of` gives, each with its place.
    """
    if not isinstance(call.op, Op):
        return None
    if places is None:
        places = {}
    attrs, info = call.attrs, call.struct_info_
    operands: list[Any] = []
    try:
        for a in call.args:
            if isinstance(a, Var) and a not in places and (own := a.struct_info_) is not None:
                # Most operands. Hashing struct infos is most of what a key costs: what is that of
                # the result is not hashed twice.
                places[a] = at = len(places)
                operands.append((None if own is info else own, at))
            else:
                operands.append(_operand(a, places))
        return (
            call.op,
            () if attrs is EMPTY_ATTRS else tuple([(k, exact(v)) for k, v in attrs.items()]),
            tuple(operands),
            call.sinfo_args,
            info,
            None if var is None else var.struct_info_ is info or (var.struct_info_,),
            dataflow,
        )
    except NoKey:
        return None


def exact(value: Any) -> Any:
    """An attribute's value so that only the very same one is equal (1, 1.0 and True are not)."""
    if value is None or type(value) is str:
        return value
    if type(value) in (int, bool):
        return type(value), value
    if type(value) is float:
        return value.hex()
    if type(value) is tuple:
        return tuple(map(exact, value))
    raise NoKey


def _operand(expr: Expr, places: dict[Var, int]) -> Any:
    if isinstance(expr, Var):
        if expr in places:
            return places[expr]  # its struct info is in the key
        info = expr.struct_info_
        if info is None:
            raise NoKey
        places[expr] = at = len(places)
        return info, at
    if isinstance(expr, Tuple):
        return tuple(_operand(f, places) for f in expr.fields)
    if isinstance(expr, ShapeExpr):
        return "shape", exact(expr.values)
    if isinstance(expr, Constant) and expr.data.ndim == 0:
        return expr.struct_info_, expr.data.dtype, expr.data.tobytes()
    if isinstance(expr, Constant | PrimValue | GlobalVar):
        return expr
    raise NoKey


def leaves_of(call: Call) -> list[Var]:
    """The variables among the operands, each once, in the order of the key's places."""
    found: dict[Var, None] = {}
    stack = list(reversed(call.args))
    while stack:
        expr = stack.pop()
        if isinstance(expr, Var):
            found[expr] = None
        elif isinstance(expr, Tuple):
            stack.extend(reversed(expr.fields))
    return list(found)


class Record:
    """What the lowering of one call bound, and the leaf that holds its result."""

    __slots__ = ("bindings", "inputs", "leaf", "var")

    def __init__(
        self, call: Call, var: Var | None, bindings: Sequence[Binding], leaf: Expr
    ) -> None:
        self.inputs, self.var, self.leaf = leaves_of(call), var, leaf
        self.bindings = [b for b in bindings if isinstance(b, VarBinding)]

    @staticmethod
    def fits(bindings: Sequence[Binding]) -> bool:
        """Whether these can be played again: calls, whose regions capture nothing, and parts."""
        for b in bindings:
            if not isinstance(b, VarBinding) or not isinstance(b.value, Call | TupleGetItem):
                return False
            if isinstance(b.value, Call) and any(
                isinstance(a, Function) and free_vars(a) for a in b.value.args
            ):
                return False
        return True

    def play(self, call: Call, var: Var | None, span: Span | None) -> tuple[list[Binding], Expr]:
        """The bindings for ``call``, and the leaf that holds its result."""
        env: dict[Expr, Expr] = dict(zip(self.inputs, leaves_of(call), strict=True))
        if self.var is not None and var is not None:
            env[self.var] = var
        made: list[Binding] = []
        for b in self.bindings:
            value, old = b.value, b.var
            if isinstance(value, Call):
                args = [_new(a, env) for a in value.args]
                info, own = value.struct_info_, None if value.span is None else span
                again: Expr = Call(
                    value.op, args, value.attrs, value.sinfo_args, own, struct_info=info
                )
            else:
                assert isinstance(value, TupleGetItem)
                again = TupleGetItem(_new(value.tuple_value, env), value.index, value.span)
            new = var if old is self.var and var is not None else None
            if new is None:
                kind = DataflowVar if isinstance(old, DataflowVar) else Var
                new = env[old] = kind(old.name_hint, old.struct_info_, span)
            made.append(VarBinding(new, again, span))
        return made, _new(self.leaf, env)


def _new(expr: Expr, env: Mapping[Expr, Expr]) -> Expr:
    if isinstance(expr, Var):
        return env.get(expr, expr)
    if isinstance(expr, Tuple):
        return Tuple([_new(f, env) for f in expr.fields], expr.span)
    if isinstance(expr, Function):
        return copy_function(expr)
    return env.get(expr, expr)
