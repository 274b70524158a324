"""Arithmetic and memory traffic of StableHLO rows, from the shapes that a program states.

One FLOP is one operation on one element, a multiplication and its addition two; bytes are those of
operands and results, each counted once a call, as if nothing were fused. Calls inside regions count
once, however often a loop runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from relax2xla.dtypes import dtype_info
from relax2xla.ir import Call, Function, Op, StructInfo, TensorStructInfo, TupleStructInfo
from relax2xla.ir.op import call_attrs
from relax2xla.ir.rewrite import post_order_deep
from relax2xla.ir.traits import Pointwise
from relax2xla.stablehlo.table import PREFIX, TABLE

Attrs = Mapping[str, Any]


@dataclass(slots=True)
class Cost:
    """What the calls of one row cost together; ``dynamic`` of them have no static shape."""

    calls: int = 0
    flops: int = 0
    bytes: int = 0
    dynamic: int = 0


class _Dynamic(Exception):
    """A size that only a run knows."""


def row_costs(functions: Iterable[Function]) -> dict[str, Cost]:
    """The cost of each row that is called, by the name of its MLIR operation; most FLOPs first."""
    made: dict[str, Cost] = {}
    for f in functions:
        for node in post_order_deep(f):
            if isinstance(node, Call) and isinstance(node.op, Op) and node.op.name in TABLE:
                add(made.setdefault(TABLE[node.op.name].mlir_name, Cost()), node)
    order = sorted(made.items(), key=lambda item: (-item[1].flops, -item[1].bytes, -item[1].calls))
    return dict(order)


def add(cost: Cost, call: Call) -> None:
    """Add what the call of a row costs."""
    cost.calls += 1
    try:
        flops, moved = _flops(call), _bytes(call)
    except _Dynamic:
        cost.dynamic += 1
    else:
        cost.flops += flops
        cost.bytes += moved


def custom_calls(functions: Iterable[Function]) -> dict[str, int]:
    """How often each target of a custom call is called."""
    counts: dict[str, int] = {}
    for f in functions:
        for node in post_order_deep(f):
            if (
                isinstance(node, Call)
                and isinstance(node.op, Op)
                and node.op.name == f"{PREFIX}stablehlo.custom_call"
            ):
                target = str(call_attrs(node)["call_target_name"])
                counts[target] = counts.get(target, 0) + 1
    return counts


# -- one call --------------------------------------------------------------------------------------
def _tensors(info: StructInfo) -> list[TensorStructInfo]:
    made: list[TensorStructInfo] = []
    stack = [info]
    while stack:
        top = stack.pop()
        if isinstance(top, TensorStructInfo):
            made.append(top)
        elif isinstance(top, TupleStructInfo):
            stack += reversed(top.fields)
    return made


def _shape(info: TensorStructInfo) -> tuple[int, ...]:
    dims = tuple(d for d in info.dims or () if isinstance(d, int))
    if info.dims is None or len(dims) != len(info.dims):
        raise _Dynamic
    return dims


def _count(infos: Sequence[TensorStructInfo]) -> int:
    return sum(math.prod(_shape(i)) for i in infos)


def _operands(call: Call) -> list[TensorStructInfo]:
    return [t for a in call.args for t in _tensors(a.struct_info)]


def _bytes(call: Call) -> int:
    tensors = [*_operands(call), *_tensors(call.struct_info)]
    return sum(-(-math.prod(_shape(t)) * dtype_info(t.dtype).bits // 8) for t in tensors if t.dtype)


def _flops(call: Call) -> int:
    assert isinstance(call.op, Op)
    row = TABLE[call.op.name]
    if row.mlir_name in _RULES:
        return _RULES[row.mlir_name](call, call_attrs(call))
    pointwise = call.op.trait(Pointwise)
    return pointwise.flops * _count(_tensors(call.struct_info)) if pointwise else 0


def _dot_general(call: Call, attrs: Attrs) -> int:
    lhs = _shape(_operands(call)[0])
    contracted = attrs["dot_dimension_numbers"]["lhs_contracting_dimensions"]
    return 2 * _count(_tensors(call.struct_info)) * math.prod(lhs[i] for i in contracted)


def _dot(call: Call, attrs: Attrs) -> int:
    return 2 * _count(_tensors(call.struct_info)) * _shape(_operands(call)[0])[-1]


def _convolution(call: Call, attrs: Attrs) -> int:
    """Each element of the result is a product over the window and the kernel's input channels."""
    kernel = _shape(_operands(call)[1])
    outputs = kernel[attrs["dimension_numbers"]["kernel_output_feature_dimension"]]
    terms = math.prod(kernel) // outputs if outputs else 0
    return 2 * _count(_tensors(call.struct_info)) * terms


def _reduce(call: Call, attrs: Attrs) -> int:
    """One application for each element that is folded in; half the operands are initial values."""
    operands = _operands(call)
    return _count(operands[: len(operands) // 2])


def _reduce_window(call: Call, attrs: Attrs) -> int:
    return _count(_tensors(call.struct_info)) * math.prod(attrs["window_dimensions"])


def _scatter(call: Call, attrs: Attrs) -> int:
    operands = _operands(call)
    return _count(operands[(len(operands) + 1) // 2 :])


def _cholesky(call: Call, attrs: Attrs) -> int:
    shape = _shape(_operands(call)[0])
    return math.prod(shape) * shape[-1] // 3


_RULES: Final[dict[str, Callable[[Call, Attrs], int]]] = {
    "stablehlo.dot_general": _dot_general,
    "stablehlo.dot": _dot,
    "stablehlo.convolution": _convolution,
    "stablehlo.reduce": _reduce,
    "stablehlo.reduce_window": _reduce_window,
    "stablehlo.scatter": _scatter,
    "stablehlo.cholesky": _cholesky,
}
