"""FuseTransposeMatmul: a product with a transposed matrix reads it as it lies.

``matmul(x, permute_dims(w))`` becomes one contraction over the last axes of both. XLA would fold
the transposition too, but the weight would be copied at load time otherwise, because
``lift_weights`` moves every transposition of weights there. That copy pays where Eigen multiplies
and the features do not come first (:mod:`relax2xla.transform.layout.feature_major`): Eigen would
transpose the weight at every call.
"""

from __future__ import annotations

from collections.abc import Callable
from string import ascii_lowercase

from relax2xla.ir import (
    BindingBlock,
    Call,
    Expr,
    Function,
    IRModule,
    Op,
    SeqExpr,
    TensorStructInfo,
    VarBinding,
)
from relax2xla.ir.op import call_attrs, is_op
from relax2xla.transform.core import FunctionPass, PassContext, register


@register(opt_level=1)
class FuseTransposeMatmul(FunctionPass):
    """Rewrite ``matmul(x, permute_dims(w))`` with a rank-2 ``w`` as an einsum.

    pays: asked of each function as it would become; where it says no, the function stays as it is.
    """

    def __init__(self, pays: Callable[[Function], bool] | None = None) -> None:
        self.pays = pays

    def transform_function(self, func: Function, mod: IRModule, context: PassContext) -> Function:
        made = _fuse(func)
        return made if self.pays is None or self.pays(made) else func


def _fuse(func: Function) -> Function:
    transposed: dict[Expr, Expr] = {}
    blocks: list[BindingBlock] = []
    for block in func.body.blocks:
        bindings = []
        for b in block.bindings:
            value = b.value if isinstance(b, VarBinding) else None
            if value is not None and is_op(value, "relax.permute_dims"):
                matrix = _transposed_matrix(value)
                if matrix is not None:
                    transposed[b.var] = matrix
            elif value is not None and is_op(value, "relax.matmul"):
                fused = _contraction(value, transposed)
                if fused is not None:
                    b = VarBinding(b.var, fused, b.span)
            bindings.append(b)
        blocks.append(type(block)(bindings, block.span))
    return func.replace(body=SeqExpr(blocks, func.body.body, func.body.span))


def _transposed_matrix(value: Expr) -> Expr | None:
    """The matrix that ``value`` transposes, if it does just that."""
    assert isinstance(value, Call)
    info = value.args[0].struct_info_
    axes = call_attrs(value)["axes"]
    rank2 = isinstance(info, TensorStructInfo) and info.ndim == 2
    return value.args[0] if rank2 and (axes is None or tuple(axes) in ((1, 0), (-1, -2))) else None


def _contraction(value: Expr, transposed: dict[Expr, Expr]) -> Call | None:
    assert isinstance(value, Call)
    x, w = value.args
    matrix = transposed.get(w)
    info, result = x.struct_info_, value.struct_info_
    if matrix is None or not isinstance(info, TensorStructInfo) or info.ndim < 1:
        return None
    if not isinstance(result, TensorStructInfo) or result.dtype != info.dtype:
        return None
    rows = ascii_lowercase[: info.ndim - 1]
    return Op.get("relax.einsum")((x, matrix), subscripts=f"{rows}y,zy->{rows}z", span=value.span)
