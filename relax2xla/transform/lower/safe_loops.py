"""Counters that XLA must not look at while it compiles: those that are added to themselves.

XLA asks of a ``while`` that begins and ends at constants how often it goes round. It takes what a
round adds to the counter for a constant, and ends the process where that is the counter itself
(``MatchTrivialLoopRange``, jaxlib 0.10.2; 0.12 does not), also where it becomes that once sums and
calls are simplified. Twice the exclusive or with one is the same number, which XLA does not see
through, and LLVM does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from relax2xla.dpl.make import is_op
from relax2xla.dpl.rules import Match, rewrite, rule
from relax2xla.dtypes import is_integer
from relax2xla.ir import (
    BindingBlock,
    Call,
    Expr,
    Function,
    IRModule,
    Op,
    SeqExpr,
    TensorStructInfo,
    Tuple,
    Var,
    VarBinding,
)
from relax2xla.ir.rewrite import bindings_of, reads
from relax2xla.op.shared.lowering import full_like, hlo
from relax2xla.transform.core import ROWS, FunctionPass, PassContext, register

_while = is_op("relax.stablehlo.while_")(varg_default_wildcard=True)
_STEPS: Final = [Op.get("relax.stablehlo.add"), Op.get("relax.stablehlo.subtract")]


@register(stage="static", requires=(ROWS,), ensures=(ROWS,), needed=True)
class ShieldCounters(FunctionPass):
    """Hide from XLA what rounds of loops do to integers, but for the addition of a constant."""

    def transform_function(self, func: Function, mod: IRModule, context: PassContext) -> Function:
        """Itself with loops whose counters XLA leaves alone."""
        return rewrite(func, [_shielded])[0]


@rule(_while)
def _shielded(m: Match) -> Expr | None:
    call = m.call
    body = m.origin(call.args[-1])
    assert isinstance(body, Function)
    loop, result = _Round(body), body.body.body
    made: list[VarBinding] = []

    def hidden(param: Var, value: Expr) -> Expr:
        if not loop.computes(param, value):
            return value
        one = full_like(param, 1)
        for _ in range(2):
            value = hlo("xor", value, one)
            made.append(VarBinding(Var(f"{param.name_hint}_next", value.struct_info), value))
            value = made[-1].var
        return value

    fields = [hidden(p, f) for p, f in zip(body.params, loop.fields, strict=True)]
    if not made:
        return None
    end = Tuple(fields) if isinstance(result, Tuple) else fields[0]
    seq = SeqExpr([*body.body.blocks, BindingBlock(made)], end)
    new = Function(body.params, seq, attrs=body.attrs, span=body.span)
    args, info = [*call.args[:-1], new], call.struct_info
    return Call(call.op, args, call.attrs, call.sinfo_args, call.span, struct_info=info)


class _Round:
    """What the body of a loop makes of what it carries."""

    def __init__(self, body: Function) -> None:
        result = body.body.body
        self.fields: Sequence[Expr] = result.fields if isinstance(result, Tuple) else [result]
        self._values = {b.var: b.value for b in bindings_of(body.body)}
        pairs = zip(body.params, self.fields, strict=True)
        self._changing = {param for param, field in pairs if field is not param}

    def computes(self, param: Var, field: Expr) -> bool:
        """Whether an integer's next value comes from it otherwise than by adding the same."""
        info = param.struct_info
        if not isinstance(info, TensorStructInfo) or info.ndim or not is_integer(info.dtype):
            return False
        if param not in self._changing or param not in self._read(field):
            return False
        update = self._values.get(field) if isinstance(field, Var) else None
        if isinstance(update, Call) and update.op in _STEPS and param in update.args:
            rest = [x for x in update.args if x is not param]
            return not rest or bool(self._read(rest[0]))
        return True

    def _read(self, expr: Expr) -> set[Var]:
        """What changes from round to round and ``expr`` is computed from."""
        found: set[Var] = set()
        seen: set[Var] = set()
        todo: list[Expr] = [expr]
        while todo:
            for var in reads(todo.pop(), inside=True):
                if var in self._changing:
                    found.add(var)
                elif var in self._values and var not in seen:
                    seen.add(var)
                    todo.append(self._values[var])
        return found
