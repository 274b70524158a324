"""EliminateCommonSubexpr: what is computed twice is computed once."""

from __future__ import annotations

from collections.abc import Hashable

from relax2xla.dpl.emit import part_key, value_key
from relax2xla.ir import (
    Binding,
    BindingBlock,
    Call,
    DataflowBlock,
    DataflowVar,
    Function,
    If,
    IRModule,
    MatchCast,
    Op,
    SeqExpr,
    Var,
    VarBinding,
)
from relax2xla.ir.deep import nests
from relax2xla.ir.lattice import is_base_of
from relax2xla.ir.rewrite import Rewriter
from relax2xla.ir.traits import Random
from relax2xla.transform.core import FunctionPass, PassContext, register


@register(opt_level=1)
class EliminateCommonSubexpr(FunctionPass):
    """Read the first variable where one value is bound twice; the second binding becomes a copy.

    Values are alike by operator, operands and attributes; constants of more than 64 bytes by being
    one object. Impure calls, allocations, random numbers, branches and functions are left alone.
    A branch reads what is computed before it, a local function only what it computes itself.
    ``call_only``: of calls alone. CanonicalizeBindings removes the copies.

    Measured: one product 512 to 512 of 64 rows, 4 times: 0.30, 0.29 (XLA finds them, too)
    """

    def __init__(self, call_only: bool = False) -> None:
        self.call_only = call_only

    def transform_function(self, func: Function, mod: IRModule, context: PassContext) -> Function:
        return _Sharer(self.call_only).function(func)


class _Sharer(Rewriter):
    def __init__(self, call_only: bool) -> None:
        super().__init__()
        self.call_only = call_only
        # Variables by what they hold, the first one first; and the keys, in order of addition.
        self._known: dict[Hashable, list[Var]] = {}
        self._added: list[Hashable] = []
        # Variables of the block that are read as another one of it.
        self._read: list[tuple[Var, Var]] = []

    @nests
    def function(self, func: Function) -> Function:
        saved = self._known, self._added
        self._known, self._added = {}, []
        try:
            return super().function(func)
        finally:
            self._known, self._added = saved

    @nests
    def seq(self, seq: SeqExpr) -> SeqExpr:
        mark = len(self._added)
        try:
            return super().seq(seq)
        finally:
            for key in self._added[mark:]:
                self._known[key].pop()
            del self._added[mark:]

    def block(self, block: BindingBlock) -> BindingBlock:
        if not isinstance(block, DataflowBlock):
            return super().block(block)
        mark, outer, self._read = len(self._added), self._read, []
        new = super().block(block)
        # Outside of the block its own variables are not known, and each output by its own name.
        for old, var in self._read:
            self.env[old] = self.env[var] = var
        self._read = outer
        inside = self._added[mark:]
        found = [(key, self._known[key].pop()) for key in reversed(inside)]
        del self._added[mark:]
        for key, var in reversed(found):
            if not isinstance(var, DataflowVar):
                self._known[key].append(var)
                self._added.append(key)
        return new

    def binding(self, b: Binding) -> Binding:
        new = super().binding(b)
        key = self._key(new)
        if key is None:
            return new
        known = self._known.setdefault(key, [])
        self._added.append(key)
        known.append(new.var)
        first = known[0]
        info, had = new.var.struct_info_, first.struct_info_
        if first is new.var or info is None or had is None or not is_base_of(info, had):
            return new
        self.env[b.var] = self.env[new.var] = first
        if isinstance(first, DataflowVar):
            self._read.append((b.var, new.var))
        return VarBinding(new.var, first, new.span)

    def _key(self, b: Binding) -> Hashable | None:
        value = b.value
        if isinstance(value, Call) and isinstance(value.op, Op) and value.op.has(Random):
            return None
        if (self.call_only and not isinstance(value, Call)) or isinstance(value, If | Function):
            return None
        key = value_key(value) if isinstance(value, Call) else part_key(value)
        return (MatchCast, key, b.struct_info) if isinstance(b, MatchCast) else key
