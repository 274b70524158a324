"""``relax.ccl``: collectives between the workers of a distributed program.

Inference is complete. On one worker each is the identity where its result has the operand's shape;
on several they become StableHLO's collectives where the program is partitioned.
Source: TVM Relax v0.20.
"""

from __future__ import annotations

from typing import Final

from relax2xla.errors import LegalizeError, OpError
from relax2xla.ir.expr import Expr
from relax2xla.ir.op import Rule, op
from relax2xla.ir.struct_info import StructInfo, TensorStructInfo, show
from relax2xla.ir.traits import Opaque, Replicates
from relax2xla.op.shared.checks import fold, norm_axis, seen_dims, tensor, want_tensor

REDUCTIONS: Final = ("sum", "prod", "min", "max", "avg")


@op("relax.ccl.allreduce", Replicates())
def allreduce(x: Expr, op_type: str = "sum", in_group: bool = True) -> StructInfo:
    """The values of all workers combined, the same on each.

    x: (*s), any number; op_type: "sum", "prod", "min", "max" or "avg"; in_group: only the workers
    of one's own group
    result: (*s), dtype of ``x``
    """
    if op_type not in REDUCTIONS:
        raise OpError(f"`op_type` must be one of {', '.join(REDUCTIONS)}; got {op_type!r}")
    return want_tensor(x, "x")


@op("relax.ccl.allgather", Opaque())
def allgather(x: Expr, num_workers: int, in_group: bool = True) -> Rule:
    """The values of all workers one after the other along the first axis.

    x: (n, *s), any dtype
    result: (n * num_workers, *s), dtype of ``x``
    """
    info = want_tensor(x, "x")
    _positive(num_workers)
    if info.ndim == 0:
        raise OpError("`x` must have an axis to gather along")
    dims = seen_dims(info)
    if dims is not None:
        info = tensor((fold(dims[0] * num_workers), *dims[1:]), info.dtype, like=info)
    return info, lambda: _alone(x, num_workers, "allgather")


@op("relax.ccl.broadcast_from_worker0", Opaque())
def broadcast_from_worker0(x: Expr) -> StructInfo:
    """The value of worker 0, on each.

    x: (*s), any dtype
    result: (*s), dtype of ``x``
    """
    return want_tensor(x, "x")


@op("relax.ccl.scatter_from_worker0", Opaque())
def scatter_from_worker0(x: Expr, num_workers: int, axis: int = 0) -> Rule:
    """The value of worker 0 cut along an axis, one part for each worker.

    x: (*s), any dtype; the size of the axis is a multiple of ``num_workers``
    result: (*s) with the axis divided by ``num_workers``, dtype of ``x``
    """

    def lower() -> Expr:
        return _alone(x, num_workers, "scatter_from_worker0")

    return part_of_worker(want_tensor(x, "x"), num_workers, axis), lower


def part_of_worker(info: TensorStructInfo, num_workers: int, axis: int) -> TensorStructInfo:
    """Struct info of one of the equal parts of a tensor along ``axis``, one for each worker."""
    _positive(num_workers)
    dims = seen_dims(info)
    at = 0 if info.ndim == -1 else norm_axis(axis, info.ndim)
    if dims is None:
        return tensor(None, info.dtype, info.ndim, info)
    size = dims[at]
    if isinstance(size, int) and size % num_workers:
        raise OpError(f"axis {axis} of {show(info)} is no multiple of {num_workers} workers")
    part = fold(size // num_workers)
    return tensor((*dims[:at], part, *dims[at + 1 :]), info.dtype, like=info)


def _positive(num_workers: int) -> None:
    if num_workers < 1:
        raise OpError(f"`num_workers` must be positive; got {num_workers}")


def _alone(x: Expr, num_workers: int, name: str) -> Expr:
    if num_workers == 1:
        return x
    raise LegalizeError(f"ccl.{name} over {num_workers} workers needs a distributed program")
