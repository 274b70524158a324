"""OptimizeLayoutTransform: a layout that is undone at once is left out."""

from __future__ import annotations

from collections.abc import Sequence

from relax2xla.analysis.unused import remove_all_unused
from relax2xla.dpl.make import is_op, wildcard
from relax2xla.dpl.rules import Match, rewrite, rule
from relax2xla.ir import Expr, Function, IRModule, TensorStructInfo
from relax2xla.ir.op import call_attrs
from relax2xla.tir import Analyzer, Dim, IndexMap, Range, Var
from relax2xla.transform.core import FunctionPass, PassContext, register
from relax2xla.transform.normal.canonicalize import CanonicalizeBindings


@register()
class OptimizeLayoutTransform(FunctionPass):
    """Write ``layout_transform(layout_transform(x, f), g)`` as ``x`` where ``g`` undoes ``f``.

    That is so where the result has the shape of ``x``, and ``g(f(i))`` is proven to be ``i`` for
    all indices of it; TVM's pass looks at the shapes alone. Functions with the attribute
    ``Primitive`` stay. Exact. Calls of loop-level functions that remove padding are not looked
    through, because what lies in the padding is not the same on both sides.
    """

    def transform_function(self, func: Function, mod: IRModule, context: PassContext) -> Function:
        if func.attrs.get("Primitive"):
            return func
        new, modified = rewrite(func, [_undone], again=True)
        if not modified:
            return func
        return remove_all_unused(CanonicalizeBindings().transform_function(new, mod, context))


_x = wildcard()
_there = is_op("relax.layout_transform")(_x)


@rule(is_op("relax.layout_transform")(_there))
def _undone(m: Match) -> Expr | None:
    before, after = m[_x].struct_info, m.value.struct_info
    if not isinstance(before, TensorStructInfo) or before.dims is None or before != after:
        return None
    maps = (call_attrs(m.called(_there))["index_map"], call_attrs(m.call)["index_map"])
    return m[_x] if _is_identity(*maps, before.dims) else None


def _is_identity(first: IndexMap, second: IndexMap, shape: Sequence[Dim]) -> bool:
    """Whether ``second`` after ``first`` gives every index of ``shape`` itself."""
    indices = [Var(f"i{k}", "int64") for k in range(len(shape))]
    analyzer = Analyzer()
    for index, size in zip(indices, shape, strict=True):
        analyzer.bind(index, Range.from_min_extent(0, size))
    back = second.map_indices(first.map_indices(indices))
    return len(back) == len(indices) and all(map(analyzer.can_prove_equal, back, indices))
