"""Long programs that several tests walk."""

from __future__ import annotations

from relax2xla import op, tir
from relax2xla.builder import BlockBuilder
from relax2xla.ir import Call, Constant, Expr, IRModule, TensorStructInfo, Var

# Far more than Python's frames: a walk that recursed over bindings would fail.
COUNT = 20_000


def chain(one: Constant) -> IRModule:
    """``main`` with ``COUNT`` additions of ``one``, one after the other."""
    info = TensorStructInfo((tir.Var("n"), 4))
    x = Var("x", info)
    add = op.add(x, one).op
    bb = BlockBuilder()
    with bb.function("main", [x]):
        with bb.dataflow():
            y: Expr = x
            for _ in range(COUNT):
                y = bb.emit(Call(add, [y, one], struct_info=info))
            y = bb.emit_output(y)
        bb.emit_func_output(y)
    return bb.get()
