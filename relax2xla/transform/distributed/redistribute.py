"""LegalizeRedistribute: moves between placements as what workers do for them."""

from __future__ import annotations

from relax2xla.errors import TransformError
from relax2xla.ir import Call, DTensorStructInfo, Expr, Function, IRModule, Placement
from relax2xla.ir.op import call_attrs, is_op
from relax2xla.ir.rewrite import rewrite_function
from relax2xla.ir.struct_info import show
from relax2xla.op.distributed import redistribute_replica_to_shard
from relax2xla.transform.core import FunctionPass, PassContext, register


@register(opt_level=1)
class LegalizeRedistribute(FunctionPass):
    """Moves of distributed tensors become exchanges: from copies, each worker keeps its part.

    Before: ``R.dist.redistribute(x, "mesh[0]", "S[1]")`` of copies. After:
    ``R.dist.redistribute_replica_to_shard(x, num_workers=2, axis=1)``. A move to where the tensor
    is already is the tensor. TransformError for other moves, which need more than a worker has, and
    for meshes of more than one axis.
    """

    def transform_function(self, func: Function, mod: IRModule, context: PassContext) -> Function:
        return rewrite_function(func, rule=_legal, leaves=False)


def _legal(node: Expr) -> Expr | None:
    if not isinstance(node, Call) or not is_op(node, "relax.distributed.redistribute"):
        return None
    (source,) = node.args
    info, attrs = source.struct_info, call_attrs(node)
    mesh, wanted = attrs["device_mesh"], Placement.from_text(attrs["placement"])
    if not isinstance(info, DTensorStructInfo):
        raise TransformError(
            f"{node}: its operand is {show(info)}, of which no placement is known; run "
            "PropagateSharding before"
        )
    if info.device_mesh != mesh or len(mesh.shape) != 1:
        raise TransformError(
            f"{node}: a move within one mesh of one axis was expected; it goes from the mesh of "
            f"{info.device_mesh.shape} to that of {mesh.shape}. Build the program with "
            "build(mod, mesh=...), where XLA moves tensors"
        )
    if info.placement == wanted:
        return source
    (before,), (after,) = info.placement.axes, wanted.axes
    if before is None and after is not None:
        return redistribute_replica_to_shard(source, mesh.shape[0], after)
    raise TransformError(
        f'{node}: from "{info.placement}" to "{wanted}" workers would exchange parts; only from '
        "copies can each keep its own. Build the program with build(mod, mesh=...), where XLA "
        "moves tensors"
    )
