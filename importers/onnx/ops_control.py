"""ai.onnx: branches."""

from __future__ import annotations

from onnx import GraphProto

from relax2xla import op as R
from relax2xla.importers.onnx.context import Context, known
from relax2xla.importers.onnx.registry import onnx_op
from relax2xla.ir import Expr, If, SeqExpr, Tuple


@onnx_op("If")
def if_(
    ctx: Context, cond: Expr, *, then_branch: GraphProto, else_branch: GraphProto
) -> list[Expr]:
    """A condition that is known picks its branch at import."""
    chosen = known(cond)
    if chosen is not None:
        return ctx.subgraph(then_branch if bool(chosen.reshape(())) else else_branch, [])
    cond = ctx.emit(R.reshape(cond, ()))
    count = len(ctx.wanted)
    made = ctx.emit(If(cond, _branch(ctx, then_branch), _branch(ctx, else_branch)))
    return [made] if count == 1 else list(made)


def _branch(ctx: Context, graph: GraphProto) -> SeqExpr:
    builder = ctx.builder
    builder.begin_scope()
    try:
        outputs = [ctx.emit(x) for x in ctx.subgraph(graph, [])]
        body = outputs[0] if len(outputs) == 1 else Tuple(outputs)
    finally:
        blocks = builder.end_scope()
    return SeqExpr(blocks, body)
