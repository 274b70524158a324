"""Structural hash of IR: the same for trees that are structurally equal.

Variables and symbolic variables count by the order of their definitions; names, spans and sharing
do not count. The walk is iterative over bindings and plain expressions; nested functions, branches
and struct infos cost a few Python frames a level.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from relax2xla import tir
from relax2xla.ir import expr as e
from relax2xla.ir.arrays import array_hash
from relax2xla.ir.base import DummyGlobalInfo, VDevice
from relax2xla.ir.deep import nests
from relax2xla.ir.lattice import free_symbolic_vars
from relax2xla.ir.module import IRModule
from relax2xla.ir.op import Op, call_attrs
from relax2xla.ir.rewrite import LEAF_TYPES, children, post_order
from relax2xla.ir.struct_info import (
    DTensorStructInfo,
    FuncStructInfo,
    PrimStructInfo,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
    seen_dims,
)
from relax2xla.tir import Dim
from relax2xla.tir.kernel.structural import hash_of


def structural_hash(node: Any, map_free_vars: bool = False) -> int:
    """A hash that structurally equal IR shares; it holds for one run of Python."""
    return _Hasher(map_free_vars).anything(node)


class _Hasher:
    """Variables hash as their order of definition, so names do not count."""

    def __init__(self, map_free_vars: bool) -> None:
        self.map_free = map_free_vars
        self.order: dict[object, int] = {}
        # By id, with the object itself so that the id stays its own.
        self.infos: dict[int, tuple[object, int]] = {}
        self.arrays: dict[int, tuple[object, int]] = {}

    def anything(self, node: Any) -> int:
        if isinstance(node, IRModule):
            return self.module(node)
        if isinstance(node, e.Expr):
            return self.expr(node)
        if isinstance(node, e.BindingBlock):
            return self.block(node)
        return self.binding(node) if isinstance(node, e.Binding) else self.value(node)

    def number(self, var: object, define: bool = False) -> int:
        known = self.order.get(var)
        if known is None:
            if not (define or self.map_free):
                return hash(var)
            known = self.order[var] = len(self.order)
        return known

    def prim(self, d: Dim, define: bool = False) -> int:
        if isinstance(d, int):
            return hash(d)
        return tir.structural_hash(d, lambda v: self.number(v, define))

    def info(self, info: StructInfo | None, define: bool = False) -> int:
        known = self.infos.get(id(info))
        if known is not None:
            return known[1]
        result = self.new_info(info, define)
        # Once all its symbols have their numbers, the hash is final.
        if all(v in self.order for v in free_symbolic_vars(info)):
            self.infos[id(info)] = (info, result)
        return result

    def new_info(self, info: StructInfo | None, define: bool) -> int:
        parts: list[object] = [type(info).__name__]
        match info:
            case TensorStructInfo():
                parts += [info.dtype, info.ndim, info.vdevice]
                dims = seen_dims(info)
                parts += [self.prim(d, define) for d in dims or ()]
                if dims is None and info.shape is not None:
                    parts.append(self.value(info.shape))
            case DTensorStructInfo():
                parts += [info.device_mesh, info.placement, self.info(info.tensor_sinfo, define)]
            case ShapeStructInfo():
                parts += [info.ndim, *(self.prim(d, define) for d in info.values or ())]
            case PrimStructInfo():
                parts += [info.dtype, None if info.value is None else self.prim(info.value, define)]
            case TupleStructInfo():
                parts += [self.info(f, define) for f in info.fields]
            case FuncStructInfo():
                parts += [info.purity, info.derive_func]
                parts += [self.info(p, True) for p in info.params or ()]
                parts.append(self.info(info.ret, define))
            case _:
                pass
        return hash(tuple(parts))

    def value(self, value: Any) -> int:
        if isinstance(value, np.generic):
            value = value.item()
        match value:
            case StructInfo():
                return self.info(value)
            case tir.PrimExpr():
                return self.prim(value)
            case Mapping():
                return hash(frozenset((k, self.value(v)) for k, v in value.items()))
            case tir.Range():
                return hash((self.value(value.min), self.value(value.extent)))
            case tuple() | list():
                return hash(tuple(map(self.value, value)))
            case np.ndarray():
                return array_hash(value)
            case float():
                return hash("nan") if math.isnan(value) else hash(value)
            case e.Expr():
                return self.expr(value)
            case tir.PrimFunc():
                return hash_of(value, self.value)
            case str() | int() | VDevice() | DummyGlobalInfo() | None:
                return hash(value)
            case _:
                return hash(type(value).__name__)

    def expr(self, root: e.Expr) -> int:
        kids = children(root)
        flat = [self.leaf(k) for k in kids]
        if None not in flat:  # as most values are
            return hash((type(root).__name__, *flat, self.node(root)))
        done: dict[int, int] = {}
        for node in post_order(root):
            kids = [done[id(k)] for k in children(node)]
            done[id(node)] = hash((type(node).__name__, *kids, self.node(node)))
        return done[id(root)]

    def leaf(self, node: e.Expr) -> int | None:
        """The hash of a leaf or of a tuple of leaves; None of anything else."""
        if type(node) in LEAF_TYPES:
            return hash((type(node).__name__, self.node(node)))
        if type(node) is e.Tuple and all([type(f) in LEAF_TYPES for f in node.fields]):
            fields = [hash((type(f).__name__, self.node(f))) for f in node.fields]
            return hash(("Tuple", *fields, self.node(node)))
        return None

    def node(self, node: e.Expr) -> int:
        """What distinguishes two nodes of one class beside their children."""
        match node:
            case e.Var():
                return self.number(node)
            case Op():
                return hash(node.name)
            case e.Call():
                name = node.op.name if isinstance(node.op, Op) else ""
                attrs = call_attrs(node)
                value = self.value(attrs) if attrs else 0
                return hash((name, value, *map(self.info, node.sinfo_args)))
            case e.Constant():
                known = self.arrays.get(id(node))
                if known is None:
                    value = hash((array_hash(node.data), self.info(node.struct_info_)))
                    known = self.arrays[id(node)] = (node, value)
                return known[1]
            case e.GlobalVar():
                return hash(node.name_hint)
            case e.ShapeExpr():
                return hash(tuple(map(self.prim, node.values)))
            case e.PrimValue():
                return self.prim(node.value)
            case e.StringImm() | e.DataTypeImm():
                return hash(node.value)
            case e.ExternFunc():
                return hash((node.global_symbol, self.info(node.struct_info_)))
            case e.TupleGetItem():
                return node.index
            case e.If():
                return hash((self.seq(node.true_branch), self.seq(node.false_branch)))
            case e.SeqExpr():
                return self.seq(node)
            case e.Function():
                return self.function(node)
            case _:
                return 0

    @nests
    def seq(self, seq: e.SeqExpr) -> int:
        return hash((*map(self.block, seq.blocks), self.expr(seq.body)))

    def block(self, block: e.BindingBlock) -> int:
        return hash((type(block).__name__, *map(self.binding, block.bindings)))

    def binding(self, b: e.Binding) -> int:
        if isinstance(b.value, e.Function):
            self.number(b.var, define=True)
        parts = [self.expr(b.value)]
        if isinstance(b, e.MatchCast):
            parts.append(self.info(b.struct_info, define=True))
        parts.append(self.info(b.var.struct_info_))
        self.number(b.var, define=True)
        return hash((type(b.var).__name__, *parts))

    @nests
    def function(self, func: e.Function) -> int:
        parts: list[int] = []
        for p in func.params:
            parts.append(self.info(p.struct_info_, define=True))
            self.number(p, define=True)
        parts += [int(func.is_pure), self.value(func.attrs), self.seq(func.body)]
        return hash((*parts, self.info(func.ret_struct_info)))

    def module(self, mod: IRModule) -> int:
        functions = frozenset(
            (g.name_hint, _Hasher(self.map_free).anything(f)) for g, f in mod.items()
        )
        return hash((functions, self.value(mod.meaning), self.value(mod.global_infos)))
