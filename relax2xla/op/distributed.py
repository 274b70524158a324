"""``relax.distributed``: how tensors are spread over devices.

Annotations do not change values. On a mesh of one device they are the identity; on a larger one
they become XLA's sharding annotation (``stablehlo.custom_call @Sharding``), which its partitioner
obeys and a program for one device ignores. Source: TVM Relax v0.20.
"""

from __future__ import annotations

from typing import Annotated, Any

from relax2xla.errors import OpError
from relax2xla.ir.expr import Call, Expr, GlobalVar
from relax2xla.ir.mesh import DeviceMesh, Placement
from relax2xla.ir.op import Rule, op
from relax2xla.ir.op_param import Kind, ShapeLike
from relax2xla.ir.struct_info import DTensorStructInfo, StructInfo, TensorStructInfo, show
from relax2xla.ir.traits import AsksPlace, Opaque
from relax2xla.op.ccl import alone, part_of_worker
from relax2xla.op.intrinsic import Arguments, Callee, Infos, TirVars, destination
from relax2xla.op.shared.checks import norm_axis, want_tensor
from relax2xla.op.shared.lowering import hlo, info_of


def _as_mesh(value: Any) -> DeviceMesh:
    if isinstance(value, DeviceMesh):
        return value
    raise TypeError(
        f"expected a DeviceMesh, such as DeviceMesh((2, 2), range(4)); got {type(value).__name__}"
    )


def _as_placement(value: Any) -> str:
    if isinstance(value, Placement):
        return str(value)
    if isinstance(value, str):
        return str(Placement.from_text(value))
    raise TypeError(f'expected a Placement, or its text such as "S[0], R"; got {value!r}')


Mesh = Annotated[Any, Kind(False, _as_mesh)]
Placed = Annotated[Any, Kind(False, _as_placement)]


def _whole(input: Expr) -> TensorStructInfo:
    """The struct info of a tensor, whether it is distributed or not."""
    info = input.struct_info_
    return info.tensor_sinfo if isinstance(info, DTensorStructInfo) else want_tensor(input, "input")


def _checked(input: Expr, mesh: DeviceMesh, placement: str) -> TensorStructInfo:
    info = _whole(input)
    axes = Placement.from_text(placement).axes
    if len(axes) != len(mesh.shape):
        raise OpError(
            f"`placement` must say what each of the {len(mesh.shape)} axes of the mesh does; "
            f"got {placement!r}"
        )
    cut = [a for a in axes if a is not None]
    for a in cut:
        if info.ndim not in (-1,) and a >= info.ndim:
            raise OpError(f"`placement` cuts axis {a}, but `input` is {show(info)}")
    if len(set(cut)) != len(cut):
        raise OpError(f"`placement` cuts one axis twice: {placement!r}")
    return info


def _placed(input: Expr, mesh: DeviceMesh, placement: str) -> Expr:
    if len(mesh.device_ids) == 1:
        return input
    info = info_of(input)
    return hlo(
        "custom_call",
        input,
        out=info,
        call_target_name="Sharding",
        has_side_effect=False,
        discardable={"mhlo.sharding": sharding_text(info, mesh, placement)},
    )


def sharding_text(info: TensorStructInfo, mesh: DeviceMesh, placement: str) -> str:
    """A placement as the text of XLA's OpSharding."""
    axes = Placement.from_text(placement).axes
    if all(a is None for a in axes):
        return "{replicated}"
    tiles, order = [1] * info.ndim, [0] * 0
    for axis in range(info.ndim):
        for at, cut in enumerate(axes):
            if cut == axis:
                tiles[axis] = mesh.shape[at]
                order.append(at)
    copies = [at for at, cut in enumerate(axes) if cut is None]
    order += copies
    # Devices in the order of the tensor's tiles, copies last.
    ids = _permuted(mesh, order)
    count = 1
    for at in copies:
        count *= mesh.shape[at]
    last = f",{count}" if copies else ""
    tail = " last_tile_dim_replicate" if copies else ""
    return f"{{devices=[{','.join(map(str, tiles))}{last}]{','.join(map(str, ids))}{tail}}}"


def _permuted(mesh: DeviceMesh, order: list[int]) -> list[int]:
    """The devices of a mesh with its axes in another order, row-major."""
    strides = [1] * len(mesh.shape)
    for i in reversed(range(len(mesh.shape) - 1)):
        strides[i] = strides[i + 1] * mesh.shape[i + 1]
    positions = [0]
    for axis in order:
        positions = [p + i * strides[axis] for p in positions for i in range(mesh.shape[axis])]
    return [mesh.device_ids[p] for p in positions]


@op("relax.distributed.annotate_sharding", Opaque(), distributed=True)
def annotate_sharding(input: Expr, device_mesh: Mesh, placement: Placed) -> Rule:
    """States how ``input`` is to be spread; its value is not changed.

    input: (*s), any dtype; device_mesh: a DeviceMesh; placement: a Placement, or its text, with one
    entry for each axis of the mesh: ``"S[0], R"``
    result: ``input``
    """
    if not isinstance(input.struct_info_, DTensorStructInfo):
        _checked(input, device_mesh, placement)
    return input.struct_info, lambda: _placed(input, device_mesh, placement)


@op("relax.distributed.redistribute", Opaque(), distributed=True)
def redistribute(input: Expr, device_mesh: Mesh, placement: Placed) -> Rule:
    """``input`` spread in another way; its value is not changed.

    input: (*s), any dtype; device_mesh, placement: as of :func:`annotate_sharding`
    result: ``input``; a distributed tensor has the mesh and placement stated here
    """
    info: StructInfo = _checked(input, device_mesh, placement)
    if isinstance(input.struct_info_, DTensorStructInfo):
        info = DTensorStructInfo(info, device_mesh, placement)
    return info, lambda: _placed(input, device_mesh, placement)


@op("relax.distributed.redistribute_replica_to_shard", Opaque(), AsksPlace(), distributed=True)
def redistribute_replica_to_shard(input: Expr, num_workers: int, axis: int) -> StructInfo:
    """The part of ``input``, of which every worker has a copy, that this worker keeps.

    input: (*s), any dtype; the size of ``axis`` is a multiple of ``num_workers``
    result: (*s) with the axis divided by ``num_workers``, dtype of ``input``; a distributed tensor,
    copied over a mesh of one axis, is afterwards cut along ``axis``
    """
    info = input.struct_info_
    if isinstance(info, DTensorStructInfo):
        if info.placement.axes != (None,):
            raise OpError(
                "`input` must be copied over a mesh of one axis; its placement is "
                f'"{info.placement}"'
            )
        part_of_worker(info.tensor_sinfo, num_workers, axis)
        cut = Placement((norm_axis(axis, info.tensor_sinfo.ndim),))
        return DTensorStructInfo(info.tensor_sinfo, info.device_mesh, cut)
    return part_of_worker(want_tensor(input, "input"), num_workers, axis)


@redistribute_replica_to_shard.legalize
def _(input: Expr, num_workers: int, axis: int) -> Expr:
    return alone(input, num_workers, "distributed.redistribute_replica_to_shard")


@op("relax.distributed.call_tir_local_view", Opaque())
def call_tir_local_view_op(func: Callee, args: Arguments, tir_vars: ShapeLike = None) -> StructInfo:
    """A call of a loop-level function on each worker's own part of its arguments.

    func, args, tir_vars: as of ``call_tir``, each a worker's own part
    result: the tensors given with the call
    """
    raise OpError("call_tir_local_view: the struct info of the result must be given")


def call_tir_local_view(
    gvar: GlobalVar, args: Any, out_sinfo: Infos, tir_vars: TirVars = None
) -> Call:
    """:func:`relax2xla.op.call_tir` on each worker's own part of its arguments.

    args: one value or several; out_sinfo: of each result (several make a tuple)
    """
    return destination(call_tir_local_view_op, gvar, args, out_sinfo, tir_vars)
