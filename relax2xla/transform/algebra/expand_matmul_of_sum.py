"""ExpandMatmulOfSum: a product with a sum becomes a sum of products."""

from __future__ import annotations

from relax2xla import op
from relax2xla.dpl.make import is_op, wildcard
from relax2xla.dpl.rules import Match, rule
from relax2xla.ir import Expr, Function, IRModule
from relax2xla.ir.op import call_attrs
from relax2xla.transform.algebra.common import Weights, one_dtype, replaced, shape
from relax2xla.transform.core import FunctionPass, PassContext, register


@register(opt_level=1)
class ExpandMatmulOfSum(FunctionPass):
    """Write ``matmul(x, a + b)`` as ``matmul(x, a) + matmul(x, b)``, so that CombineParallelMatmul
    finds the parts.

    The sum may be transposed. It stays where it can be computed once (from weights alone, see
    ``num_input``), and where ``a`` and ``b`` have not one shape. Results change by rounding. By
    itself this costs a second product; it pays where ``b`` is a product of thin matrices (as of
    LoRA), which AdjustMatmulOrder takes apart.

    Measured: ``x (w + a b)``, 4x1024 with rank 8, all arguments, AdjustMatmulOrder behind it: 1.24,
    0.36
    """

    def transform_function(self, func: Function, mod: IRModule, context: PassContext) -> Function:
        weights = Weights(func)

        def expanded(m: Match) -> Expr | None:
            x, a, b = m[_x], m[_a], m[_b]
            if weights.hold(m, a, b) or not one_dtype(x, a, b, m.value):
                return None
            if shape(a) is None or shape(a) != shape(b):
                return None
            if _turned in m.found:
                axes = call_attrs(m.called(_turned))["axes"]
                a, b = op.permute_dims(a, axes), op.permute_dims(b, axes)
            return op.add(op.matmul(x, a), op.matmul(x, b))

        return replaced(func, [rule(_product)(expanded)])


_x, _a, _b = wildcard(), wildcard(), wildcard()
_sum = is_op("relax.add")(_a, _b)
_turned = is_op("relax.permute_dims")(_sum)
_product = is_op("relax.matmul")(_x, _sum | _turned)
