"""Exchanges between devices on one device: those that XLA has no code for there."""

from __future__ import annotations

from typing import Any

from relax2xla.ir import Call, Expr, Function, GlobalVar, IRModule, Op, Tuple, Var
from relax2xla.ir.rewrite import post_order_deep, rewrite_function
from relax2xla.stablehlo.gate import MANUAL

_BROADCAST = "stablehlo.collective_broadcast"
_NAMES = frozenset(f"relax.{name}" for name in (MANUAL, _BROADCAST))


def on_one_device(mod: IRModule) -> IRModule:
    """``mod`` for one device, after ``stablehlo.gate`` has seen that no group names more.

    Before: ``R.stablehlo.collective_broadcast(x, replica_groups=[[0]])``,
    ``R.sdy.manual_computation(x, region)`` over a mesh of one device. After: ``x``, ``region(x)``.
    XLA:CPU broadcasts to nobody, and manual computations need its partitioner.
    """
    new: dict[GlobalVar, Any] = {}
    for gvar, func in mod.relax_functions().items():
        if isinstance(func, Function) and any(map(_is_exchange, post_order_deep(func))):
            new[gvar] = rewrite_function(func, rule=_alone)
    return mod.replace({**mod.functions, **new}) if new else mod


def _is_exchange(node: Expr) -> bool:
    return isinstance(node, Call) and isinstance(node.op, Op) and node.op.name in _NAMES


def _alone(node: Expr) -> Expr | None:
    if not isinstance(node, Call) or not _is_exchange(node):
        return None
    assert isinstance(node.op, Op)
    if node.op.name.endswith(_BROADCAST):
        return node.args[0] if len(node.args) == 1 else Tuple(node.args, node.span)
    *operands, region = node.args
    return Call(region, operands, span=node.span) if isinstance(region, Var) else None
