"""What a saved file holds of tensors of ``te``: their operations, and which result each is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from relax2xla import tir
from relax2xla.ir.serial import add_kind
from relax2xla.ir.serial_kernels import ATTRS, NUMBER, PRIM, STMT, TEXT, Fields, Many
from relax2xla.te.tensor import (
    ComputeOp,
    ExternOp,
    Operation,
    PlaceholderOp,
    ProducerLoad,
    ScanOp,
    Tensor,
)
from relax2xla.tir.buffer import Buffer

_NAMED: Final[Fields] = {"name": TEXT, "tag": TEXT, "attrs": ATTRS}
_AXES: Final = Many((tir.IterVar,))
_TENSORS: Final = Many((Tensor,))
_BUFFERS: Final = Many((Buffer,))
# What an operation has besides its name; fields in the order of the constructors.
_OPERATIONS: Final[dict[type[Operation], Fields]] = {
    PlaceholderOp: {"shape": Many(PRIM), "dtype": TEXT},
    ComputeOp: {"axis": _AXES, "shape": Many(PRIM), "body": Many(PRIM)},
    ExternOp: {
        "given": _TENSORS,
        "input_buffers": _BUFFERS,
        "output_buffers": _BUFFERS,
        "body": STMT,
    },
    ScanOp: {
        "scan_axis": (tir.IterVar,),
        "init": _TENSORS,
        "update": _TENSORS,
        "state_placeholder": _TENSORS,
        "given": _TENSORS,
    },
}


def _tensor(op: Operation, value_index: int) -> Tensor:
    if not 0 <= value_index < len(op.outputs):
        raise ValueError(f"{op.name} has no result {value_index}")
    return op.output(value_index)


def _taken(tensor: Tensor) -> Sequence[Any]:
    return tensor.op, tensor.value_index


for _cls, _fields in _OPERATIONS.items():
    add_kind(f"te.{_cls.__name__}", _cls, {**_NAMED, **_fields})
add_kind("te.Tensor", Tensor, {"op": (Operation,), "value_index": NUMBER}, _tensor, _taken)
add_kind("te.ProducerLoad", ProducerLoad, {"producer": (Tensor,), "indices": Many(PRIM)})
