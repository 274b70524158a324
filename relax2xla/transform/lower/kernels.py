"""Calls of loop-level functions (call_tir and its kin) as rows.

A PrimFunc takes the arguments, then the results that are new, then the numbers of ``tir_vars``. It
writes into memory that it is given; here it gives new values of the buffers that it writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from relax2xla.errors import LegalizeError
from relax2xla.ir import (
    Call,
    Expr,
    GlobalVar,
    Op,
    ShapeExpr,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    Tuple,
    TupleStructInfo,
)
from relax2xla.ir.struct_info import DTensorStructInfo, show
from relax2xla.op.intrinsic import call_tir_inplace_op, call_tir_op, call_tir_with_grad_op
from relax2xla.stablehlo.loops import lower
from relax2xla.stablehlo.loops.lower import Argument
from relax2xla.tir import PrimFunc

Kernels = Mapping[GlobalVar, PrimFunc]
KERNEL_CALLS: Final = {op.name for op in (call_tir_op, call_tir_inplace_op, call_tir_with_grad_op)}


def is_kernel_call(call: Call) -> bool:
    """Whether ``call`` is one of a loop-level function."""
    return isinstance(call.op, Op) and call.op.name in KERNEL_CALLS


def kernel_of(call: Call, kernels: Kernels) -> tuple[str, PrimFunc]:
    """The name of the function that ``call`` calls, and the function."""
    callee = call.args[0]
    assert isinstance(call.op, Op)
    if not isinstance(callee, GlobalVar):
        raise LegalizeError(f"{call.op.name} calls {callee!r}, which is no function of the module")
    found = kernels.get(callee)
    if found is None:
        found = next((f for g, f in kernels.items() if g.name_hint == callee.name_hint), None)
    if found is None:
        raise LegalizeError(
            f"{call.op.name} calls {callee.name_hint}, which is no T.prim_func of the module"
        )
    return callee.name_hint, found


def lower_call(call: Call, kernels: Kernels) -> Expr:
    """What a call of a loop-level function gives, as rows: a tensor, or a tuple of them."""
    name, func = kernel_of(call, kernels)
    given = _tensors(call.args[1])
    results = _results(call)
    places = call.attrs.get("inplace_indices") or (-1,) * len(results)
    new = [info for info, place in zip(results, places, strict=True) if place == -1]
    numbers = _numbers(call, name)
    made = lower(func, [*given, *new, *numbers], name)
    fresh = iter(range(len(given), len(given) + len(new)))
    wanted = [next(fresh) if place == -1 else place for place in places]
    lost = sorted(i for i in made.written if i not in wanted)
    if lost:
        raise LegalizeError(
            f"{name} writes its parameter {func.params[lost[0]].name}, which is no result of the "
            "call; call_tir_inplace says which arguments are changed"
        )
    values = [made.contents[i] for i in wanted]
    return Tuple(values) if isinstance(call.sinfo_args[0], TupleStructInfo) else values[0]


def _tensors(args: Expr) -> list[Expr]:
    if isinstance(args, Tuple):
        return list(args.fields)
    info = args.struct_info
    if not isinstance(info, TupleStructInfo):
        return [args]
    return [args[i] for i in range(len(info.fields))]


def _results(call: Call) -> list[TensorStructInfo]:
    info = call.sinfo_args[0]
    fields = info.fields if isinstance(info, TupleStructInfo) else (info,)
    return [_tensor(f) for f in fields]


def _tensor(info: StructInfo) -> TensorStructInfo:
    if isinstance(info, DTensorStructInfo):
        return info.tensor_sinfo
    if not isinstance(info, TensorStructInfo):
        raise LegalizeError(f"a result of call_tir is a tensor; got {show(info)}")
    return info


def _numbers(call: Call, name: str) -> list[Argument]:
    if len(call.args) < 3:
        return []
    shape = call.args[2]
    values = shape.values if isinstance(shape, ShapeExpr) else None
    if values is None and isinstance(shape.struct_info, ShapeStructInfo):
        values = shape.struct_info.values
    numbers = [v for v in values or () if isinstance(v, int)]
    if values is None or len(numbers) != len(values):
        raise LegalizeError(f"{name}: the values of tir_vars must be known; they are {shape!r}")
    return list(numbers)
