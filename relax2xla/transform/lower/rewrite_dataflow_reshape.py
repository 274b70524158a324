"""RewriteDataflowReshape: loop-level functions that only reshape become ``reshape`` again."""

from __future__ import annotations

from relax2xla import op, tir
from relax2xla.analysis.loops import has_reshape_pattern
from relax2xla.dpl.make import is_op, wildcard
from relax2xla.dpl.rules import Match, rewrite, rule
from relax2xla.ir import (
    DataflowVar,
    Expr,
    Function,
    GlobalVar,
    IRModule,
    ShapeExpr,
    TensorStructInfo,
    Tuple,
)
from relax2xla.transform.core import FunctionPass, PassContext, register


@register()
class RewriteDataflowReshape(FunctionPass):
    """Write ``call_tir(f, (x,))`` as ``reshape(x)``, where the loop-level function ``f`` copies
    elements in their order (``analysis.has_reshape_pattern``, which raises UnsupportedError for
    functions that it cannot read).

    Only of variables inside of dataflow blocks, and where ``x`` has as many elements as the result.
    XLA does not copy for a reshape.
    """

    def transform_function(self, func: Function, mod: IRModule, context: PassContext) -> Function:
        def reshaped(m: Match) -> Expr | None:
            name, args = m.call.args[0], m.bound(m.call.args[1])
            callee = mod[name] if isinstance(name, GlobalVar) and name in mod else None
            given = args.fields if isinstance(args, Tuple) else (args,)
            shape = _shape(m.value)
            if not isinstance(m.var, DataflowVar) or not isinstance(callee, tir.PrimFunc):
                return None
            if len(given) != 1 or shape is None or not _same_elements(given[0], m.value):
                return None
            return op.reshape(given[0], ShapeExpr(shape)) if has_reshape_pattern(callee) else None

        return rewrite(func, [rule(_call)(reshaped)])[0]


_call = is_op("relax.call_tir")(wildcard(), wildcard(), varg_default_wildcard=True)


def _shape(value: Expr) -> tuple[tir.Dim, ...] | None:
    info = value.struct_info
    return info.dims if isinstance(info, TensorStructInfo) and info.dtype else None


def _same_elements(one: Expr, two: Expr) -> bool:
    """Whether two tensors have one dtype and as many elements."""
    counts: list[tir.Dim] = []
    for dims in (_shape(one), _shape(two)):
        if dims is None:
            return False
        count: tir.Dim = 1
        for d in dims:
            count = count * d
        counts.append(count)
    same = getattr(one.struct_info, "dtype", "") == getattr(two.struct_info, "dtype", None)
    return same and tir.can_prove_equal(*counts)
