"""LazyGetInput, LazySetOutput: weights are asked for when they are needed, and results handed over
as soon as they are there, by functions that are arguments.
"""

from __future__ import annotations

from relax2xla.analysis.struct_infos import erase_to_well_defined
from relax2xla.ir import (
    Binding,
    BindingBlock,
    Call,
    DataflowBlock,
    Expr,
    FuncStructInfo,
    Function,
    IRModule,
    MatchCast,
    ObjectStructInfo,
    PrimStructInfo,
    PrimValue,
    SeqExpr,
    StringImm,
    Tuple,
    TupleStructInfo,
    Var,
    VarBinding,
)
from relax2xla.ir.lattice import definable_vars
from relax2xla.transform.core import FunctionPass, PassContext, register
from relax2xla.transform.params.common import loaded_where_read, number_of_inputs

NOTHING = TupleStructInfo([])


@register()
class LazyGetInput(FunctionPass):
    """Replace the weights of public functions by a parameter ``fget_param(index, name)``.

    Weights are the parameters behind the first ``num_input`` (0 without the attribute). One is
    asked for before the first value that reads it, and not at all where none does. So a function
    that prepares weights need not hold all of them at once.
    """

    def transform_function(self, func: Function, mod: IRModule, context: PassContext) -> Function:
        if func.attrs.get("global_symbol") is None:
            return func
        inputs = number_of_inputs(func, self.info.name) or 0
        weights = {var: i for i, var in enumerate(func.params[inputs:])}
        get = Var(
            "fget_param",
            FuncStructInfo([PrimStructInfo("int64"), ObjectStructInfo()], ObjectStructInfo()),
        )

        def load(var: Var, dataflow: bool) -> tuple[list[Binding], Var]:
            call = Call(get, [PrimValue(weights[var]), StringImm(var.name_hint)])
            untyped = Var(f"{var.name_hint}_untyped", ObjectStructInfo(), var.span)
            held = Var(var.name_hint, var.struct_info, var.span)
            cast = MatchCast(held, untyped, var.struct_info, var.span)
            return [VarBinding(untyped, call, var.span), cast], held

        params = [*func.params[:inputs], get]
        seen = {v: v for p in params for v in definable_vars(p.struct_info)}
        return Function(
            params,
            loaded_where_read(func.body, weights, load, once=True),
            erase_to_well_defined(func.ret_struct_info, seen),
            func.is_pure,
            {**func.attrs, "num_input": inputs + 1},
            func.span,
        )


@register()
class LazySetOutput(FunctionPass):
    """Make public functions call a parameter ``fset_output(index, value)`` for each result.

    The function is impure then and gives an empty tuple. The parameter comes behind the first
    ``num_input``, or last without that attribute. Results are the fields of the tuple that the
    function ends with; a variable there is one, whatever it holds. One is handed over as soon as it
    is bound (of a dataflow block, behind the block), a parameter at the start, a constant at the
    end.
    """

    def transform_function(self, func: Function, mod: IRModule, context: PassContext) -> Function:
        if func.attrs.get("global_symbol") is None:
            return func
        inputs = number_of_inputs(func, self.info.name)
        put = Var(
            "fset_output",
            FuncStructInfo([PrimStructInfo("int64"), ObjectStructInfo()], NOTHING, purity=False),
        )
        result = func.body.body
        places: dict[Var, list[int]] = {}
        rest: list[Binding] = []

        def hand_over(index: int, value: Expr) -> Binding:
            return VarBinding(Var("_void", NOTHING), Call(put, [PrimValue(index), value]))

        for i, value in enumerate(result.fields if isinstance(result, Tuple) else [result]):
            if isinstance(value, Var):
                places.setdefault(value, []).append(i)
            else:
                rest.append(hand_over(i, value))

        def handed(var: Var) -> list[Binding]:
            return [hand_over(i, var) for i in places.get(var, ())]

        blocks = [BindingBlock([x for p in func.params for x in handed(p)])]
        for block in func.body.blocks:
            if isinstance(block, DataflowBlock):
                behind = BindingBlock([x for b in block.bindings for x in handed(b.var)])
                blocks += [block, behind]
            else:
                bindings = [x for b in block.bindings for x in (b, *handed(b.var))]
                blocks.append(BindingBlock(bindings, block.span))
        body = SeqExpr(joined([*blocks, BindingBlock(rest)]), Tuple([]), func.body.span)
        params, attrs = list(func.params), dict(func.attrs)
        if inputs is None:
            params.append(put)
        else:
            params.insert(inputs, put)
            attrs["num_input"] = inputs + 1
        return Function(params, body, NOTHING, False, attrs, func.span)


def joined(blocks: list[BindingBlock]) -> list[BindingBlock]:
    """``blocks`` without those that are empty; ordinary ones that meet are one."""
    out: list[BindingBlock] = []
    for block in blocks:
        if not block.bindings:
            continue
        plain = not isinstance(block, DataflowBlock)
        if out and plain and not isinstance(out[-1], DataflowBlock):
            out[-1] = BindingBlock([*out[-1].bindings, *block.bindings], out[-1].span)
        else:
            out.append(block)
    return out
