"""ReorderPermuteDimsAfterConcat: one transposition of all parts instead of one of each."""

from __future__ import annotations

from relax2xla import op
from relax2xla.dpl.make import is_op, wildcard
from relax2xla.dpl.rules import Match, rule
from relax2xla.ir import Call, Expr, Function, IRModule, Tuple
from relax2xla.ir.op import call_attrs
from relax2xla.ir.op import is_op as calls
from relax2xla.transform.algebra.common import permutation, replaced
from relax2xla.transform.core import FunctionPass, PassContext, register


@register(opt_level=1)
class ReorderPermuteDimsAfterConcat(FunctionPass):
    """Write ``concat(permute_dims(a), permute_dims(b))`` as ``permute_dims(concat(a, b))``.

    All parts have to be transposed alike. Exact.
    """

    def transform_function(self, func: Function, mod: IRModule, context: PassContext) -> Function:
        return replaced(func, [_transposed_after])


_parts = wildcard()


@rule(is_op("relax.concat")(_parts))
def _transposed_after(m: Match) -> Expr | None:
    parts = m.bound(m[_parts])
    axis = call_attrs(m.call)["axis"]
    if not isinstance(parts, Tuple) or len(parts.fields) < 2 or axis is None:
        return None
    values = map(m.bound, parts.fields)
    turned = [v for v in values if isinstance(v, Call) and calls(v, "relax.permute_dims")]
    if len(turned) < len(parts.fields):
        return None
    axes = permutation(turned[0])
    if axes is None or any(permutation(c) != axes for c in turned):
        return None
    joined = op.concat([c.args[0] for c in turned], axes[axis])
    return op.permute_dims(joined, call_attrs(turned[0])["axes"])
