"""LowerDistIR: distributed tensors become tensors.

On a mesh of one device a distributed tensor is its tensor, whatever its placement. On a larger one
it is a tensor that is annotated where it comes in, where it is moved and where it goes out; XLA
partitions the program by that (design decision D19).
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from relax2xla.errors import TransformError
from relax2xla.ir import (
    Call,
    Constant,
    DeviceMesh,
    DTensorStructInfo,
    Expr,
    FuncStructInfo,
    Function,
    GlobalVar,
    IRModule,
    MatchCast,
    Op,
    Placement,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
)
from relax2xla.ir.op import is_op
from relax2xla.ir.rewrite import Rewriter, bindings_deep
from relax2xla.ir.struct_info import flatten_info, show
from relax2xla.transform.core import UNDIVIDED, Pass, PassContext, register


@register(ensures=(UNDIVIDED,), needed=True)
class LowerDistIR(Pass):
    """Distributed tensors become tensors; TransformError where their mesh has not ``devices``.

    Parameters and results keep their placement as ``mhlo.sharding``, moves become annotations; on a
    mesh of one device nothing of it is left. The module's meshes go with them. A module without
    distributed tensors stays the same object.
    """

    def __init__(self, devices: int = 1) -> None:
        super().__init__()
        self.devices = devices

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        functions = mod.relax_functions()
        spread = any(_is_distributed(i) for f in functions.values() for i in _infos(f))
        if not spread and (self.devices == 1 or not _has_moves(functions.values())):
            return mod
        # New names, so that calls in the module that was given keep the struct info of their own.
        names: dict[GlobalVar, GlobalVar] = {
            g: GlobalVar(g.name_hint, _lowered(f.struct_info, self.devices), g.span)
            for g, f in functions.items()
        }
        new = {names.get(g, g): self._function(f, names) for g, f in mod.items()}
        infos = {
            name: [i for i in known if not isinstance(i, DeviceMesh)]
            for name, known in mod.global_infos.items()
        }
        return IRModule(new, mod.attrs, {name: known for name, known in infos.items() if known})

    def _function(self, func: Any, names: Mapping[GlobalVar, GlobalVar]) -> Any:
        if not isinstance(func, Function):
            return func
        made = _Lowering(names, self.devices).function(func)
        if self.devices == 1:
            return made
        arguments = {p.name_hint: _annotation(p.struct_info) for p in func.params}
        stated = {name: note for name, note in arguments.items() if note}
        if stated:
            made = made.with_attr("arg_attrs", {**made.attrs.get("arg_attrs", {}), **stated})
        results = [_annotation(i) for i in flatten_info(func.ret_struct_info)]
        return made.with_attr("res_attrs", results) if any(results) else made


def _annotation(info: StructInfo) -> dict[str, Any]:
    """What is stated of a parameter or result: its sharding, if it is distributed."""
    if not isinstance(info, DTensorStructInfo):
        return {}
    return {"sdy.sharding": _shardy(info.tensor_sinfo, info.device_mesh, info.placement)}


def _shardy(info: TensorStructInfo, mesh: DeviceMesh, placement: Placement) -> dict[str, str]:
    """A placement as Shardy's attribute, with its mesh inside."""
    axes = ", ".join(f'"axis{i}"={size}' for i, size in enumerate(mesh.shape))
    ids = list(mesh.device_ids)
    order = "" if ids == list(range(len(ids))) else f", device_ids={ids}"
    cuts = [
        "".join(f'"axis{at}"' for at, cut in enumerate(placement.axes) if cut == axis)
        for axis in range(info.ndim)
    ]
    spread = ", ".join(f"{{{cut}}}" for cut in cuts)
    return {"mlir": f"#sdy.sharding<mesh<[{axes}]{order}>, [{spread}]>"}


class _Lowering(Rewriter):
    """A Rewriter to which the struct info of tensors is all that there is."""

    def __init__(self, names: Mapping[GlobalVar, GlobalVar], devices: int) -> None:
        super().__init__(rule=functools.partial(_without_moves, devices=devices))
        self.names, self.devices = names, devices

    def info(self, info: StructInfo) -> StructInfo:
        return _lowered(info, self.devices)

    def leaf(self, node: Expr) -> Expr:
        if isinstance(node, GlobalVar):
            return self.names.get(node, node)
        if isinstance(node, Constant) and node.struct_info_ is not None:
            info = _lowered(node.struct_info_, self.devices)
            return node if info is node.struct_info_ else Constant(node.data, info, node.span)
        return super().leaf(node)


def _without_moves(node: Expr, devices: int) -> Expr | None:
    """What a plain expression becomes; None: itself."""
    if not isinstance(node, Call):
        return None
    if is_op(node, "relax.distributed.annotate_sharding") or is_op(
        node, "relax.distributed.redistribute"
    ):
        mesh = node.attrs["device_mesh"]
        if len(mesh.device_ids) == 1:
            return node.args[0]
        return _constraint(node, mesh, node.attrs["placement"]) if devices > 1 else None
    if is_op(node, "relax.distributed.redistribute_replica_to_shard"):
        info = node.struct_info_
        if isinstance(info, DTensorStructInfo):
            return _constraint(node, info.device_mesh, str(info.placement))
        return None
    infos = [_lowered(i, devices) for i in node.sinfo_args]
    if all(a is b for a, b in zip(infos, node.sinfo_args, strict=True)):
        return None
    return Call(node.op, node.args, node.attrs, infos, node.span)


def _constraint(node: Call, mesh: DeviceMesh, placement: str) -> Expr:
    """The operand of a move, where XLA is told how to spread it."""
    info = node.args[0].struct_info
    whole = info.tensor_sinfo if isinstance(info, DTensorStructInfo) else info
    if not isinstance(whole, TensorStructInfo) or whole.ndim < 0:
        raise TransformError(f"{node}: a tensor of unknown rank cannot be spread over devices")
    sharding = _shardy(whole, mesh, Placement.from_text(placement))
    return Op.get("relax.sdy.sharding_constraint")(node.args[0], sharding=sharding)


def _has_moves(functions: Iterable[Function]) -> bool:
    return any(
        is_op(b.value, "relax.distributed.annotate_sharding")
        or is_op(b.value, "relax.distributed.redistribute")
        for f in functions
        for b in bindings_deep(f)
    )


def _infos(func: Function) -> Iterator[StructInfo]:
    """The struct infos that a function states or binds; those inside it are computed from them."""
    yield func.struct_info
    for b in bindings_deep(func):
        if b.var.struct_info_ is not None:
            yield b.var.struct_info_
        if isinstance(b, MatchCast):
            yield b.struct_info


def _is_distributed(info: StructInfo) -> bool:
    return _lowered(info, None) is not info


def _lowered(info: StructInfo, devices: int | None) -> StructInfo:
    """``info`` with tensors for distributed ones; the same object where there are none.

    TransformError where a mesh is larger than one and has not so many ``devices`` (None: any).
    """
    match info:
        case DTensorStructInfo():
            count = len(info.device_mesh.device_ids)
            if devices is not None and count not in (1, devices):
                on = "one" if devices == 1 else str(devices)
                raise TransformError(
                    f"{show(info)} is spread over {count} devices, and the program runs on {on}. "
                    f"Build it with build(mod, mesh={count})"
                )
            return info.tensor_sinfo
        case TupleStructInfo():
            fields = [_lowered(f, devices) for f in info.fields]
            return info if _same(fields, info.fields) else TupleStructInfo(fields)
        case FuncStructInfo():
            params = [_lowered(p, devices) for p in info.params or ()]
            ret = _lowered(info.ret, devices)
            if _same([*params, ret], [*(info.params or ()), info.ret]):
                return info
            return FuncStructInfo(
                None if info.params is None else params,
                ret,
                info.purity,
                derive_func=info.derive_func,
            )
        case _:
            return info


def _same(new: list[StructInfo], old: tuple[StructInfo, ...] | list[StructInfo]) -> bool:
    return all(a is b for a, b in zip(new, old, strict=True))
