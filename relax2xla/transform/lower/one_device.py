"""Exchanges between devices on one device: those that XLA has no code for there."""

from __future__ import annotations

from relax2xla.ir import Call, Expr, Function, IRModule, Op, Tuple
from relax2xla.ir.rewrite import post_order_deep, rewrite_function
from relax2xla.transform.core import FunctionPass, PassContext, register

_BROADCAST = "relax.stablehlo.collective_broadcast"


@register(needed=True)
class OneDevice(FunctionPass):
    """Leave out exchanges; ``stablehlo.gate`` has seen that no group names several devices.

    Before: ``R.stablehlo.collective_broadcast(x, replica_groups=[[0]])``. After: ``x``. XLA:CPU
    broadcasts to nobody. (Manual computations are an annotation there, see
    ``stablehlo.shardings``.)
    """

    def transform_function(self, func: Function, mod: IRModule, context: PassContext) -> Function:
        found = any(map(_is_exchange, post_order_deep(func)))
        return rewrite_function(func, rule=_alone) if found else func


def _is_exchange(node: Expr) -> bool:
    return isinstance(node, Call) and isinstance(node.op, Op) and node.op.name == _BROADCAST


def _alone(node: Expr) -> Expr | None:
    if not isinstance(node, Call) or not _is_exchange(node):
        return None
    return node.args[0] if len(node.args) == 1 else Tuple(node.args, node.span)
