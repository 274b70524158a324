"""Where torch's gradients end: ``detach``, and regions that run without gradients."""

from __future__ import annotations

from relax2xla import op as R
from relax2xla.builder import BlockBuilder
from relax2xla.importers.torch.engine.context import Context, dtype_of
from relax2xla.ir import Call, Constant, Expr, Op, TensorStructInfo, Var
from relax2xla.ir.rewrite import post_order_deep


def stopped(ctx: Context, x: Expr) -> Expr:
    """``x`` as ``R.grad.no_grad`` where it would have a gradient; ``x`` itself where it has none.

    Tables that regions without gradients compute from no weight and no input of floats (rotary
    positions) stay as they are, so that passes see what they see of any other constant.
    """
    flows = ctx.stops and isinstance(x.struct_info, TensorStructInfo)
    return R.grad.no_grad(x) if flows and _flows(ctx.builder, x) else x


def _flows(builder: BlockBuilder, x: Expr) -> bool:
    """Whether ``x`` is computed from a parameter, or from an input of floats."""
    if not _is_inexact(x):
        return False
    seen: set[Expr] = set()
    todo = [x]
    while todo:
        for node in post_order_deep(todo.pop()):
            if isinstance(node, Constant) and _is_inexact(node):
                if node.span is not None and node.span.metadata == "parameter":
                    return True
            if not isinstance(node, Var) or node in seen:
                continue
            seen.add(node)
            value = builder.lookup_binding(node)
            if value is not None:
                todo += [] if _is_stopped(value) else [value]
            elif _is_inexact(node):
                return True
    return False


def _is_inexact(x: Expr) -> bool:
    info = x.struct_info
    return isinstance(info, TensorStructInfo) and dtype_of(x).startswith(
        ("float", "bfloat", "complex")
    )


def _is_stopped(x: Expr) -> bool:
    return isinstance(x, Call) and isinstance(x.op, Op) and x.op.name == "relax.grad.no_grad"
