"""RemoveRedundantReshape: reshapes of reshapes, and into the shape that there is."""

from __future__ import annotations

from relax2xla import op
from relax2xla.analysis.unused import remove_all_unused
from relax2xla.dpl.make import is_op, wildcard
from relax2xla.dpl.rules import Match, rewrite, rule
from relax2xla.ir import Expr, Function, IRModule
from relax2xla.transform.algebra.common import shape
from relax2xla.transform.core import FunctionPass, PassContext, register
from relax2xla.transform.normal.canonicalize import CanonicalizeBindings


@register()
class RemoveRedundantReshape(FunctionPass):
    """Write ``reshape(reshape(x, a), b)`` as ``reshape(x, b)``, and as ``x`` where that has the
    shape ``b``.

    Functions with the attribute ``Primitive`` stay. Exact; XLA does the same, so that it is for
    smaller programs, not for faster ones.
    """

    def transform_function(self, func: Function, mod: IRModule, context: PassContext) -> Function:
        if func.attrs.get("Primitive"):
            return func
        new, modified = rewrite(func, [_once, _none], again=True)
        if not modified:
            return func
        return remove_all_unused(CanonicalizeBindings().transform_function(new, mod, context))


_x, _shape = wildcard(), wildcard()
_reshaped = is_op("relax.reshape")(_x, _shape)


@rule(is_op("relax.reshape")(is_op("relax.reshape")(_x, wildcard()), _shape))
def _once(m: Match) -> Expr | None:
    return op.reshape(m[_x], m[_shape])


@rule(_reshaped)
def _none(m: Match) -> Expr | None:
    known = shape(m[_x])
    return m[_x] if known is not None and known == shape(m.value) else None
