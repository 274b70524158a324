"""Operators that are calls of functions of the runtime, or the operand itself."""

from __future__ import annotations

from typing import Any, Final

from relax2xla import tir, topi
from relax2xla.ir import (
    Call,
    Expr,
    ExternFunc,
    ShapeExpr,
    ShapeStructInfo,
    StringImm,
    TensorStructInfo,
)
from relax2xla.op import call_dps_packed, call_pure_packed, strided_slice
from relax2xla.transform.lower.te_forms.table import Form, Site, form, shape_of, tensor_of

# Functions of the runtime, and after how many operands they take the operator's format, if they do.
# The size of what they give depends on values, or they are called for an effect.
PACKED: Final[dict[str, int | None]] = {
    "assert_op": 1,
    "nonzero": None,
    "print": 0,
    "shape_to_tensor": None,
    "unique": None,
}


def _packed(name: str, place: int | None) -> Form:
    def rule(s: Site) -> Expr:
        args = list(s.args)
        if place is not None:
            args.insert(place, StringImm(s.attrs["format"]))
        infos = [s.call.struct_info]
        return Call(ExternFunc(f"relax.run.{name}"), args, None, infos, s.call.span)

    return rule


for _name, _place in PACKED.items():
    form(f"relax.{_name}")(_packed(_name, _place))


@form("relax.grad.no_grad", "relax.grad.start_checkpoint", "relax.grad.end_checkpoint")
def _(s: Site) -> Expr:
    return s.x


# ---- what workers do together
_REDUCTIONS: Final = ("sum", "prod", "min", "max", "avg")


@form("relax.ccl.allreduce")
def _(s: Site) -> Expr:
    kind = ShapeExpr([_REDUCTIONS.index(s.attrs["op_type"])])
    return _collective("allreduce", [s.x, kind, s.attrs["in_group"]], tensor_of(s.x))


@form("relax.ccl.allgather")
def _(s: Site) -> Expr:
    return _collective("allgather", [s.x, s.attrs["in_group"]], tensor_of(s.call))


@form("relax.ccl.broadcast_from_worker0")
def _(s: Site) -> Expr:
    return _collective("broadcast_from_worker0", [s.x, False], tensor_of(s.x))


@form("relax.ccl.scatter_from_worker0")
def _(s: Site) -> Expr:
    """The parts along an axis in front of the others, in row-major order, then one each."""
    workers, axis = s.attrs["num_workers"], s.attrs["axis"]
    dims: list[Any] = list(shape_of(s.x).values)
    parts = [*dims[:axis], workers, dims[axis] // workers, *dims[axis + 1 :]]
    made: Expr = s.builder.emit(s.te(topi.reshape, s.x, parts, part=True))
    if axis:
        order = [axis, *(n for n in range(len(parts)) if n != axis)]
        made = s.builder.emit(s.te(topi.transpose, made, order, part=True))
    return _collective("scatter_from_worker0", [made, False], tensor_of(s.call))


def _collective(name: str, args: list[Any], info: TensorStructInfo) -> Expr:
    return call_dps_packed(f"runtime.disco.{name}", args, out_sinfo=info)


@form("relax.distributed.redistribute_replica_to_shard")
def _(s: Site) -> Expr:
    """The part of this worker: its number, and a slice."""
    workers, axis = s.attrs["num_workers"], s.attrs["axis"]
    worker = tir.Var("worker_id", "int64")
    asked = s.builder.emit(
        call_pure_packed("runtime.disco.worker_id", sinfo_args=[ShapeStructInfo(None)])
    )
    s.builder.match_cast(asked, ShapeStructInfo([worker]))
    whole = shape_of(s.x).values[axis]
    begin, end = worker * whole // workers, (worker + 1) * whole // workers
    return strided_slice(s.x, axes=[axis], begin=[begin], end=[end], assume_inbound=True)
