"""CanonicalizeBindings: aliases and fields of known tuples are read directly."""

from __future__ import annotations

from relax2xla.ir import (
    Binding,
    BindingBlock,
    Constant,
    DataflowVar,
    Expr,
    Function,
    IRModule,
    ShapeExpr,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
)
from relax2xla.ir.rewrite import Rewriter
from relax2xla.transform.core import FunctionPass, PassContext, register


@register(opt_level=1)
class CanonicalizeBindings(FunctionPass):
    """``y = x`` and ``y = (a, b)[0]`` disappear; later bindings read ``x`` and ``a``.

    What a dataflow block gives to the outside keeps its own variable.
    """

    def transform_function(self, func: Function, mod: IRModule, context: PassContext) -> Function:
        return _Canonical().function(func)


class _Canonical(Rewriter):
    """A Rewriter that knows what tuples its variables hold."""

    def __init__(self) -> None:
        super().__init__(rule=self._field)
        self.tuples: dict[Expr, Tuple] = {}

    def _field(self, node: Expr) -> Expr | None:
        if isinstance(node, TupleGetItem) and node.tuple_value in self.tuples:
            return self.tuples[node.tuple_value].fields[node.index]
        return None

    def block(self, block: BindingBlock) -> BindingBlock:
        kept: list[Binding] = []
        for b in block.bindings:
            new = self.binding(b)
            if isinstance(new, VarBinding):
                if isinstance(new.value, Tuple):
                    self.tuples[new.var] = new.value
                escapes = isinstance(new.value, DataflowVar) and not isinstance(
                    new.var, DataflowVar
                )
                same = new.var.struct_info_ == new.value.struct_info_
                if isinstance(new.value, Var | Constant | ShapeExpr) and same and not escapes:
                    self.env[b.var] = self.env[new.var] = new.value
                    continue
            kept.append(new)
        if len(kept) == len(block.bindings) and all(
            a is b for a, b in zip(kept, block.bindings, strict=True)
        ):
            return block
        return type(block)(kept, block.span)
