"""``relax.builtin``: what passes insert, and marks that they obey. Source: TVM Relax v0.20."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from relax2xla.errors import LegalizeError, OpError
from relax2xla.ir.expr import DataTypeImm, Expr, StringImm
from relax2xla.ir.op import Rule, op
from relax2xla.ir.op_param import Kind, PrimLike, ShapeLike
from relax2xla.ir.struct_info import TensorStructInfo, show
from relax2xla.ir.traits import Allocates, Opaque, Pointwise
from relax2xla.op.shared.checks import literal_dims, want_shape
from relax2xla.op.shared.lowering import full, static


def as_dtype_operand(value: Any) -> Expr:
    """A dtype as a DataTypeImm."""
    return value if isinstance(value, Expr) else DataTypeImm(value)


def as_string_operand(value: Any) -> Expr:
    """A string as a StringImm."""
    return StringImm(value) if isinstance(value, str) else value


DTypeOperand = Annotated[Any, Kind(True, as_dtype_operand)]
StringOperand = Annotated[Any, Kind(True, as_string_operand)]


def dtype_literal(x: Expr) -> str:
    """The dtype that an operand names."""
    if not isinstance(x, DataTypeImm):
        raise OpError(f"`dtype` must be a dtype known here; got {show(x.struct_info_)}")
    return x.value


def pointless(name: str, instead: str = "") -> Callable[[], Expr]:
    """The lowering of an operator that states what XLA decides by itself: an error."""

    def lower() -> Expr:
        raise LegalizeError(
            f"relax.{name} cannot be lowered: XLA plans and frees memory by itself, so programs "
            f"need no such calls; remove them{instead}"
        )

    return lower


@op("relax.builtin.alloc_tensor", Opaque(), Allocates())
def alloc_tensor(
    shape: ShapeLike,
    dtype: DTypeOperand,
    runtime_device_index: PrimLike,
    storage_scope: StringOperand = "global",
) -> Rule:
    """A new tensor; its elements are zero.

    shape: a shape; runtime_device_index: which device; storage_scope: ignored by XLA
    result: ``shape``, ``dtype``
    """
    want_shape(shape, "shape")

    def lower() -> Expr:
        return full(static(literal_dims(shape, "shape")), 0, dtype_literal(dtype))

    return TensorStructInfo(shape, dtype_literal(dtype)), lower


@op("relax.builtin.stop_lift_params", Pointwise(flops=0))
def stop_lift_params(x: Expr) -> Rule:
    """``x``; what follows is not lifted out of the function with the weights.

    x: any value
    result: ``x``
    """
    return x.struct_info, lambda: x
