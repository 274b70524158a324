"""DataflowUseInplaceCalls: operators of dataflow blocks as kernels that write into an operand.

Source of the semantics: ``DataflowUseInplaceCalls`` of TVM v0.20.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from relax2xla import te, tir, topi
from relax2xla.analysis.dataflow_inplace import dataflow_inplace_analysis
from relax2xla.builder import BlockBuilder
from relax2xla.errors import TransformError
from relax2xla.ir import (
    Binding,
    BindingBlock,
    Call,
    DataflowBlock,
    Expr,
    IRModule,
    Op,
    TensorStructInfo,
    Tuple,
    Var,
)
from relax2xla.ir.rewrite import Rewriter
from relax2xla.op.intrinsic import call_tir_inplace
from relax2xla.te.from_relax import tir_call
from relax2xla.tir.stmt_functor import Rewriter as LoopRewriter
from relax2xla.transform.core import Pass, PassContext, register

KERNELS: Final[Mapping[str, Callable[..., te.Tensor]]] = {
    "relax.add": topi.add,
    "relax.subtract": topi.subtract,
    "relax.multiply": topi.multiply,
    "relax.divide": topi.divide,
    "relax.nn.relu": topi.nn.relu,
    "relax.nn.silu": lambda x: topi.multiply(x, topi.sigmoid(x)),
}


@register()
class DataflowUseInplaceCalls(Pass):
    """Make calls of kernels that write into an operand of operators whose operand is free then.

    Of operators in dataflow blocks, those that ``analysis.dataflow_inplace`` finds, with an operand
    of exactly the result's shape that nothing reads any more: sums, differences, products,
    quotients, relu, silu. The kernels are private functions, ``add_inplace`` and so on. It is for
    code generators and programs that ask for it: XLA gives results the memory of values that
    nothing needs any more in every program, with or without this.
    """

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        builder = BlockBuilder(mod)
        rewriter = _Inplace(mod, builder)
        made = {g: rewriter.function(f) for g, f in mod.relax_functions().items()}
        changed = {g: f for g, f in made.items() if f is not mod[g]}
        for gvar, func in changed.items():
            builder.update_func(gvar, func)
        return builder.get() if changed else mod


class _Inplace(Rewriter):
    """Rewrites functions of ``mod``; kernels join the module of ``builder``."""

    def __init__(self, mod: IRModule, builder: BlockBuilder) -> None:
        super().__init__()
        self.mod, self.builder = mod, builder
        self._places: dict[Var, int] = {}
        # Of the value that is bound next.
        self._place: int | None = None
        # Calls that have been made, by operator, operands' struct info and place.
        self._made: dict[tuple[object, ...], Call] = {}

    def block(self, block: BindingBlock) -> BindingBlock:
        if isinstance(block, DataflowBlock):
            # Parameters are the caller's, so they are no candidates.
            _, exact = dataflow_inplace_analysis(block, (), self.mod)
            self._places.update((block.bindings[at].var, max(free)) for at, free in exact)
        return super().block(block)

    def binding(self, b: Binding) -> Binding:
        self._place = self._places.get(b.var)
        return super().binding(b)

    def expr(self, root: Expr) -> Expr:
        place, self._place = self._place, None
        made = super().expr(root)
        if place is None or not isinstance(made, Call):
            return made
        key = (made.op, place, *(a.struct_info for a in made.args))
        known = self._made.get(key)
        if known is not None:
            # The kernel is the same, and its operands are the operator's, in their order.
            args = [known.args[0], Tuple(made.args), *known.args[2:]]
            return Call(known.op, args, known.attrs, known.sinfo_args, made.span)
        call = inplace_call(self.builder, made, [place])
        # A number is part of the kernel.
        if all(isinstance(a.struct_info, TensorStructInfo) for a in made.args):
            self._made[key] = call
        return call


def inplace_call(builder: BlockBuilder, call: Call, places: Sequence[int]) -> Call:
    """The call of a kernel, added to ``builder``, that writes its result into ``args[places[0]]``.

    TransformError for an operator that has no such kernel, and for more places than one.
    """
    name = call.op.name if isinstance(call.op, Op) else None
    if name not in KERNELS or len(places) != 1:
        raise TransformError(
            f"{name or repr(call.op)} with the places {list(places)}: one operand can be written "
            f"into, by one of {', '.join(sorted(KERNELS))}"
        )
    made = tir_call(KERNELS[name], *call.args)
    kernel = builder.add_func(_into(made.func, places[0]), name.rpartition(".")[2] + "_inplace")
    return call_tir_inplace(kernel, made.args, list(places), made.out_sinfo[0], made.tir_vars)


def _into(kernel: tir.PrimFunc, place: int) -> tir.PrimFunc:
    """``kernel``, whose last buffer is its result, with that of parameter ``place`` instead."""
    *taken, result = (p for p in kernel.params if p in kernel.buffer_map)
    old, new = kernel.buffer_map[result], kernel.buffer_map[taken[place]]
    rewriter = LoopRewriter(lambda e: new.data if e is old.data else None)
    rewriter.buffers[id(old)] = (old, new)
    return tir.PrimFunc(
        [p for p in kernel.params if p is not result],
        rewriter.stmt(kernel.body),
        kernel.ret_type,
        {p: b for p, b in kernel.buffer_map.items() if p is not result},
        kernel.attrs,
    )
