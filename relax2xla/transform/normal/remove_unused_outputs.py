"""RemoveUnusedOutputs: private functions give what their callers read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from relax2xla.ir import (
    Binding,
    BindingBlock,
    Call,
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
from relax2xla.ir.rewrite import bindings_of, children, post_order_deep
from relax2xla.transform.core import Pass, PassContext, register
from relax2xla.transform.normal.blocks import Precise, refined
from relax2xla.transform.normal.signatures import calls_of, private_functions, with_signatures


@register()
class RemoveUnusedOutputs(Pass):
    """Remove the fields of a private function's result that none of its calls reads.

    A result of which one field is left is that field. Functions and callers that change are left
    without copies and dead code.
    """

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        tuples = {
            g: f
            for g, f in private_functions(mod).items()
            if isinstance(f.ret_struct_info, TupleStructInfo)
        }
        read = _read_fields(mod, tuples)
        changed = {g: _trimmed(tuples[g], kept) for g, kept in read.items()}
        if not changed:
            return mod
        return with_signatures(mod, changed, lambda renamed: _Callers(renamed, read))


def _read_fields(mod: IRModule, tuples: Mapping[GlobalVar, Function]) -> dict[GlobalVar, list[int]]:
    """The fields that are read of each function's result, where that is not all of them."""
    called = {g for g, _ in calls_of(mod, tuples)}
    fields: dict[GlobalVar, set[int]] = {g: set() for g in called}
    whole: set[GlobalVar] = set()
    for func in mod.relax_functions().values():
        results: dict[Expr, GlobalVar] = {}
        for node in post_order_deep(func):
            if isinstance(node, SeqExpr):
                for b in bindings_of(node):
                    op = b.value.op if isinstance(b.value, Call) else None
                    if isinstance(op, GlobalVar) and op in called:
                        results[b.var] = op
        for node in post_order_deep(func) if results else ():
            if isinstance(node, TupleGetItem):
                if node.tuple_value in results:
                    fields[results[node.tuple_value]].add(node.index)
                continue
            ends: list[Expr] = list(children(node))
            if isinstance(node, SeqExpr):
                ends = [node.body, *(b.value for b in bindings_of(node))]
            whole.update(results[e] for e in ends if isinstance(e, Var) and e in results)
    found: dict[GlobalVar, list[int]] = {}
    for gvar, read in fields.items():
        info: Any = tuples[gvar].ret_struct_info
        if gvar not in whole and len(read) < len(info.fields):
            found[gvar] = sorted(read)
    return found


def _trimmed(func: Function, kept: list[int]) -> Function:
    """``func`` with a result of some fields; one alone is no tuple."""
    body, info = func.body.body, func.ret_struct_info
    assert isinstance(info, TupleStructInfo)
    blocks = list(func.body.blocks)
    if isinstance(body, Tuple):
        fields = [body.fields[i] for i in kept]
    else:
        items = [TupleGetItem(body, i, body.span) for i in kept]
        names = [Var(f"output_{i}", item.struct_info_) for i, item in zip(kept, items, strict=True)]
        bound = [VarBinding(v, item) for v, item in zip(names, items, strict=True)]
        blocks.append(BindingBlock(bound))
        fields = [*names]
    one = len(kept) == 1
    result = fields[0] if one else Tuple(fields)
    ret = info.fields[kept[0]] if one else TupleStructInfo([info.fields[i] for i in kept])
    seq = SeqExpr(blocks, result, func.body.span)
    return refined(func.replace(body=seq, ret_struct_info=ret))


class _Callers(Precise):
    """Calls with fewer results, and the fields by their new places."""

    def __init__(
        self, renamed: Mapping[GlobalVar, GlobalVar], kept: Mapping[GlobalVar, list[int]]
    ) -> None:
        super().__init__(rule=self._field)
        self.renamed, self.kept = renamed, kept
        # What a result is now, and which of its fields are left.
        self._results: dict[Expr, tuple[Var, list[int]]] = {}

    def binding(self, b: Binding) -> Binding:
        value = b.value
        gvar = None
        if isinstance(value, Call) and isinstance(value.op, GlobalVar):
            gvar = self.renamed.get(value.op)
        if gvar is None or not isinstance(value, Call) or not isinstance(value.op, GlobalVar):
            return super().binding(b)
        args = [self.expr(a) for a in value.args]
        call = Call(gvar, args, value.attrs, value.sinfo_args, value.span)
        var = type(b.var)(b.var.vid, call.struct_info_, b.var.span)
        self._results[b.var] = var, self.kept[value.op]
        return VarBinding(var, call, b.span)

    def _field(self, node: Expr) -> Expr | None:
        if not isinstance(node, TupleGetItem) or node.tuple_value not in self._results:
            return None
        var, kept = self._results[node.tuple_value]
        if len(kept) == 1:
            return var
        return TupleGetItem(var, kept.index(node.index), node.span)
