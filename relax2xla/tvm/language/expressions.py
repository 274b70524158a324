"""Names of ``tvm.relax.expr`` that start with an underscore and that programs use all the same."""

from __future__ import annotations

from relax2xla.ir import Expr, StructInfo


def _update_struct_info(  # pyright: ignore[reportUnusedFunction]
    expr: Expr, struct_info: StructInfo | None
) -> None:
    """Say what is known of ``expr``, without a check."""
    expr.struct_info_ = struct_info
