"""``PrimFunc.specialize``: parameters bound to values and buffers."""

from __future__ import annotations

from collections.abc import Mapping

from relax2xla.tir.arith.analyzer import can_prove_equal
from relax2xla.tir.buffer import Buffer
from relax2xla.tir.convert import as_prim_expr
from relax2xla.tir.function import PrimFunc
from relax2xla.tir.node import Dim, PrimExpr, Var
from relax2xla.tir.stmt import DeclBuffer, LetStmt, Stmt, map_children
from relax2xla.tir.stmt_functor import Rewriter


def specialized(func: PrimFunc, param_map: Mapping[Var, Dim | Buffer]) -> PrimFunc:
    """``func`` with parameters bound.

    A scalar becomes the expression that it is bound to, and is no parameter any more. A handle is
    bound to a buffer: memory, sizes, strides and offset of its own buffer become those of that
    buffer. A pointer that is bound to an expression is a variable of the function then.
    ``ValueError`` for what is no parameter, and where a buffer does not fit.
    """
    values: dict[Var, PrimExpr] = {}
    for param, value in param_map.items():
        if not any(param is p for p in func.params):
            raise ValueError(f"specialize: {param.name} is no parameter of the function")
        if isinstance(value, Buffer):
            own = func.buffer_map.get(param)
            if own is None:
                raise ValueError(f"specialize: the parameter {param.name} has no buffer")
            _match(own, value, values)
            if own.data is not value.data:
                values[own.data] = value.data
        elif param in func.buffer_map:
            raise ValueError(f"specialize: {param.name} is a handle; bind it to a buffer")
        else:
            _bind(param, value, values, "a parameter")
    rewriter = Rewriter(lambda e: values.get(e) if isinstance(e, Var) else None, fold=True)
    held = {p: rewriter.buffer(b) for p, b in func.buffer_map.items()}
    body = _with_pointers(rewriter.stmt(func.body), values)
    params = [p for p in func.params if p not in values]
    if body is func.body and len(params) == len(func.params) and not values:
        return func
    return PrimFunc(params, body, func.ret_type, held, func.attrs)


def _with_pointers(root: Stmt, values: Mapping[Var, PrimExpr]) -> Stmt:
    """``root`` with the pointers of its buffers that are expressions bound where they are used."""
    pointers = {p: v for p, v in values.items() if p.dtype == "handle" and not isinstance(v, Var)}
    if not pointers:
        return root

    def bind(node: Stmt) -> Stmt:
        if isinstance(node, DeclBuffer):
            value = pointers.get(node.buffer.data)
            if value is not None:
                return LetStmt(node.buffer.data, value, node)
        return map_children(node, bind)

    return bind(root)


def _match(own: Buffer, given: Buffer, values: dict[Var, PrimExpr]) -> None:
    """Bind the variables in the buffer of a parameter to what another buffer has in their place."""
    if own.dtype != given.dtype or own.ndim != given.ndim:
        raise ValueError(
            f"specialize: the buffer {own.name} holds {own.dtype} in {own.ndim} axes; got "
            f"{given.dtype} in {given.ndim}"
        )
    if len(own.strides) != len(given.strides):
        raise ValueError(f"specialize: the strides of {own.name} and {given.name} do not match")
    pairs = [
        *zip(own.shape, given.shape, strict=True),
        *zip(own.strides, given.strides, strict=True),
        (own.elem_offset, given.elem_offset),
    ]
    for mine, theirs in pairs:
        if isinstance(mine, Var):
            _bind(mine, theirs, values, f"the buffer {own.name}")
        elif not can_prove_equal(mine, theirs):
            raise ValueError(f"specialize: {own.name} has {mine} where {given.name} has {theirs}")


def _bind(var: Var, value: Dim, values: dict[Var, PrimExpr], what: str) -> None:
    made = as_prim_expr(value, var.dtype)
    if made.dtype != var.dtype:
        made = made.astype(var.dtype)
    known = values.get(var)
    if known is not None and not can_prove_equal(known, made):
        raise ValueError(f"specialize: {var.name} of {what} is bound to {known} and to {made}")
    if made is not var:
        values[var] = made
