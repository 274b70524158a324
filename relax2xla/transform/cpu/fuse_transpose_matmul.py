"""FuseTransposeMatmul: a product with a transposed matrix reads it as it lies.

``matmul(x, permute_dims(w))`` becomes one contraction over the last axes of both. XLA would fold
the transposition too, but the weight would be copied at load time otherwise, because
``lift_weights`` moves every transposition of weights there. That copy pays where Eigen multiplies
(:mod:`relax2xla.transform.layout.feature_major`): it would transpose the weight at every call.
"""

from __future__ import annotations

from collections.abc import Callable
from string import ascii_lowercase

from relax2xla.dpl.make import is_op, wildcard
from relax2xla.dpl.rules import Match, rewrite, rule
from relax2xla.ir import Expr, Function, IRModule, Op, TensorStructInfo
from relax2xla.ir.op import call_attrs
from relax2xla.transform.core import FunctionPass, PassContext, register


@register(opt_level=1)
class FuseTransposeMatmul(FunctionPass):
    """Rewrite ``matmul(x, permute_dims(w))`` with a rank-2 ``w`` as an einsum.

    pays: asked of each function as it would become; where it says no, the function stays as it is.
    """

    def __init__(self, pays: Callable[[Function], bool] | None = None) -> None:
        self.pays = pays

    def transform_function(self, func: Function, mod: IRModule, context: PassContext) -> Function:
        made, modified = rewrite(func, [_contraction], inside=False)
        return made if modified and (self.pays is None or self.pays(made)) else func


_x, _w = wildcard(), wildcard()
_transposed = is_op("relax.permute_dims")(_w)


@rule(is_op("relax.matmul")(_x, _transposed))
def _contraction(m: Match) -> Expr | None:
    matrix, axes = m[_w].struct_info_, call_attrs(m.called(_transposed))["axes"]
    if not isinstance(matrix, TensorStructInfo) or matrix.ndim != 2:
        return None
    if axes is not None and tuple(axes) not in ((1, 0), (-1, -2)):
        return None
    info, result = m[_x].struct_info_, m.value.struct_info_
    if not isinstance(info, TensorStructInfo) or info.ndim < 1:
        return None
    if not isinstance(result, TensorStructInfo) or result.dtype != info.dtype:
        return None
    rows = ascii_lowercase[: info.ndim - 1]
    einsum = Op.get("relax.einsum")
    return einsum((m[_x], m[_w]), subscripts=f"{rows}y,zy->{rows}z", span=m.value.span)
