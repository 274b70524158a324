"""Distributed tensors through operators: which axes of the operands go on in the result.

An operator computes on the whole tensors; its result is cut along the mesh as the operands' axes
are that go on in it, and copied where none does. Which do follows from the operator's trait; those
without one that says it take no distributed tensors. Source: TVM's ``dist.FInferStructInfo``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from relax2xla import tir
from relax2xla.errors import OpError
from relax2xla.ir.expr import Call, Var
from relax2xla.ir.mesh import Placement
from relax2xla.ir.op import Op, call_attrs, trait_of
from relax2xla.ir.struct_info import DTensorStructInfo, StructInfo, TensorStructInfo, show
from relax2xla.ir.traits import (
    AlongAxis,
    Broadcasting,
    Channelwise,
    MatMul,
    Normalises,
    Permutes,
    Pointwise,
    Reduction,
    Replicates,
    Reshapes,
    Trait,
    axes_of,
)

Tensors = Sequence[TensorStructInfo]
# Of each operand: axis to axis of the result.
Flow = Callable[[Call, Tensors, TensorStructInfo], list[dict[int, int]]]


def _broadcast(call: Call, operands: Tensors, out: TensorStructInfo) -> list[dict[int, int]]:
    """Aligned at the last axis; what is repeated does not go on."""
    flows: list[dict[int, int]] = []
    for x in operands:
        shift = out.ndim - x.ndim
        repeated = {
            i
            for i, d in enumerate(x.dims or ())
            if d == 1 and out.dims is not None and out.dims[i + shift] != 1
        }
        flows.append({i: i + shift for i in range(x.ndim) if i not in repeated})
    return flows


def _none(call: Call, operands: Tensors, out: TensorStructInfo) -> list[dict[int, int]]:
    return [{} for _ in operands]


def _without(call: Call, operands: Tensors, name: str) -> list[dict[int, int]]:
    """All axes of the first operand go on but those that the attribute ``name`` says."""
    x = operands[0]
    axes = axes_of(call_attrs(call)[name], x.ndim)
    return [{i: i for i in range(x.ndim) if i not in axes}, *({} for _ in operands[1:])]


def _along(call: Call, operands: Tensors, out: TensorStructInfo) -> list[dict[int, int]]:
    return _without(call, operands, trait_of(call, AlongAxis).axis)


def _normalised(call: Call, operands: Tensors, out: TensorStructInfo) -> list[dict[int, int]]:
    return _without(call, operands, trait_of(call, Normalises).axes)


def _channelwise(call: Call, operands: Tensors, out: TensorStructInfo) -> list[dict[int, int]]:
    """A vector's axis is that of the channels, unless one number is repeated for all."""
    x = operands[0]
    (axis,) = axes_of(call_attrs(call)[trait_of(call, Channelwise).axis], x.ndim)
    vectors = ({0: axis} if v.ndim == 1 and v.dims != (1,) else {} for v in operands[1:])
    return [{i: i for i in range(x.ndim)}, *vectors]


def _reduced(call: Call, operands: Tensors, out: TensorStructInfo) -> list[dict[int, int]]:
    x, attrs, trait = operands[0], call_attrs(call), trait_of(call, Reduction)
    axes = axes_of(attrs[trait.axis], x.ndim)
    kept = [i for i in range(x.ndim) if i not in axes]
    return [{i: i if attrs[trait.keepdims] else at for at, i in enumerate(kept)}]


def _permuted(call: Call, operands: Tensors, out: TensorStructInfo) -> list[dict[int, int]]:
    x, axes = operands[0], call_attrs(call)[trait_of(call, Permutes).axes]
    order = reversed(range(x.ndim)) if axes is None else axes_of(axes, x.ndim)
    return [{i: at for at, i in enumerate(order)}]


def _matmul(call: Call, operands: Tensors, out: TensorStructInfo) -> list[dict[int, int]]:
    """(*batch, m, k) and (*batch, k, n); a vector has no axis m, or n.

    Of the batch, axes that one operand lacks do not go on.
    """
    a, b = operands
    batch = out.ndim - (a.ndim > 1) - (b.ndim > 1)
    shared = range(batch - max(min(a.ndim, b.ndim) - 2, 0), batch)
    flows: list[dict[int, int]] = []
    for x in operands:
        shift = batch - (x.ndim - 2)
        repeated = {i for i in shared if x.dims is not None and x.dims[i - shift] == 1}
        flows.append({i - shift: i for i in shared if i not in repeated})
    if a.ndim > 1:
        flows[0][a.ndim - 2] = batch
    if b.ndim > 1:
        flows[1][b.ndim - 1] = out.ndim - 1
    return flows


def _reshaped(call: Call, operands: Tensors, out: TensorStructInfo) -> list[dict[int, int]]:
    """From the last axis on: axes at which the products of the sizes behind them are equal."""
    old, new = operands[0].dims, out.dims
    flow: dict[int, int] = {}
    i, j = len(old or ()), len(new or ())
    sizes: tuple[tir.Dim, tir.Dim] = (1, 1)
    analyzer = tir.Analyzer()
    while old is not None and new is not None and i > 0 and j > 0:
        before, after = sizes
        if analyzer.can_prove(after > before):
            i -= 1
            sizes = (tir.as_dim(before * old[i]), after)
        else:
            j -= 1
            sizes = (before, tir.as_dim(after * new[j]))
        if tir.can_prove_equal(*sizes):
            flow.setdefault(i, j)  # Further axes of size 1 change no product.
    return [flow]


FLOWS: Final[dict[type[Trait], Flow]] = {
    Pointwise: _broadcast,
    Broadcasting: _broadcast,
    Channelwise: _channelwise,
    Reduction: _reduced,
    AlongAxis: _along,
    Normalises: _normalised,
    Replicates: _none,
    Permutes: _permuted,
    MatMul: _matmul,
    Reshapes: _reshaped,
}


def infer(op: Op[...], call: Call) -> StructInfo:
    """Struct info of ``call``, which has a distributed operand.

    Raises OpError where the operator has no rule, where a tensor that is not distributed meets one
    that is, and where the operands are cut in ways that contradict each other.
    """
    if not says_flow(op):
        raise OpError(
            f"{op.name} takes no distributed tensors; compute it before R.dist.annotate_sharding, "
            "or on tensors that are not distributed"
        )
    placed: list[DTensorStructInfo] = []
    args: list[Any] = []
    for i, a in enumerate(call.args):
        info = a.struct_info_
        if isinstance(info, DTensorStructInfo):
            placed.append(info)
            args.append(Var(f"arg{i}", info.tensor_sinfo))
        elif isinstance(info, TensorStructInfo):
            raise OpError(
                f"{op.name}: the operand {i} is {show(info)}, others are distributed; give it a "
                "DTensor annotation, or R.dist.const"
            )
        else:
            args.append(a)
    mesh = placed[0].device_mesh
    if any(p.device_mesh != mesh for p in placed):
        raise OpError(f"{op.name}: the operands are on different meshes; use R.dist.redistribute")
    plain = Call(op, args, call.attrs)
    out = plain.struct_info_
    if not isinstance(out, TensorStructInfo):
        raise OpError(f"{op.name} of distributed tensors must give one tensor; got {show(out)}")
    flows = flows_of(plain, [p.tensor_sinfo for p in placed], out)
    return DTensorStructInfo(out, mesh, merged(op.name, placed, flows))


def says_flow(op: Op[...]) -> bool:
    """Whether a trait of ``op`` says which axes of its operands go on in the result."""
    return any(type(t) in FLOWS for t in op.traits)


def flows_of(call: Call, operands: Tensors, out: TensorStructInfo) -> list[dict[int, int]]:
    """Of each tensor that ``call`` takes, which of its axes go on as which of the result's.

    Of tensors of unknown rank none does, nor through operators of which no trait says it.
    """
    assert isinstance(call.op, Op)
    flow = next((FLOWS[type(t)] for t in call.op.traits if type(t) in FLOWS), _none)
    known = out.ndim != -1 and all(x.ndim != -1 for x in operands)
    return flow(call, operands, out) if known else _none(call, operands, out)


def summed_of(call: Call, operands: Tensors) -> list[tuple[int, int]]:
    """Axes of the two operands of ``call`` that it sums over together; there may be none."""
    if isinstance(call.op, Op) and call.op.has(MatMul) and all(x.ndim > 0 for x in operands):
        return [(operands[0].ndim - 1, max(operands[1].ndim - 2, 0))]
    return []


def merged(
    name: str, placed: Sequence[DTensorStructInfo], flows: Sequence[dict[int, int]]
) -> Placement:
    """The placement that the operands' ones make of the result of ``name``.

    An axis of the mesh that would cut two axes cuts the last of them.
    """
    cuts: dict[int, set[int]] = {}
    for info, flow in zip(placed, flows, strict=True):
        own: dict[int, set[int]] = {}
        for at, axis in enumerate(info.placement.axes):
            if axis in flow:
                own.setdefault(flow[axis], set()).add(at)
        for axis, ats in own.items():
            if cuts.setdefault(axis, ats) != ats:
                raise OpError(f"{name}: the operands cut axis {axis} of the result differently")
    axes: list[int | None] = [None] * len(placed[0].placement.axes)
    for axis in sorted(cuts):
        for at in cuts[axis]:
            axes[at] = axis
    return Placement(tuple(axes))
