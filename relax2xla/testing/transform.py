"""Passes and analyses for tests, under the names of ``tvm.relax.testing.transform``."""

from __future__ import annotations

from collections.abc import Sequence

from relax2xla.analysis.dataflow_inplace import (
    dataflow_alias_analysis as dataflow_alias_analysis,
)
from relax2xla.analysis.dataflow_inplace import (
    dataflow_inplace_analysis as dataflow_inplace_analysis,
)
from relax2xla.analysis.dataflow_inplace import (
    dataflow_liveness_analysis as dataflow_liveness_analysis,
)
from relax2xla.builder import BlockBuilder
from relax2xla.expr_functor import PyExprMutator
from relax2xla.ir import Call, Expr, Function, IRModule
from relax2xla.transform import Pass, PassContext, function_pass
from relax2xla.transform.fusion.inplace import inplace_call


def ApplyEmptyCppMutator() -> Pass:
    """A pass that walks each function with a mutator that changes nothing, which normalises it."""

    @function_pass(opt_level=0, name="ApplyEmptyCppMutator")
    def walk(func: Function, mod: IRModule, context: PassContext) -> Expr:
        return PyExprMutator(mod).visit_expr(func)

    return walk


def dataflow_single_inplace_call(
    mod: IRModule, call: Call, inplace_indices: Sequence[int]
) -> tuple[Call, IRModule]:
    """``call`` as one of a kernel that writes into that operand, and ``mod`` with the kernel."""
    builder = BlockBuilder(mod)
    made = inplace_call(builder, call, list(inplace_indices))
    return made, builder.get()
