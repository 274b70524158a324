"""ForEachWorker: functions of distributed tensors as what each worker runs on its own parts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from relax2xla.errors import OpError, TransformError
from relax2xla.ir import (
    Binding,
    BindingBlock,
    Call,
    Constant,
    DTensorStructInfo,
    Expr,
    ExternFunc,
    Function,
    GlobalVar,
    If,
    IRModule,
    Op,
    SeqExpr,
    ShapeExpr,
    StructInfo,
    TensorStructInfo,
    Tuple,
    TupleGetItem,
    TupleStructInfo,
    Var,
    VarBinding,
)
from relax2xla.ir.op import whole_operand
from relax2xla.ir.rewrite import Rewriter, joined
from relax2xla.ir.struct_info import show
from relax2xla.op.ccl import broadcast_from_worker0, scatter_from_worker0
from relax2xla.op.shared.sharding import flows_of, says_flow
from relax2xla.transform.core import Pass, PassContext, register
from relax2xla.transform.distributed.parts import EXTERN, part_dims, part_of, spread_in, whole_of


@register(opt_level=1)
class ForEachWorker(Pass):
    """Functions of distributed tensors become what each worker runs on its parts (``R.ccl``).

    Parameters come whole and are taken from worker 0: copies by ``broadcast_from_worker0``, parts
    by ``scatter_from_worker0``. Within, a tensor is a worker's part of it, and a result is what
    each worker has of it. TVM's name is ``distributed.transform.LowerDistIR``. Calls of loop-level
    functions must be of parts already (LowerGlobalViewToLocalView), moves must be legal
    (LegalizeRedistribute); TransformError for operators that would need other workers' parts, and
    for meshes of more than one axis.
    """

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        functions = mod.relax_functions()
        concerned = [
            g for g, f in functions.items() if any(spread_in(p.struct_info) for p in f.params)
        ]
        if not concerned:
            return mod
        new = {}
        for gvar, func in mod.items():
            if gvar not in concerned:
                new[gvar] = func
                continue
            assert isinstance(func, Function)
            try:
                made = _Worker().function(func)
            except TransformError as e:
                e.add_note(f"  in the function {gvar.name_hint}")
                raise
            new[GlobalVar(gvar.name_hint, made.struct_info, gvar.span)] = made
        return mod.replace(new)


class _Worker(Rewriter):
    """One function; values are what a worker has of them."""

    def __init__(self) -> None:
        super().__init__()
        # Fields of parameters that are tuples, by the parameter.
        self.fields: dict[Expr, list[Expr]] = {}

    def function(self, func: Function) -> Function:
        params: list[Var] = []
        head: list[Binding] = []
        for p in func.params:
            whole = (
                Var(p.name_hint, whole_of(p.struct_info), p.span) if spread_in(p.struct_info) else p
            )
            params.append(whole)
            self.taken(p, whole, head)
        blocks = [BindingBlock(head), *(self.block(b) for b in func.body.blocks)]
        body = SeqExpr(joined(blocks), self.expr(func.body.body), func.body.span)
        return Function(params, body, is_pure=func.is_pure, attrs=func.attrs, span=func.span)

    def taken(self, param: Var, whole: Var, head: list[Binding]) -> None:
        """Bindings of what this worker has of a parameter."""
        info = param.struct_info
        if isinstance(info, DTensorStructInfo):
            self.env[param] = _bound(head, _from_worker_0(whole, info))
        elif spread_in(info) and isinstance(info, TupleStructInfo):
            fields: list[Expr] = []
            for i, field in enumerate(info.fields):
                own = _bound(head, TupleGetItem(whole, i))
                if isinstance(field, DTensorStructInfo):
                    own = _bound(head, _from_worker_0(own, field))
                elif spread_in(field):
                    raise TransformError(
                        f"the parameter {param.name_hint} is {show(info)}; a tuple of tensors was "
                        "expected, none within it"
                    )
                fields.append(own)
            self.env[param] = Tuple(fields)
            self.fields[param] = fields

    def block(self, block: BindingBlock) -> BindingBlock:
        made = []
        for b in block.bindings:
            if isinstance(b.value, TupleGetItem) and b.value.tuple_value in self.fields:
                self.env[b.var] = self.fields[b.value.tuple_value][b.value.index]
            else:
                made.append(self.binding(b))
        return type(block)(made, block.span)

    def binding(self, b: Binding) -> Binding:
        info = b.var.struct_info
        if isinstance(b.value, If | Function) or not isinstance(b, VarBinding):
            raise TransformError(
                f"{b.var.name_hint}: a worker's part is known of calls, tuples and their fields; "
                f"this is a {type(b if not isinstance(b, VarBinding) else b.value).__name__}"
            )
        value = self.call(b.value, info) if isinstance(b.value, Call) else self.expr(b.value)
        part = part_of(info)
        if spread_in(info) and value.struct_info != part:
            raise TransformError(
                f"{b.value}: a worker's part is {show(part)}, and of the operands' parts is "
                f"computed {show(value.struct_info)}"
            )
        return VarBinding(self.var(b.var, part), value, b.span)

    def call(self, call: Call, result: StructInfo) -> Call:
        """The same of a worker's parts of the operands."""
        op: Expr = call.op
        if isinstance(op, Op):
            op = _local_operator(call, op, result)
        elif isinstance(op, ExternFunc):
            op = ExternFunc(EXTERN.get(op.global_symbol, op.global_symbol))
        elif any(spread_in(a.struct_info) for a in call.args):
            raise TransformError(
                f"{call}: calls between functions of distributed tensors; inline them before"
            )
        args = [_local_shape(self.expr(a), result) for a in call.args]
        infos = [part_of(i) for i in call.sinfo_args]
        try:
            return Call(op, args, call.attrs, infos, call.span)
        except OpError as e:
            raise TransformError(f"{call}, of a worker's parts of its operands: {e}") from e

    def leaf(self, node: Expr) -> Expr:
        info = node.struct_info_
        if isinstance(node, Constant) and isinstance(info, DTensorStructInfo):
            if any(axis is not None for axis in info.placement.axes):
                raise TransformError(
                    f'a constant is cut as "{info.placement}"; make it a parameter, or state '
                    "copies of it"
                )
            return Constant(node.data, info.tensor_sinfo, node.span)
        return super().leaf(node)


def _bound(bindings: list[Binding], value: Expr) -> Var:
    var = Var("gv", value.struct_info)
    bindings.append(VarBinding(var, value))
    return var


def _from_worker_0(whole: Var, info: DTensorStructInfo) -> Expr:
    """What a worker has of a tensor that worker 0 has."""
    axes, sizes = info.placement.axes, info.device_mesh.shape
    if len(sizes) != 1:
        raise TransformError(
            f"{whole.name_hint} is {show(info)}; workers stand in a row, a mesh of one axis. Build "
            "the program with build(mod, mesh=...), where XLA spreads tensors over others"
        )
    part_dims(info)  # Refuses parts of different sizes.
    if axes[0] is None:
        return broadcast_from_worker0(whole)
    return scatter_from_worker0(whole, sizes[0], axes[0])


def _local_shape(arg: Expr, result: StructInfo) -> Expr:
    """A shape that says the result's: that of a worker's part."""
    if isinstance(arg, ShapeExpr) and isinstance(result, DTensorStructInfo):
        if arg.values == result.tensor_sinfo.dims:
            return ShapeExpr(part_dims(result), arg.span)
    return arg


_STEPS: Final[Mapping[str, str]] = {
    "relax.call_tir": "LowerGlobalViewToLocalView",
    "relax.call_tir_inplace": "CallTIRRewrite, then LowerGlobalViewToLocalView",
    "relax.call_tir_with_grad": "LowerGlobalViewToLocalView, without gradients (R.call_tir),",
    "relax.distributed.redistribute": "LegalizeRedistribute",
    "relax.distributed.annotate_sharding": "PropagateSharding",
}


def _local_operator(call: Call, op: Op[...], result: StructInfo) -> Op[...]:
    """The operator for a worker's parts, where that computes a worker's part of the result."""
    if op.name == "relax.distributed.call_tir_local_view":
        return Op.get("relax.call_tir")
    placed = [i for a in call.args for i in spread_in(a.struct_info)]
    if (placed or spread_in(result)) and op.name in _STEPS:
        raise TransformError(f"{call}: it is of whole tensors; run {_STEPS[op.name]} before")
    if placed and isinstance(result, DTensorStructInfo) and says_flow(op):
        _want_local(call, placed, result)
    return op


def _want_local(call: Call, placed: list[DTensorStructInfo], result: DTensorStructInfo) -> None:
    """Raises TransformError unless parts of operands give the part of the result."""
    plain = Call(call.op, [whole_operand(a) for a in call.args], call.attrs)
    out = plain.struct_info
    assert isinstance(out, TensorStructInfo)
    flows = flows_of(plain, [p.tensor_sinfo for p in placed], out)
    for at, cut in enumerate(result.placement.axes):
        for info, flow in zip(placed, flows, strict=True):
            own = info.placement.axes[at]
            if own is None and cut not in flow.values():
                continue
            if own is None or cut is None or flow.get(own) != cut:
                raise TransformError(
                    f'{call}: a worker\'s part of the result ("{result.placement}") needs more of '
                    f'an operand than its part of it ("{info.placement}"). Make it a loop-level '
                    "function (LegalizeOps of TVM) and run LowerGlobalViewToLocalView before"
                )
