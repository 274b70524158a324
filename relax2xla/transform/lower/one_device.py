"""Exchanges between devices on one device: those that XLA has no code for there."""

from __future__ import annotations

from typing import Any

from relax2xla.ir import Call, Expr, Function, GlobalVar, IRModule, Op, Tuple
from relax2xla.ir.rewrite import post_order_deep, rewrite_function

_BROADCAST = "relax.stablehlo.collective_broadcast"


def on_one_device(mod: IRModule) -> IRModule:
    """``mod`` for one device, after ``stablehlo.gate`` has seen that no group names more.

    Before: ``R.stablehlo.collective_broadcast(x, replica_groups=[[0]])``. After: ``x``. XLA:CPU
    broadcasts to nobody. (Manual computations are an annotation there, see
    ``stablehlo.shardings``.)
    """
    new: dict[GlobalVar, Any] = {}
    for gvar, func in mod.relax_functions().items():
        if isinstance(func, Function) and any(map(_is_exchange, post_order_deep(func))):
            new[gvar] = rewrite_function(func, rule=_alone)
    return mod.replace({**mod.functions, **new}) if new else mod


def _is_exchange(node: Expr) -> bool:
    return isinstance(node, Call) and isinstance(node.op, Op) and node.op.name == _BROADCAST


def _alone(node: Expr) -> Expr | None:
    if not isinstance(node, Call) or not _is_exchange(node):
        return None
    return node.args[0] if len(node.args) == 1 else Tuple(node.args, node.span)
