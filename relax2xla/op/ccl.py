"""``relax.ccl``: collectives between the workers of a distributed program.

Inference is complete. On one worker each is the identity where its result has the operand's shape;
on several they become StableHLO's collectives (:func:`between_workers`): in programs that are built
for a mesh, and inside ``jax.shard_map``. Source: TVM Relax v0.20.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, Final

from relax2xla.dtypes import dtype_info
from relax2xla.errors import LegalizeError, OpError
from relax2xla.ir.expr import Expr
from relax2xla.ir.op import Rule, op
from relax2xla.ir.struct_info import TensorStructInfo, show
from relax2xla.ir.traits import Collective, Opaque, Replicates
from relax2xla.op.shared.checks import fold, norm_axis, seen_dims, tensor, want_tensor
from relax2xla.op.shared.lowering import (
    binary,
    dtype_of,
    full,
    hlo,
    info_of,
    reshape,
    scalar_region,
    shape_of,
    slice_axis,
    tensor_info,
)

REDUCTIONS: Final = ("sum", "prod", "min", "max", "avg")
_ROWS: Final = {"sum": "add", "avg": "add", "prod": "multiply", "min": "minimum", "max": "maximum"}


@op("relax.ccl.allreduce", Replicates(), Collective(""))
def allreduce(x: Expr, op_type: str = "sum", in_group: bool = True) -> Rule:
    """The values of all workers combined, the same on each.

    x: (*s), any number; op_type: "sum", "prod", "min", "max" or "avg"; in_group: only the workers
    of one's own group
    result: (*s), dtype of ``x``
    """
    if op_type not in REDUCTIONS:
        raise OpError(f"`op_type` must be one of {', '.join(REDUCTIONS)}; got {op_type!r}")
    return want_tensor(x, "x"), lambda: x


@op("relax.ccl.allgather", Opaque(), Collective(""))
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
    return info, lambda: alone(x, num_workers, "ccl.allgather")


@op("relax.ccl.broadcast_from_worker0", Opaque(), Collective(""))
def broadcast_from_worker0(x: Expr) -> Rule:
    """The value of worker 0, on each.

    x: (*s), any dtype
    result: (*s), dtype of ``x``
    """
    return want_tensor(x, "x"), lambda: x


@op("relax.ccl.scatter_from_worker0", Opaque(), Collective(""))
def scatter_from_worker0(x: Expr, num_workers: int, axis: int = 0) -> Rule:
    """The value of worker 0 cut along an axis, one part for each worker.

    x: (*s), any dtype; the size of the axis is a multiple of ``num_workers``
    result: (*s) with the axis divided by ``num_workers``, dtype of ``x``
    """

    def lower() -> Expr:
        return alone(x, num_workers, "ccl.scatter_from_worker0")

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


def alone(x: Expr, num_workers: int, name: str) -> Expr:
    """``x`` where there is one worker; LegalizeError where an operator is for several."""
    if num_workers == 1:
        return x
    raise LegalizeError(
        f"{name} over {num_workers} workers needs a program of several devices: "
        f"build(mod, mesh={num_workers}), or a call of the JAX function inside jax.shard_map"
    )


# ---- several workers
def between_workers(workers: int) -> Mapping[str, Callable[..., Expr]]:
    """Lowerings by operator name where each of ``workers`` devices runs the function.

    Worker i is the i-th device of the mesh; there is one group. LegalizeError, when called, where a
    program is written for another number of workers.
    """
    return {
        f"relax.{name}": functools.partial(rule, workers)
        for name, rule in (
            ("ccl.allreduce", _allreduce),
            ("ccl.allgather", _allgather),
            ("ccl.broadcast_from_worker0", _broadcast),
            ("ccl.scatter_from_worker0", _scatter),
            ("distributed.redistribute_replica_to_shard", _own_part),
        )
    }


def _groups(workers: int) -> dict[str, Any]:
    """All workers as one group, by their place among the partitions of a program."""
    return {
        "replica_groups": [list(range(workers))],
        "channel_handle": {"handle": 1, "type": 1},
        "use_global_device_ids": True,
    }


def _allreduce(workers: int, x: Expr, op_type: str = "sum", in_group: bool = True) -> Expr:
    dtype = dtype_of(x)
    made = hlo("all_reduce", x, scalar_region(_ROWS[op_type], dtype), **_groups(workers))
    if op_type != "avg":
        return made
    if dtype_info(dtype).kind == "bool":
        raise LegalizeError("ccl.allreduce: there is no average of booleans")
    return binary("divide", made, full(shape_of(x), workers, dtype))


def gathered(workers: int, x: Expr) -> Expr:
    """All workers' (n, *s) one after the other: (workers * n, *s)."""
    first, *rest = shape_of(x)
    out = tensor_info((first * workers, *rest), dtype_of(x))
    return hlo("all_gather", x, out=out, all_gather_dim=0, **_groups(workers))


def _allgather(workers: int, x: Expr, num_workers: int, in_group: bool = True) -> Expr:
    _meant_for(workers, num_workers, "ccl.allgather")
    return gathered(workers, x)


def _broadcast(workers: int, x: Expr) -> Expr:
    # XLA:CPU has no code for collective_broadcast.
    shape = shape_of(x)
    return reshape(slice_axis(gathered(workers, reshape(x, (1, *shape))), 0, 0, 1), shape)


def _scatter(workers: int, x: Expr, num_workers: int, axis: int = 0) -> Expr:
    _meant_for(workers, num_workers, "ccl.scatter_from_worker0")
    return _own_part(workers, _broadcast(workers, x), workers, axis)


def _own_part(workers: int, x: Expr, num_workers: int, axis: int) -> Expr:
    """The part of ``x``, cut along ``axis``, that has this worker's number."""
    _meant_for(workers, num_workers, "distributed.redistribute_replica_to_shard")
    info = part_of_worker(info_of(x), workers, axis)
    sizes = list(info.dims or ())
    at = norm_axis(axis, len(sizes))
    number = hlo("convert", hlo("partition_id"), out=tensor_info((), "int32"))
    start = binary("multiply", number, full((), sizes[at], "int32"))
    zero = full((), 0, "int32")
    starts = [start if a == at else zero for a in range(len(sizes))]
    return hlo("dynamic_slice", x, *starts, slice_sizes=sizes)


def _meant_for(workers: int, num_workers: int, name: str) -> None:
    if num_workers != workers:
        raise LegalizeError(
            f"{name} is written for {num_workers} workers, and the program runs on {workers}"
        )
