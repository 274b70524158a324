"""FastMathTransform: the name that TVM's pipelines have for what XLA does by itself."""

from __future__ import annotations

from relax2xla.ir import Function, IRModule
from relax2xla.transform.core import FunctionPass, PassContext, register


@register()
class FastMathTransform(FunctionPass):
    """Leave the program as it is.

    TVM puts loop-level functions with polynomials in the place of ``exp``, ``erf``, ``tanh`` and
    ``softmax``. XLA has such polynomials for these operators on every platform, vectorised and
    accurate to the last places, so nothing is to be gained by worse ones.
    """

    kind = "identity"

    def transform_function(self, func: Function, mod: IRModule, context: PassContext) -> Function:
        return func
