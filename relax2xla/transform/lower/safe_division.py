"""Integer divisions by a constant zero that XLA must not compute while it compiles.

StableHLO leaves the quotient to the implementation and XLA's code gives -1 (of a remainder, the
dividend), but where both operands are constant XLA folds them with the processor's own division,
which ends the process (SIGFPE). Behind an ``optimization_barrier`` they are left to the program.
"""

from __future__ import annotations

from relax2xla.dtypes import is_integer
from relax2xla.ir import (
    Binding,
    Call,
    Constant,
    Expr,
    Function,
    IRModule,
    Op,
    SeqExpr,
    TensorStructInfo,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
)
from relax2xla.ir.deep import nests
from relax2xla.ir.op import is_op
from relax2xla.ir.rewrite import bindings_of
from relax2xla.ir.traits import Division
from relax2xla.transform.core import ROWS, FunctionPass, PassContext, register


@register(stage="static", requires=(ROWS,), ensures=(ROWS,), needed=True)
class ShieldDivisions(FunctionPass):
    """Put a barrier before the divisor of integer divisions of constants by what may be zero."""

    def transform_function(self, func: Function, mod: IRModule, context: PassContext) -> Function:
        values: dict[Var, Expr] = {}
        found = _collect(func.body, values)
        return func.replace(body=_shield(func.body, set(found))) if found else func


@nests
def _collect(seq: SeqExpr, values: dict[Var, Expr]) -> list[Call]:
    """The divisions to shield; ``values`` gets what each variable in scope is bound to."""
    found: list[Call] = []
    for b in bindings_of(seq):
        value = values[b.var] = b.value
        if isinstance(value, Function):
            found += _collect(value.body, values)
        if not isinstance(value, Call):
            continue
        if isinstance(value.op, Op) and value.op.has(Division):
            info = value.struct_info
            if isinstance(info, TensorStructInfo) and is_integer(info.dtype):
                known = _may_be_zero(value.args[1], values) and _is_constant(value, values)
                found += [value] if known else []
        for a in value.args:
            if isinstance(a, Function):
                found += _collect(a.body, values)
    return found


def _may_be_zero(divisor: Expr, values: dict[Var, Expr]) -> bool:
    while isinstance(divisor, Var) and divisor in values:
        divisor = values[divisor]
    return not isinstance(divisor, Constant) or not bool(divisor.data.astype(bool).all())


def _is_constant(root: Expr, values: dict[Var, Expr]) -> bool:
    """Whether ``root`` depends on constants alone."""
    todo, seen = [root], set[int]()
    while todo:
        node = todo.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, Var):
            if node not in values:
                return False
            todo.append(values[node])
        elif isinstance(node, Call):
            if is_op(node, "relax.stablehlo.optimization_barrier"):
                return False
            todo += [a for a in node.args if not isinstance(a, Function)]
        elif isinstance(node, Tuple):
            todo += node.fields
        elif isinstance(node, TupleGetItem):
            todo.append(node.tuple_value)
    return True


@nests
def _shield(seq: SeqExpr, found: set[Call]) -> SeqExpr:
    blocks = []
    for block in seq.blocks:
        bindings: list[Binding] = []
        for b in block.bindings:
            value = b.value
            if isinstance(value, Function):
                b = VarBinding(b.var, value.replace(body=_shield(value.body, found)), b.span)
            elif isinstance(value, Call) and value in found:
                divisor = value.args[1]
                barrier = Op.get("relax.stablehlo.optimization_barrier")(divisor, span=value.span)
                safe = type(b.var)("divisor", barrier.struct_info, value.span)
                bindings.append(VarBinding(safe, barrier, b.span))
                b = VarBinding(b.var, _with_args(value, [value.args[0], safe]), b.span)
            elif isinstance(value, Call) and any(isinstance(a, Function) for a in value.args):
                args = [
                    a.replace(body=_shield(a.body, found)) if isinstance(a, Function) else a
                    for a in value.args
                ]
                b = VarBinding(b.var, _with_args(value, args), b.span)
            bindings.append(b)
        blocks.append(type(block)(bindings, block.span))
    return SeqExpr(blocks, seq.body, seq.span)


def _with_args(call: Call, args: list[Expr]) -> Call:
    info = call.struct_info
    return Call(call.op, args, call.attrs, call.sinfo_args, call.span, struct_info=info)
