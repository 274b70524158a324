"""Tensors whose elements lie in another order."""

from __future__ import annotations

from typing import Any

from relax2xla import te, tir
from relax2xla.errors import TVMError
from relax2xla.ir import Expr
from relax2xla.topi.shared import of_dtype
from relax2xla.transform.lower.te_forms.table import Site, Stays, form, shape_of


@form("relax.layout_transform")
def _(s: Site) -> Expr:
    """Each element of the result read from where it was.

    How memory is cut into axes (``axis_separators``) is XLA's to say; it is part of the name.
    """
    index_map, fill = s.attrs["index_map"], s.attrs["pad_value"]
    name = "te_layout_transform"
    try:
        _, nowhere = index_map.non_surjective_inverse(list(shape_of(s.x).values))
    except TVMError as e:
        raise Stays(str(e)) from None
    if not isinstance(nowhere, tir.IntImm):
        name += "_with_pad"
    if s.attrs["axis_separators"]:
        name += "_axis_separator"

    def transformed(data: te.Tensor) -> te.Tensor:
        sizes = [tir.as_dim(d) for d in data.shape]
        back, empty = index_map.non_surjective_inverse(sizes)
        value = of_dtype(0 if fill is None else fill.value, data.dtype)

        def element(*i: Any) -> Any:
            env = dict(zip(back.initial_indices, i, strict=True))
            here = data(*(tir.as_prim_expr(tir.substitute(f, env)) for f in back.final_indices))
            if isinstance(empty, tir.IntImm):
                return here
            missing = tir.as_prim_expr(tir.substitute(empty, env))
            return tir.if_then_else(missing, value, here)

        shape = [tir.as_prim_expr(d, "int64") for d in index_map.map_shape(sizes)]
        return te.compute(shape, element, name=name)

    return s.te(transformed, s.x, name=name)
