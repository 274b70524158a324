"""LowerDistIR: distributed tensors become tensors, for programs of one device.

On a mesh of one device a distributed tensor is its tensor, whatever its placement. A larger mesh
would need one program for each device; XLA makes these from tensors with ``annotate_sharding``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

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
    StructInfo,
    TupleStructInfo,
)
from relax2xla.ir.op import is_op
from relax2xla.ir.rewrite import Rewriter, bindings_deep
from relax2xla.ir.struct_info import show
from relax2xla.transform.core import UNDIVIDED, Pass, PassContext, register


@register(ensures=(UNDIVIDED,), needed=True)
class LowerDistIR(Pass):
    """Distributed tensors on a mesh of one device become tensors; TransformError on a larger one.

    The module's meshes go with them. A module without distributed tensors stays the same object.
    """

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        functions = mod.relax_functions()
        if not any(_is_distributed(i) for f in functions.values() for i in _infos(f)):
            return mod
        # New names, so that calls in the module that was given keep the struct info of their own.
        names: dict[GlobalVar, GlobalVar] = {
            g: GlobalVar(g.name_hint, _lowered(f.struct_info), g.span) for g, f in functions.items()
        }
        new = {
            names.get(g, g): _Lowering(names).function(f) if isinstance(f, Function) else f
            for g, f in mod.items()
        }
        infos = {
            name: [i for i in known if not isinstance(i, DeviceMesh)]
            for name, known in mod.global_infos.items()
        }
        return IRModule(new, mod.attrs, {name: known for name, known in infos.items() if known})


class _Lowering(Rewriter):
    """A Rewriter to which the struct info of tensors is all that there is."""

    def __init__(self, names: Mapping[GlobalVar, GlobalVar]) -> None:
        super().__init__(rule=_without_moves)
        self.names = names

    def info(self, info: StructInfo) -> StructInfo:
        return _lowered(info)

    def leaf(self, node: Expr) -> Expr:
        if isinstance(node, GlobalVar):
            return self.names.get(node, node)
        if isinstance(node, Constant) and node.struct_info_ is not None:
            info = _lowered(node.struct_info_)
            return node if info is node.struct_info_ else Constant(node.data, info, node.span)
        return super().leaf(node)


def _without_moves(node: Expr) -> Expr | None:
    """What a plain expression becomes; None: itself."""
    if not isinstance(node, Call):
        return None
    if is_op(node, "relax.distributed.annotate_sharding") or is_op(
        node, "relax.distributed.redistribute"
    ):
        mesh = node.attrs["device_mesh"]
        return node.args[0] if len(mesh.device_ids) == 1 else None
    infos = [_lowered(i) for i in node.sinfo_args]
    if all(a is b for a, b in zip(infos, node.sinfo_args, strict=True)):
        return None
    return Call(node.op, node.args, node.attrs, infos, node.span)


def _infos(func: Function) -> Iterator[StructInfo]:
    """The struct infos that a function states or binds; those inside it are computed from them."""
    yield func.struct_info
    for b in bindings_deep(func):
        if b.var.struct_info_ is not None:
            yield b.var.struct_info_
        if isinstance(b, MatchCast):
            yield b.struct_info


def _is_distributed(info: StructInfo) -> bool:
    return _lowered(info, check=False) is not info


def _lowered(info: StructInfo, check: bool = True) -> StructInfo:
    """``info`` with tensors for distributed ones; the same object where there are none."""
    match info:
        case DTensorStructInfo():
            count = len(info.device_mesh.device_ids)
            if check and count != 1:
                raise TransformError(
                    f"{show(info)} is spread over {count} devices, and programs here run on one. "
                    "Use tensors with R.dist.annotate_sharding, which XLA partitions, or a mesh "
                    "of one device"
                )
            return info.tensor_sinfo
        case TupleStructInfo():
            fields = [_lowered(f, check) for f in info.fields]
            return info if _same(fields, info.fields) else TupleStructInfo(fields)
        case FuncStructInfo():
            params = [_lowered(p, check) for p in info.params or ()]
            ret = _lowered(info.ret, check)
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
