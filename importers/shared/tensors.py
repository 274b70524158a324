"""What converters ask of a tensor: its struct info, or a gap where it is not known at import.

And how they make operations that Relax has no operator for.
"""

from __future__ import annotations

from typing import Any

from relax2xla.importers.shared.gaps import Unsupported
from relax2xla.ir import Expr, Op, TensorStructInfo
from relax2xla.tir import Dim


def info_of(x: Expr) -> TensorStructInfo:
    """Struct info of a tensor; a gap for any other value."""
    info = x.struct_info
    if not isinstance(info, TensorStructInfo):
        raise Unsupported(f"expected a tensor, got {info}")
    return info


def dtype_of(x: Expr) -> str:
    """dtype of a tensor."""
    return info_of(x).dtype


def ndim_of(x: Expr) -> int:
    """Rank of a tensor; a gap where it is not known."""
    ndim = info_of(x).ndim
    if ndim < 0:
        raise Unsupported("the rank of an operand is not known at import")
    return ndim


def dims_of(x: Expr) -> tuple[Dim, ...]:
    """Shape of a tensor; a gap where it is not known."""
    dims = info_of(x).dims
    if dims is None:
        raise Unsupported("the shape of an operand is not known at import")
    return dims


def row(name: str, *operands: Expr, **attrs: Any) -> Expr:
    """The StableHLO operation ``name``."""
    return Op.get(f"relax.stablehlo.{name}")(*operands, **attrs)


def chlo(name: str, *operands: Expr) -> Expr:
    """The CHLO operation ``name``."""
    return Op.get(f"relax.chlo.{name}")(*operands)
