"""PropagateSharding: from annotations of some tensors, how all others are spread."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from relax2xla import tir
from relax2xla.errors import OpError, TransformError
from relax2xla.ir import (
    Binding,
    BindingBlock,
    Call,
    Constant,
    DataflowBlock,
    DataflowVar,
    DTensorStructInfo,
    Expr,
    ExternFunc,
    Function,
    GlobalVar,
    IRModule,
    Op,
    Placement,
    SeqExpr,
    StructInfo,
    TensorStructInfo,
    Tuple,
    TupleGetItem,
    TupleStructInfo,
    Var,
    VarBinding,
)
from relax2xla.ir.op import call_attrs, is_op
from relax2xla.ir.rewrite import Rewriter, bindings_deep, bindings_of, post_order_deep
from relax2xla.ir.struct_info import show
from relax2xla.op.distributed import redistribute
from relax2xla.op.shared.sharding import flows_of, merged, summed_of
from relax2xla.transform.core import Pass, PassContext, register
from relax2xla.transform.distributed.axes import BESIDE, Axis, AxisGraph, Cut
from relax2xla.transform.distributed.kernels import Groups
from relax2xla.transform.distributed.parts import EXTERN, spread_in

ANNOTATE, MOVE = "relax.distributed.annotate_sharding", "relax.distributed.redistribute"
_SPREAD_EXTERN = {local: whole for whole, local in EXTERN.items()}


@register(opt_level=1)
class PropagateSharding(Pass):
    """Tensors of functions with ``R.dist.annotate_sharding`` become distributed ones (DTensor).

    What an annotation says of an axis holds wherever that axis goes: in results, in operands, and
    in operands that are summed over together with it. Traits of operators tell where
    (``op/shared/sharding.py``), of loop-level functions their loops. What follows an annotation
    counts more than what comes before it. Tensors that no annotation reaches are copies on the only
    mesh. Where operands give another placement than was found, ``R.dist.redistribute`` moves the
    result. An axis that is shorter than that of the mesh stays whole. TransformError where two
    annotations say different things of an axis, and for constants that would be cut.
    """

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        new = {}
        for gvar, func in mod.items():
            if not isinstance(func, Function) or not _is_annotated(func):
                new[gvar] = func
                continue
            try:
                _want_uncalled(gvar, mod)
                made = _Spread(func, mod).made
            except TransformError as e:
                e.add_note(f"  in the function {gvar.name_hint}")
                raise
            new[GlobalVar(gvar.name_hint, made.struct_info, gvar.span)] = made
        return mod if all(g in mod for g in new) else mod.replace(new)


def _is_annotated(func: Function) -> bool:
    return any(is_op(b.value, ANNOTATE) for b in bindings_deep(func))


def _want_uncalled(gvar: GlobalVar, mod: IRModule) -> None:
    """TransformError where a function is called, with tensors that are not distributed."""
    for other, func in mod.relax_functions().items():
        if any(node is gvar for node in post_order_deep(func)):
            raise TransformError(
                f"{other.name_hint} calls it, and its parameters become distributed tensors; "
                "inline it before"
            )


def tensors_in(info: StructInfo | None) -> list[TensorStructInfo]:
    """The tensors of a value: itself, or the fields of a tuple; of any other none."""
    if isinstance(info, TensorStructInfo):
        return [info]
    if isinstance(info, TupleStructInfo):
        return [f for f in info.fields if isinstance(f, TensorStructInfo)]
    return []


@dataclass(frozen=True, slots=True)
class _Flow:
    """Where axes of a call's tensors go: (operand, axis) to (result, axis), and beside others."""

    operands: list[Expr]
    down: list[tuple[tuple[int, int], tuple[int, int]]]
    beside: list[tuple[tuple[int, int], tuple[int, int]]]


class _Spread(Rewriter):
    """One function: its axes, what is said of them, and the function that says all of it."""

    def __init__(self, func: Function, mod: IRModule) -> None:
        super().__init__()
        self.mod = mod
        self.graph = AxisGraph()
        # Of variables between bindings of the block that is being made.
        self.kind: type[Var] = Var
        self.groups: dict[tir.PrimFunc, list[list[tuple[int, int]]]] = {}
        bindings = list(bindings_of(func.body))
        for b in bindings:
            self._join(b)
        self.graph.spread()
        variables = [*func.params, *(b.var for b in bindings)]
        short = [axis for v in variables for axis in self._short(v)]
        if short:
            self.graph.keep_whole(short)
            self.graph.spread()
        self.made = self.function(func)

    # -- what goes where ---------------------------------------------------------------------
    def _join(self, b: Binding) -> None:
        value, var = b.value, b.var
        if not isinstance(b, VarBinding) or not isinstance(
            value, Call | Var | Tuple | TupleGetItem
        ):
            kind = type(value if isinstance(b, VarBinding) else b).__name__
            raise TransformError(
                f"{var.name_hint} is a {kind}; sharding goes through calls, tuples and their "
                "fields. Annotate a function without it"
            )
        match value:
            case Var():
                for i, info in enumerate(tensors_in(value.struct_info_)):
                    self._alike(value, var, info, i, i)
            case Tuple():
                for i, field in enumerate(value.fields):
                    for info in tensors_in(field.struct_info_):
                        self._alike(field, var, info, 0, i)
            case TupleGetItem():
                for info in tensors_in(var.struct_info_):
                    self._alike(value.tuple_value, var, info, value.index, 0)
            case _:
                assert isinstance(value, Call)
                self._join_call(value, var)

    def _alike(self, a: Expr, b: Expr, info: TensorStructInfo, at: int, to: int) -> None:
        for axis in range(-1, info.ndim):
            self.graph.join(Axis(a, axis, at), Axis(b, axis, to))

    def _join_call(self, call: Call, var: Var) -> None:
        if is_op(call, ANNOTATE) or is_op(call, MOVE):
            attrs = call_attrs(call)
            mesh, placement = attrs["device_mesh"], Placement.from_text(attrs["placement"])
            for at, axis in enumerate(placement.axes):
                if axis is not None:
                    self.graph.say(Axis(var, axis), Cut(mesh, at))
            self.graph.say(Axis(var, -1), Cut(mesh, -1))
            # What it leaves whole is said, too.
            rank = max((i.ndim for i in tensors_in(var.struct_info_)), default=0)
            self.graph.keep_whole(Axis(var, a) for a in range(rank) if a not in placement.axes)
        if is_op(call, MOVE):
            return
        if isinstance(call.op, GlobalVar):
            raise TransformError(f"{call}: sharding does not go into functions; inline it before")
        flow = self.flow(call)
        outputs = range(len(tensors_in(var.struct_info_)))
        for operand in flow.operands:
            for i in outputs:
                self.graph.join(Axis(operand, -1), Axis(var, -1, i))
        for (i, axis), (out, to) in flow.down:
            self.graph.join(Axis(flow.operands[i], axis), Axis(var, to, out))
        for (i, axis), (j, other) in flow.beside:
            self.graph.join(Axis(flow.operands[i], axis), Axis(flow.operands[j], other), BESIDE)

    def flow(self, call: Call) -> _Flow:
        """Where the axes of the tensors that a call takes go."""
        if is_op(call, "relax.call_tir"):
            return self._flow_of_kernel(call)
        operands = [a for a in call.args if isinstance(a.struct_info_, TensorStructInfo)]
        infos = [i for a in operands for i in tensors_in(a.struct_info_)]
        out = call.struct_info_
        if is_op(call, ANNOTATE):
            axes = range(infos[0].ndim)
            return _Flow(operands, [((0, a), (0, a)) for a in axes], [])
        if not isinstance(call.op, Op) or not isinstance(out, TensorStructInfo):
            return _Flow(operands, [], [])
        flows = flows_of(call, infos, out)
        down = [((i, a), (0, to)) for i, flow in enumerate(flows) for a, to in flow.items()]
        return _Flow(operands, down, [((0, a), (1, b)) for a, b in summed_of(call, infos)])

    def _flow_of_kernel(self, call: Call) -> _Flow:
        callee, args = call.args[0], call.args[1]
        operands = list(args.fields) if isinstance(args, Tuple) else [args]
        func = self.mod[callee] if isinstance(callee, GlobalVar) and callee in self.mod else None
        if not isinstance(func, tir.PrimFunc):
            return _Flow(operands, [], [])
        if func not in self.groups:
            self.groups[func] = Groups(func).axes()
        count = len(operands)
        down, beside = [], []
        for group in self.groups[func]:
            sources = [(i, axis) for i, axis in group if i < count]
            results = [(i - count, axis) for i, axis in group if i >= count]
            down += [(a, b) for b in results for a in sources]
            if not results:
                beside += [(a, sources[0]) for a in sources[1:]]
        return _Flow(operands, down, beside)

    def _short(self, var: Var) -> Iterator[Axis]:
        """Axes that are shorter than those of the mesh along which they would be cut."""
        for field, info in enumerate(tensors_in(var.struct_info_)):
            for axis, size in enumerate(info.dims or ()):
                cut = self.graph.cut(Axis(var, axis, field))
                if cut is not None and isinstance(size, int) and size < cut.mesh.shape[cut.axis]:
                    yield Axis(var, axis, field)

    # -- what was found ----------------------------------------------------------------------
    def spread(self, tensor: Expr, info: TensorStructInfo, field: int = 0) -> DTensorStructInfo:
        """How a tensor is spread: the value itself, or a field of it."""
        on = self.graph.cut(Axis(tensor, -1, field))
        meshes = self.graph.meshes()
        if on is None and len(meshes) > 1:
            raise TransformError(
                f"{tensor}: no annotation reaches it, and there are {len(meshes)} meshes; annotate "
                "it (R.dist.annotate_sharding)"
            )
        mesh = meshes[0] if on is None else on.mesh
        axes: list[int | None] = [None] * len(mesh.shape)
        for axis in range(info.ndim):
            cut = self.graph.cut(Axis(tensor, axis, field))
            if cut is None:
                continue
            if cut.mesh != mesh:
                raise TransformError(
                    f"{tensor} is on the mesh of devices {list(mesh.device_ids)}, and its axis "
                    f"{axis} is cut along one of {list(cut.mesh.device_ids)}; annotate it"
                )
            if axes[cut.axis] is not None:
                raise TransformError(
                    f"{tensor}: axis {cut.axis} of the mesh would cut its axis {axes[cut.axis]} "
                    f"and its axis {axis}; annotate it (R.dist.annotate_sharding)"
                )
            axes[cut.axis] = axis
        return DTensorStructInfo(info, mesh, Placement(axes))

    def spread_info(self, value: Expr, info: StructInfo) -> StructInfo:
        """The struct info of a value, with distributed tensors for tensors."""
        if isinstance(info, TensorStructInfo):
            return self.spread(value, info)
        if isinstance(info, TupleStructInfo):
            fields = enumerate(info.fields)
            return TupleStructInfo(
                [
                    self.spread(value, f, i) if isinstance(f, TensorStructInfo) else f
                    for i, f in fields
                ]
            )
        return info

    # -- the function that says so -----------------------------------------------------------
    def function(self, func: Function) -> Function:
        params: list[Var] = []
        for p in func.params:
            params.append(self.var(p, self.spread_info(p, p.struct_info)))
        blocks = [self.block(b) for b in func.body.blocks]
        body = SeqExpr(blocks, self.expr(func.body.body), func.body.span)
        return Function(params, body, is_pure=func.is_pure, attrs=func.attrs, span=func.span)

    def leaf(self, node: Expr) -> Expr:
        info = node.struct_info_
        if isinstance(node, Constant) and isinstance(info, TensorStructInfo):
            spread = self.spread(node, info)
            if any(axis is not None for axis in spread.placement.axes):
                raise TransformError(
                    f'a constant of {show(info)} would be cut as "{spread.placement}"; make it a '
                    "parameter"
                )
            return Constant(node.data, spread, node.span)
        return super().leaf(node)

    def block(self, block: BindingBlock) -> BindingBlock:
        made: list[Binding] = []
        self.kind = DataflowVar if isinstance(block, DataflowBlock) else Var
        for b in block.bindings:
            if isinstance(b.value, Call):
                self.bind_call(b.var, b.value, made)
            else:
                made.append(self.bound(b.var, self.expr(b.value)))
        return type(block)(made, block.span)

    def bound(self, var: Var, value: Expr) -> VarBinding:
        """The binding of ``value`` in the place of that of ``var``."""
        new = self.var(var, value.struct_info)
        self.env[var] = new
        return VarBinding(new, value, var.span)

    def bind_call(self, var: Var, call: Call, made: list[Binding]) -> None:
        """Bindings of a call of distributed tensors, moved to where its results belong."""
        wanted = self.spread_info(var, var.struct_info)
        value = self.expr(call.args[0]) if is_op(call, ANNOTATE) else self.call(call, wanted)
        given, expected = spread_in(value.struct_info), spread_in(wanted)
        if is_op(call, ANNOTATE) and given == expected and isinstance(value, Var):
            if isinstance(var, DataflowVar) or not isinstance(value, DataflowVar):
                self.env[var] = value
                return
        if given == expected:
            made.append(self.bound(var, value))
            return
        if isinstance(value.struct_info, TupleStructInfo):
            whole = self.inner(var, value, made)
            fields: list[Expr] = []
            for i, info in enumerate(value.struct_info.fields):
                field: Expr = self.inner(var, TupleGetItem(whole, i), made)
                if info in given and info != expected[i]:
                    field = self.inner(var, _moved(field, expected[i]), made)
                fields.append(field)
            made.append(self.bound(var, Tuple(fields)))
            return
        if not isinstance(value, Var):
            value = self.inner(var, value, made)
        made.append(self.bound(var, _moved(value, expected[0])))

    def inner(self, near: Var, value: Expr, made: list[Binding]) -> Var:
        """A variable of its own for ``value``, of the block that is being made."""
        var = self.kind("gv", value.struct_info)
        made.append(VarBinding(var, value, near.span))
        return var

    def call(self, call: Call, wanted: StructInfo) -> Expr:
        """The call of distributed tensors."""
        args = [self.expr(a) for a in call.args]
        op: Expr = call.op
        infos: Sequence[StructInfo] = call.sinfo_args
        if is_op(call, "relax.call_tir"):
            infos = self._results(call, args[1], wanted)
        elif isinstance(op, ExternFunc):
            op = ExternFunc(_SPREAD_EXTERN.get(op.global_symbol, op.global_symbol))
            infos = [wanted] if spread_in(wanted) else infos
        try:
            return Call(op, args, call.attrs, infos, call.span)
        except OpError as e:
            raise TransformError(f"{call}, of distributed tensors: {e}") from e

    def _results(self, call: Call, args: Expr, wanted: StructInfo) -> list[StructInfo]:
        """The struct info of what a loop-level function makes of distributed tensors."""
        placed = spread_in(args.struct_info)
        if not placed:
            return [wanted]
        flow = self.flow(call)
        results: list[StructInfo] = []
        for out, info in enumerate(tensors_in(call.struct_info_)):
            flows: list[dict[int, int]] = [{} for _ in placed]
            for (i, axis), (to, its) in flow.down:
                if to == out:
                    flows[i][axis] = its
            try:
                placement = merged(str(call.args[0]), placed, flows)
            except OpError as e:
                raise TransformError(f"{call}: {e}") from e
            results.append(DTensorStructInfo(info, placed[0].device_mesh, placement))
        one = isinstance(wanted, DTensorStructInfo)
        return results if one else [TupleStructInfo(results)]


def _moved(value: Expr, to: DTensorStructInfo) -> Expr:
    return redistribute(value, to.device_mesh, str(to.placement))
