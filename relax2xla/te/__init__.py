"""Tensor expressions: ``te.compute`` and friends, as TVM v0.20 has them."""

from __future__ import annotations

from typing import Any

from relax2xla.te import functions as functions
from relax2xla.te import saved as saved
from relax2xla.te.operation import comm_reducer as comm_reducer
from relax2xla.te.operation import compute as compute
from relax2xla.te.operation import const as const
from relax2xla.te.operation import extern as extern
from relax2xla.te.operation import max as max
from relax2xla.te.operation import min as min
from relax2xla.te.operation import placeholder as placeholder
from relax2xla.te.operation import prod as prod
from relax2xla.te.operation import reduce_axis as reduce_axis
from relax2xla.te.operation import scan as scan
from relax2xla.te.operation import sum as sum
from relax2xla.te.operation import tag_scope as tag_scope
from relax2xla.te.operation import thread_axis as thread_axis
from relax2xla.te.prim_func import create_prim_func as create_prim_func
from relax2xla.te.tensor import ComputeOp as ComputeOp
from relax2xla.te.tensor import ExternOp as ExternOp
from relax2xla.te.tensor import Operation as Operation
from relax2xla.te.tensor import PlaceholderOp as PlaceholderOp
from relax2xla.te.tensor import ProducerLoad as ProducerLoad
from relax2xla.te.tensor import ScanOp as ScanOp
from relax2xla.te.tensor import Tensor as Tensor
from relax2xla.te.tensor import TensorSlice as TensorSlice
from relax2xla.tir.op import size_var as size_var
from relax2xla.tir.op import var as var


def __getattr__(name: str) -> Any:
    """The functions of scalars: ``te.exp``, ``te.min_value``, ..."""
    return getattr(functions, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *functions.NAMES})
