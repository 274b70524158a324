"""ExpandTupleArguments: private functions take the fields of tuples, not tuples."""

from __future__ import annotations

from collections.abc import Mapping

from relax2xla.ir import (
    Binding,
    BindingBlock,
    Call,
    DataflowBlock,
    DataflowVar,
    Expr,
    Function,
    GlobalVar,
    IRModule,
    SeqExpr,
    Tuple,
    TupleGetItem,
    TupleStructInfo,
    Var,
    VarBinding,
)
from relax2xla.ir.rewrite import Rewriter
from relax2xla.transform.core import Pass, PassContext, register
from relax2xla.transform.normal.signatures import private_functions, with_signatures


@register()
class ExpandTupleArguments(Pass):
    """Give private functions a parameter for each field of a tuple, however deep, and no tuple.

    Functions and callers that change are left without copies and dead code.
    """

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        changed = {
            g: _expanded(f)
            for g, f in private_functions(mod).items()
            if any(isinstance(p.struct_info_, TupleStructInfo) for p in f.params)
        }
        return with_signatures(mod, changed, _Callers) if changed else mod


def _expanded(func: Function) -> Function:
    """``func`` over fields, of which it makes its tuples itself."""
    params: list[Var] = []
    bindings: list[Binding] = []

    def expand(param: Var) -> None:
        if not isinstance(param.struct_info_, TupleStructInfo):
            params.append(param)
            return
        fields = [
            Var(f"{param.name_hint}_{i}", info, param.span)
            for i, info in enumerate(param.struct_info_.fields)
        ]
        for field in fields:
            expand(field)
        bindings.append(VarBinding(param, Tuple(fields), param.span))

    for param in func.params:
        expand(param)
    body = SeqExpr([BindingBlock(bindings), *func.body.blocks], func.body.body, func.body.span)
    return func.replace(params=params, body=body)


class _Callers(Rewriter):
    """Calls with the fields of their tuples, which are bound before them."""

    def __init__(self, renamed: Mapping[GlobalVar, GlobalVar]) -> None:
        super().__init__(rule=self._call)
        self.renamed = renamed
        self._before: list[Binding] = []
        self._kind: type[Var] = Var

    def block(self, block: BindingBlock) -> BindingBlock:
        outer = self._kind
        made: list[Binding] = []
        for b in block.bindings:
            self._kind = DataflowVar if isinstance(block, DataflowBlock) else Var
            new = self.binding(b)
            made += self._before
            made.append(new)
            self._before = []
        self._kind = outer
        if len(made) == len(block.bindings) and all(
            a is b for a, b in zip(made, block.bindings, strict=True)
        ):
            return block
        return type(block)(made, block.span)

    def _call(self, node: Expr) -> Expr | None:
        if not isinstance(node, Call) or not isinstance(node.op, GlobalVar):
            return None
        gvar = self.renamed.get(node.op)
        if gvar is None:
            return None
        args = [leaf for a in node.args for leaf in self._leaves(a)]
        info = node.struct_info_
        return Call(gvar, args, node.attrs, node.sinfo_args, node.span, struct_info=info)

    def _leaves(self, arg: Expr) -> list[Expr]:
        info = arg.struct_info_
        if not isinstance(info, TupleStructInfo):
            return [arg]
        fields = arg.fields if isinstance(arg, Tuple) else None
        if fields is None:
            fields = [self._field(arg, i) for i in range(len(info.fields))]
        return [leaf for f in fields for leaf in self._leaves(f)]

    def _field(self, arg: Expr, i: int) -> Var:
        item = TupleGetItem(arg, i, arg.span)
        name = arg.name_hint if isinstance(arg, Var) else "field"
        var = self._kind(f"{name}_{i}", item.struct_info_)
        self._before.append(VarBinding(var, item, arg.span))
        return var
