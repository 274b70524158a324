"""Integer divisions by a constant zero that XLA must not compute while it compiles.

StableHLO leaves the quotient to the implementation and XLA's code gives -1 (of a remainder, the
dividend), but where both operands are constant XLA folds them with the processor's own division,
which ends the process (SIGFPE). Behind an ``optimization_barrier`` they are left to the program.
"""

from __future__ import annotations

import functools
import operator

from relax2xla.dpl.make import is_op, wildcard
from relax2xla.dpl.rules import Match, rewrite, rule
from relax2xla.dtypes import is_integer
from relax2xla.ir import Call, Constant, Expr, Function, IRModule, Op, TensorStructInfo
from relax2xla.ir.traits import Division
from relax2xla.stablehlo.table import rows_with
from relax2xla.transform.core import ROWS, FunctionPass, PassContext, register

_dividend, _divisor = wildcard(), wildcard()
_rows = [is_op(f"relax.{name}") for name in sorted(rows_with(Division))]
_division = functools.reduce(operator.or_, _rows)


@register(stage="static", requires=(ROWS,), ensures=(ROWS,), needed=True)
class ShieldDivisions(FunctionPass):
    """Put a barrier before the divisor of integer divisions of constants by what may be zero."""

    def transform_function(self, func: Function, mod: IRModule, context: PassContext) -> Function:
        """Itself without such divisions."""
        return rewrite(func, [_shielded])[0]


@rule(_division(_dividend, _divisor))
def _shielded(m: Match) -> Expr | None:
    call, divisor = m.call, m[_divisor]
    info = call.struct_info
    if not isinstance(info, TensorStructInfo) or not is_integer(info.dtype):
        return None
    known = m.origin(divisor)
    safe = isinstance(known, Constant) and bool(known.data.astype(bool).all())
    if safe or not m.from_constants(call):
        return None
    barrier = Op.get("relax.stablehlo.optimization_barrier")(divisor, span=call.span)
    args = [m[_dividend], m.bind("divisor", barrier)]
    return Call(call.op, args, call.attrs, call.sinfo_args, call.span, struct_info=info)
