"""LowerGlobalViewToLocalView: loop-level functions of whole tensors as those of parts."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from relax2xla import tir
from relax2xla.builder import BlockBuilder
from relax2xla.errors import TransformError
from relax2xla.ir import (
    Binding,
    BindingBlock,
    Call,
    DataflowBlock,
    DataflowVar,
    DTensorStructInfo,
    Function,
    GlobalVar,
    IRModule,
    Op,
    Tuple,
    TupleStructInfo,
    Var,
    VarBinding,
)
from relax2xla.ir.op import is_op
from relax2xla.ir.rewrite import Rewriter
from relax2xla.ir.struct_info import show
from relax2xla.op.ccl import allreduce
from relax2xla.tir import stmt as s
from relax2xla.tir.arith.iterators import divides
from relax2xla.tir.buffer import Buffer, BufferLoad, BufferRegion
from relax2xla.tir.kernel.renew import renewed
from relax2xla.tir.stmt_functor import Rewriter as KernelRewriter
from relax2xla.tir.stmt_functor import post_order_visit
from relax2xla.transform.core import Pass, PassContext, register
from relax2xla.transform.distributed.kernels import Groups
from relax2xla.transform.distributed.parts import spread_in

# How what workers have summed up apart is joined, and with what the sum begins (None: anything).
_JOINED: Final[dict[type[tir.PrimExpr], tuple[str, int | None]]] = {
    tir.Add: ("sum", 0),
    tir.Mul: ("prod", 1),
    tir.Min: ("min", None),
    tir.Max: ("max", None),
}


@register(opt_level=1)
class LowerGlobalViewToLocalView(Pass):
    """Calls of loop-level functions of distributed tensors become calls of what parts need.

    Before: ``R.dist.call_tir(cls.matmul, (x, w), ...)`` of tensors that are cut. After:
    ``R.dist.call_tir_local_view(cls.matmul1, (x, w), ...)``, whose loops along axes that are cut
    run over a worker's part. Where workers sum up apart over such a loop, ``R.ccl.allreduce`` joins
    what they have. Functions of whole tensors stay in the module. TransformError where a loop that
    would be cut says more than a place on the axis, and where operands that are used together are
    cut differently.
    """

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        builder = BlockBuilder(mod)
        new: dict[GlobalVar, Function] = {}
        for gvar, func in mod.relax_functions().items():
            if not any(spread_in(p.struct_info) for p in func.params):
                continue
            try:
                made = _LocalViews(mod, builder).function(func)
            except TransformError as e:
                e.add_note(f"  in the function {gvar.name_hint}")
                raise
            if made is not func:
                new[gvar] = made
        return mod.replace({**builder.get().functions, **new}) if new else mod


class _LocalViews(Rewriter):
    """One function; the loop-level functions of parts join the module of ``builder``."""

    def __init__(self, mod: IRModule, builder: BlockBuilder) -> None:
        super().__init__()
        self.mod, self.builder = mod, builder

    def block(self, block: BindingBlock) -> BindingBlock:
        made: list[Binding] = []
        for b in block.bindings:
            if isinstance(b.value, Call) and is_op(b.value, "relax.call_tir"):
                inner = DataflowVar if isinstance(block, DataflowBlock) else Var
                made += self.local(b.var, b.value, inner)
            else:
                made.append(self.binding(b))
        same = len(made) == len(block.bindings) and all(map(operator.is_, made, block.bindings))
        return block if same else type(block)(made, block.span)

    def local(self, var: Var, call: Call, inner: type[Var]) -> list[Binding]:
        """Bindings of a call on a worker's parts; ``inner``: the kind of variables between them."""
        callee, args = call.args[0], call.args[1]
        func = self.mod[callee] if isinstance(callee, GlobalVar) and callee in self.mod else None
        assert isinstance(callee, GlobalVar)
        fields = args.fields if isinstance(args, Tuple) else (args,)
        infos = [f.struct_info for f in fields]
        results = var.struct_info
        infos += results.fields if isinstance(results, TupleStructInfo) else [results]
        placed = [i for i in infos if isinstance(i, DTensorStructInfo)]
        if len(placed) != len(infos) or not isinstance(func, tir.PrimFunc):
            raise TransformError(
                f"{call}: a loop-level function of the module and distributed tensors were expected"
            )
        try:
            kernel, joined = local_kernel(func, placed, len(fields))
        except TransformError as e:
            e.add_note(f"  in the call {call}")
            raise
        gvar = callee if kernel is func else self.builder.add_func(kernel, callee.name_hint)
        local_view = Op.get("relax.distributed.call_tir_local_view")
        made = Call(local_view, [gvar, *call.args[1:]], call.attrs, call.sinfo_args, call.span)
        if joined is None:
            return [VarBinding(var, made, var.span)]
        apart = inner("gv", made.struct_info)
        whole = allreduce(apart, joined, False)
        return [VarBinding(apart, made, var.span), VarBinding(var, whole, var.span)]


def local_kernel(
    func: tir.PrimFunc, placed: Sequence[DTensorStructInfo], operands: int
) -> tuple[tir.PrimFunc, str | None]:
    """``func`` of a worker's parts, and how results of all workers are joined (None: not at all).

    ``placed``: how its tensors are spread, results after ``operands`` operands.
    """
    if all(axis is None for info in placed for axis in info.placement.axes):
        return func, None
    own = renewed(func)
    cuts = _Cuts(own, placed)
    joined = cuts.joined(operands)
    buffers = {p: cuts.buffer(b) for p, b in own.buffer_map.items()}
    body = cuts.stmt(own.body)
    return tir.PrimFunc(own.params, body, own.ret_type, buffers, own.attrs), joined


class _Cuts(KernelRewriter):
    """A loop-level function, whose loops along what is cut run over a part."""

    def __init__(self, func: tir.PrimFunc, placed: Sequence[DTensorStructInfo]) -> None:
        super().__init__(lambda e: None)
        self.func, self.groups = func, Groups(func)
        # By group: the axis of the mesh along which it is cut, and into how many parts.
        self.cut: dict[int, tuple[int, int]] = {}
        known = self.groups.cuttable()
        buffers = self.groups.buffers
        if len(buffers) != len(placed):
            raise TransformError(
                f"it has {len(buffers)} buffers, and is called with {len(placed)} tensors"
            )
        for buffer, info in zip(buffers, placed, strict=True):
            for at, axis in enumerate(info.placement.axes):
                if axis is None:
                    continue
                group = self.groups.group_of((buffer, axis))
                if group not in known:
                    raise TransformError(
                        f"axis {axis} of {buffer.name} is cut, and cannot be: the loop along it "
                        "says more than a place on the axis, or does not go along all of it. Leave "
                        "the axis whole (R.dist.annotate_sharding)"
                    )
                if self.cut.setdefault(group, (at, info.device_mesh.shape[at]))[0] != at:
                    raise TransformError(
                        f"axis {axis} of {buffer.name} is cut along another axis of the mesh than "
                        "what goes along with it"
                    )
        for buffer, info in zip(buffers, placed, strict=True):
            for axis in range(buffer.ndim):
                at = self.cut.get(self.groups.group_of((buffer, axis)))
                if at is not None and info.placement.axes[at[0]] != axis:
                    raise TransformError(
                        f"{buffer.name} is {show(info)}, and its axis {axis} goes along with axes "
                        "that are cut; cut it, too, or none of them"
                    )
        self._want_parts()

    def _want_parts(self) -> None:
        """Raises TransformError where loops, or what they say, have no equal parts."""
        for var, extent in self.groups.extents.items():
            count = self.count(var)
            if count == 1:
                continue
            part = tir.as_dim(self.part(extent, count))
            periods = [p for p in self.groups.periods.get(var, ()) if not divides(p, part)]
            if not divides(count, extent) or periods:
                raise TransformError(
                    f"the loop over {var.name}, of {extent} steps, has no {count} equal parts"
                    + "".join(f" that are multiples of {p}" for p in periods[:1])
                )

    def count(self, node: tir.Var | tuple[Buffer, int]) -> int:
        """Into how many parts a loop or an axis is cut."""
        return self.cut.get(self.groups.group_of(node), (0, 1))[1]

    def part(self, size: tir.Dim, count: int) -> tir.Dim:
        """The size of one of ``count`` parts, of the dtype of ``size``."""
        if count == 1:
            return size
        if isinstance(size, int):
            return size // count
        if isinstance(size, tir.IntImm):
            return tir.IntImm(size.dtype, size.value // count)
        return tir.as_dim(tir.simplify(tir.floordiv(size, count)))

    # -- sums over what is cut -----------------------------------------------------------------
    def joined(self, operands: int) -> str | None:
        """How results of workers that sum up apart are joined; None where none does."""
        found: set[str] = set()
        results = self.groups.buffers[operands:]
        todo: list[tuple[s.Stmt, tuple[tir.Var, ...], s.Stmt | None]] = [(self.func.body, (), None)]
        while todo:
            node, around, init = todo.pop()
            match node:
                case s.For():
                    around = (*around, node.loop_var)
                    todo.append((node.body, around, init))
                case s.BlockRealize():
                    around = (*around, *(axis.var for axis in node.block.iter_vars))
                    todo.append((node.block.body, around, node.block.init))
                case s.BufferStore():
                    own = {self.groups.group_of((node.buffer, a)) for a in range(node.buffer.ndim)}
                    over = {self.groups.group_of(v) for v in around if self.count(v) > 1} - own
                    if over:
                        found.add(self._summed(node, init, results))
                case _:
                    todo += [(child, around, init) for child in s.children(node)]
        return found.pop() if found else None

    def _summed(self, store: s.BufferStore, init: s.Stmt | None, results: list[Buffer]) -> str:
        """How what ``store`` sums up apart is joined."""
        value, buffer = store.value, store.buffer
        how, start = _JOINED.get(type(value), (None, None))
        uses: list[object] = []
        post_order_visit(
            self.func,
            lambda e: (
                uses.append(e)
                if isinstance(e, BufferLoad | s.BufferStore) and e.buffer is buffer
                else None
            ),
        )
        old = [
            e
            for e in (getattr(value, "a", None), getattr(value, "b", None))
            if isinstance(e, BufferLoad) and e.buffer is buffer
        ]
        starts = isinstance(init, s.BufferStore) and init.buffer is buffer
        if isinstance(init, s.BufferStore) and start is not None:
            starts = starts and getattr(init.value, "value", None) == start
        if (
            how is None
            or len(results) != 1
            or buffer is not results[0]
            or len(old) != 1
            or not all(map(tir.structural_equal, old[0].indices, store.indices))
            or not starts
            or len(uses) != 3
        ):
            raise TransformError(
                f"workers would sum up {buffer.name} apart, over a loop that is cut. It must be "
                "the only result, begun by T.init with 0 of a sum (1 of a product), and used "
                "nowhere else; split the function, or leave the axis whole"
            )
        return how

    # -- the function of parts -----------------------------------------------------------------
    def buffer(self, buffer: Buffer) -> Buffer:
        known = self.buffers.get(id(buffer))
        if known is not None:
            return known[1]
        counts = [self.count((buffer, axis)) for axis in range(buffer.ndim)]
        made = buffer
        if any(count > 1 for count in counts):
            if buffer.strides:
                raise TransformError(f"{buffer.name} has strides; a part of it has none of its own")
            shape = tuple(map(self.part, buffer.shape, counts))
            made = replace(buffer, shape=shape)
        self.buffers[id(buffer)] = (buffer, made)
        return made

    def own(self, node: s.Stmt) -> s.Stmt:
        made = super().own(node)
        if isinstance(made, s.For) and self.count(made.loop_var) > 1:
            return replace(made, extent=self.part(made.extent, self.count(made.loop_var)))
        return made

    def _value(self, value: Any) -> Any:
        if isinstance(value, s.IterVar) and value.dom is not None and self.count(value.var) > 1:
            extent = self.part(value.dom.extent, self.count(value.var))
            return replace(value, dom=tir.Range.from_min_extent(value.dom.min, extent))
        if isinstance(value, BufferRegion):
            region = tuple(
                tir.Range.from_min_extent(r.min, self.part(r.extent, self.count((value.buffer, a))))
                if tir.can_prove_equal(r.extent, value.buffer.shape[a])
                else r
                for a, r in enumerate(value.region)
            )
            return BufferRegion(self.buffer(value.buffer), region)
        return super()._value(value)
