"""Parts of distributed tensors: what of one a worker has."""

from __future__ import annotations

from typing import Final

from relax2xla import tir
from relax2xla.errors import TransformError
from relax2xla.ir import DTensorStructInfo, StructInfo, TensorStructInfo, TupleStructInfo
from relax2xla.ir.struct_info import Dims, show

#: Functions of TVM's runtime that are other ones where a worker has a part.
EXTERN: Final = {
    "vm.builtin.distributed.attention_kv_cache_append": "vm.builtin.attention_kv_cache_append",
    "vm.builtin.distributed.attention_kv_cache_view": "vm.builtin.attention_kv_cache_view",
}


def part_dims(info: DTensorStructInfo) -> Dims:
    """The shape of a worker's part of a tensor.

    TransformError where its rank is unknown, or where an axis has no equal parts.
    """
    dims = info.tensor_sinfo.dims
    if dims is None:
        raise TransformError(f"{show(info)}: the shape must be known, so that parts have one")
    part = list(dims)
    for at, axis in enumerate(info.placement.axes):
        if axis is None:
            continue
        size, count = part[axis], info.device_mesh.shape[at]
        if isinstance(size, int) and size % count:
            raise TransformError(
                f"{show(info)}: axis {axis}, of size {size}, has no {count} equal parts; pad it, "
                "or leave it whole"
            )
        part[axis] = tir.as_dim(tir.simplify(tir.floordiv(size, count)))
    return tuple(part)


def part_of(info: StructInfo) -> StructInfo:
    """The struct info of what a worker has of a value; the same object where that is all of it."""
    match info:
        case DTensorStructInfo():
            whole = info.tensor_sinfo
            return TensorStructInfo(part_dims(info), whole.dtype, whole.vdevice)
        case TupleStructInfo():
            fields = [part_of(f) for f in info.fields]
            same = all(a is b for a, b in zip(fields, info.fields, strict=True))
            return info if same else TupleStructInfo(fields)
        case _:
            return info


def whole_of(info: StructInfo) -> StructInfo:
    """The struct info of a whole value, distributed or not."""
    match info:
        case DTensorStructInfo():
            return info.tensor_sinfo
        case TupleStructInfo():
            return TupleStructInfo([whole_of(f) for f in info.fields])
        case _:
            return info


def spread_in(info: StructInfo) -> list[DTensorStructInfo]:
    """The distributed tensors in a value, in order."""
    match info:
        case DTensorStructInfo():
            return [info]
        case TupleStructInfo():
            return [d for f in info.fields for d in spread_in(f)]
        case _:
            return []
