"""BundleModelParams: the weights of a function as one parameter, a tuple."""

from __future__ import annotations

from relax2xla.ir import (
    Binding,
    DataflowVar,
    Function,
    IRModule,
    TupleGetItem,
    TupleStructInfo,
    Var,
    VarBinding,
)
from relax2xla.transform.core import FunctionPass, PassContext, register
from relax2xla.transform.params.common import loaded_where_read, number_of_inputs


@register(opt_level=1)
class BundleModelParams(FunctionPass):
    """Make one tuple of the parameters behind the first ``num_input``, a function's attribute.

    ``param_tuple_name``: of the new parameter, ``model_params`` where it is None. What reads a
    weight reads a field of the tuple, under the weight's name. Without weights the tuple is empty;
    functions without the attribute stay. Raises TransformError where a function has fewer
    parameters than it says.
    """

    def __init__(self, param_tuple_name: str | None = None) -> None:
        self.param_tuple_name = param_tuple_name

    def transform_function(self, func: Function, mod: IRModule, context: PassContext) -> Function:
        inputs = number_of_inputs(func, self.info.name)
        return func if inputs is None else bundled(func, inputs, self.param_tuple_name)


def bundled(func: Function, inputs: int, name: str | None = None) -> Function:
    """``func``, whose parameters behind the first ``inputs`` are one tuple."""
    weights = {var: i for i, var in enumerate(func.params[inputs:])}
    bundle = Var(name or "model_params", TupleStructInfo([v.struct_info for v in weights]))

    def load(var: Var, dataflow: bool) -> tuple[list[Binding], Var]:
        held = (DataflowVar if dataflow else Var)(var.name_hint, var.struct_info, var.span)
        return [VarBinding(held, TupleGetItem(bundle, weights[var]), var.span)], held

    body = loaded_where_read(func.body, weights, load, once=False)
    return func.replace(params=[*func.params[:inputs], bundle], body=body)
