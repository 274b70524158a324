"""Transposes that a gradient of ``matmul`` leaves are moved to where others undo them."""

from __future__ import annotations

from relax2xla.ir import (
    Binding,
    BindingBlock,
    Call,
    DataflowBlock,
    DataflowVar,
    Expr,
    Function,
    SeqExpr,
    TensorStructInfo,
    Var,
    VarBinding,
)
from relax2xla.ir.op import Op
from relax2xla.ir.rewrite import Rewriter
from relax2xla.op.shared.lowering import relax


def without_double_transposes(func: Function) -> Function:
    """``func`` with ``T(T(a))`` as ``a`` and ``T(matmul(a, b))`` as ``matmul(T(b), T(a))``.

    ``T`` exchanges the last two axes, as ``permute_dims``. The function has one dataflow block,
    whose values may be unused then.
    """
    block = func.body.blocks[0]
    if not _has_work(block):
        return func
    walk = _Walk()
    for b in block.bindings:
        walk.binding(b)
    body = walk.rewriter.expr(func.body.body)
    new = SeqExpr([DataflowBlock(walk.made, block.span)], body, func.body.span)
    return func.replace(body=new)


def _has_work(block: BindingBlock) -> bool:
    """Whether a transpose of a transpose or of a product is bound in ``block``."""
    found: set[Expr] = set()
    for b in block.bindings:
        value = b.value
        if type(value) is Call and (value.op is _PERMUTE or value.op is _MATMUL):
            if value.op is _PERMUTE and value.args[0] in found:
                return True
            found.add(b.var)
    return False


class _Walk:
    def __init__(self) -> None:
        self.rewriter = Rewriter()
        self.values: dict[Expr, Expr] = {}
        self.made: list[Binding] = []

    def binding(self, b: Binding) -> None:
        new = self.rewriter.binding(b)
        value = new.value
        if type(value) is Call and _is_transpose(value) and isinstance(new, VarBinding):
            before = self.values.get(value.args[0])
            if isinstance(before, Call) and _is_transpose(before):
                inner = before.args[0]
                # What is visible outside of the block stays a variable of its own.
                if isinstance(inner, Var) and isinstance(new.var, DataflowVar):
                    self.rewriter.env[b.var] = inner
                    return
            elif isinstance(before, Call) and before.op is _MATMUL:
                if all(_rank(a) > 1 for a in before.args):
                    left, right = map(self._transposed, reversed(before.args))
                    product = relax("matmul", left, right, before.attrs.get("out_dtype"))
                    new = VarBinding(new.var, product, new.span)
        self._append(new)

    def _transposed(self, x: Expr) -> Expr:
        """``T(x)``, which may be there already."""
        known = self.values.get(x)
        if isinstance(known, Call) and _is_transpose(known):
            return known.args[0]
        rank = _rank(x)
        value = relax("permute_dims", x, [*range(rank - 2), rank - 1, rank - 2])
        var = DataflowVar("lv", value.struct_info)
        self._append(VarBinding(var, value))
        return var

    def _append(self, b: Binding) -> None:
        self.made.append(b)
        self.values[b.var] = b.value


def _rank(x: Expr) -> int:
    info = x.struct_info
    return info.ndim if isinstance(info, TensorStructInfo) else -1


_PERMUTE, _MATMUL = Op.get("relax.permute_dims"), Op.get("relax.matmul")


def _is_transpose(call: Call) -> bool:
    """Whether ``call`` exchanges the last two axes and nothing else."""
    if call.op is not _PERMUTE:
        return False
    rank, axes = _rank(call.args[0]), call.attrs.get("axes")
    if rank < 2:
        return False
    if axes is None:
        return rank == 2
    return tuple(axes) == (*range(rank - 2), rank - 1, rank - 2)
