"""Loop-level functions as the operators that they were made of.

``LegalizeOps(to="kernels")`` makes loops of an operator, and FuseTIR one kernel of several: a
program then sees, changes and schedules loops. What it has not changed is compiled as what it was,
for an operator says more to the passes of ``build``, and to XLA, than its loops do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from relax2xla.analysis.struct_infos import free_symbolic_vars
from relax2xla.analysis.variables import all_global_vars, free_vars
from relax2xla.ir import (
    Call,
    DataflowBlock,
    Expr,
    Function,
    GlobalVar,
    IRModule,
    Op,
    SeqExpr,
    StructInfo,
    TensorStructInfo,
    Tuple,
    TupleStructInfo,
    Var,
    VarBinding,
)
from relax2xla.ir.lattice import Mismatch, SymMap, substitute, unify
from relax2xla.ir.rewrite import Rewriter
from relax2xla.op.intrinsic import call_tir_op
from relax2xla.transform.core import Pass, PassContext, register
from relax2xla.transform.lower.kernel_rows import rows_for
from relax2xla.transform.lower.kernels import prim_funcs
from relax2xla.transform.normal.inline import inline_calls

Origins = Mapping[str, Function]
"""By the name of a loop-level function, the Relax function that it was made of."""


def with_origins(mod: IRModule, origins: Mapping[GlobalVar, Function]) -> IRModule:
    """``mod`` with what its loop-level functions were made of."""
    kernels = prim_funcs(mod).items()
    made = {g: f.with_origin(origins[g]) for g, f in kernels if g in origins}
    return mod.replace({**mod.functions, **made}) if made else mod


def origin_of(call: Call, tensors: Sequence[Expr]) -> Function | None:
    """``call`` of an operator as a function of ``tensors``, what a kernel takes in its place.

    None where that is not all that it reads, and where the operator has no rows. The places of a
    tensor that is several operands are in the order of these.
    """
    if not isinstance(call.op, Op) or call.op.lowering is None or not call.op.pure:
        return None
    params = [Var(f"p{n}", t.struct_info) for n, t in enumerate(tensors)]
    # Constants, too, are operands, which other calls of the kernel have others of.
    places: dict[int, list[Var]] = {}
    for t, p in zip(tensors, params, strict=True):
        places.setdefault(id(t), []).append(p)

    def over(arg: Expr) -> Expr:
        if isinstance(arg, Tuple):
            return Tuple([over(f) for f in arg.fields])
        known = places.get(id(arg), [arg])
        return known.pop(0) if len(known) > 1 else known[0]

    made = Call(call.op, [over(a) for a in call.args], call.attrs, call.sinfo_args)
    alone = all(len(left) == 1 for left in places.values())
    return _function(params, SeqExpr([], made)) if alone else None


def _function(params: Sequence[Var], body: SeqExpr) -> Function | None:
    """A function of tensors that knows all that it reads; None where there is more."""
    if not isinstance(body.body, Var):
        result = Var("gv", body.body.struct_info)
        last = DataflowBlock([VarBinding(result, body.body)])
        body = SeqExpr([*body.blocks, last], result)
    made = Function(params, body, body.body.struct_info)
    if not all(isinstance(p.struct_info, TensorStructInfo) for p in params):
        return None
    plain = all(_is_plain(i) for i in (*(p.struct_info for p in params), made.ret_struct_info))
    return made if plain and not free_vars(made) and not free_symbolic_vars(made) else None


def _is_plain(info: StructInfo) -> bool:
    """Whether it is of tensors of known shapes, on whatever device the program runs."""
    if isinstance(info, TupleStructInfo):
        return all(map(_is_plain, info.fields))
    return isinstance(info, TensorStructInfo) and info.dims is not None and info.vdevice is None


def origins_in(mod: IRModule) -> Origins:
    """What the loop-level functions of ``mod`` were made of, where that is known.

    Not of those for whose name a program has registered rows, which take their place.
    """
    known = {g.name_hint: f.origin for g, f in prim_funcs(mod).items() if f.origin is not None}
    return {name: origin for name, origin in known.items() if rows_for(name) is None}


def restored(func: Function, origins: Origins) -> Function:
    """``func`` with operators in the place of calls of kernels that were made of them."""

    def called(node: Expr) -> Expr | None:
        if not isinstance(node, Call) or node.op is not call_tir_op:
            return None
        name, args, *numbers = node.args
        if numbers or not isinstance(name, GlobalVar) or not isinstance(args, Tuple):
            return None
        origin = origins.get(name.name_hint)
        if origin is None or not _fits(origin, node, args.fields):
            return None
        callee = GlobalVar(name.name_hint, origin.struct_info)
        return Call(callee, args.fields, span=node.span, struct_info=node.struct_info)

    made = Rewriter(rule=called, leaves=False).function(func)
    return func if made is func else inline_calls(made, origins, nested=False)


def _fits(origin: Function, call: Call, args: Sequence[Expr]) -> bool:
    """Whether ``origin`` takes these arguments, and gives what the call says."""
    env: SymMap = {}
    if len(args) != len(origin.params):
        return False
    try:
        for p, a in zip(origin.params, args, strict=True):
            unify(p.struct_info, a.struct_info, env)
    except Mismatch:
        return False
    return substitute(origin.ret_struct_info, env) == call.struct_info


def whole_origin(func: Function, origins: Origins) -> Function | None:
    """``func``, whose kernels become one, as operators; None where that is not known of each."""
    made = restored(func, origins)
    return None if all_global_vars(made) else _function(made.params, made.body)


@register()
class RestoreOperators(Pass):
    """Make calls of loop-level functions the operators again that these were made of.

    Of what ``LegalizeOps(to="kernels")`` and FuseTIR have made, and nobody has changed since.
    """

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        origins = origins_in(mod)
        if not origins:
            return mod
        new = {g: restored(f, origins) for g, f in mod.relax_functions().items()}
        return mod.replace({**mod.functions, **new})
