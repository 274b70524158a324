"""Shapes as values: shape_of, shape_to_tensor, size, what tensors say; and where tensors live.

Sources: TVM Relax v0.20.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from relax2xla import tir
from relax2xla.errors import LegalizeError, OpError
from relax2xla.ir.base import VDevice
from relax2xla.ir.expr import Constant, Expr, ShapeExpr
from relax2xla.ir.op import Rule, op
from relax2xla.ir.op_param import DTypeLike, PrimLike
from relax2xla.ir.struct_info import ObjectStructInfo, ShapeStructInfo, StructInfo, TensorStructInfo
from relax2xla.ir.traits import Opaque
from relax2xla.op.shared.checks import (
    FLOAT,
    INTEGER,
    literal_dims,
    product,
    tensor,
    want_shape,
    want_tensor,
)
from relax2xla.op.shared.lowering import hlo, index_constant, scalar, static
from relax2xla.op.shared.lowering import shape_of as static_shape
from relax2xla.op.shared.scalars import prim_of

INT64_MAX = (1 << 63) - 1


@op("relax.shape_of", Opaque())
def shape_of(expr: Expr) -> Rule:
    """The shape of a tensor.

    expr: any tensor
    result: a shape, with the dimensions that are known
    """
    info = want_tensor(expr, "expr")
    shape = ShapeStructInfo(ndim=info.ndim) if info.dims is None else ShapeStructInfo(info.dims)
    return shape, lambda: ShapeExpr(static_shape(expr))


@op("relax.tensor_to_shape", Opaque())
def tensor_to_shape(expr: Expr) -> StructInfo:
    """A vector of integers as a shape; it runs on the virtual machine unless it is a constant.

    expr: (n,), integers that are not negative
    result: a shape of rank n
    """
    info = want_tensor(expr, "expr", INTEGER, ndim=1)
    count = info.dims[0] if info.dims else None
    return ShapeStructInfo(ndim=count if isinstance(count, int) else -1)


@tensor_to_shape.legalize
def _(expr: Expr) -> Expr:
    if isinstance(expr, Constant):
        return ShapeExpr([int(v) for v in expr.data])
    raise LegalizeError("a shape computed from data is known only when the program runs")


@op("relax.tensor_to_bits", Opaque())
def tensor_to_bits(expr: Expr) -> StructInfo:
    """A vector of floats as a shape; it runs on the virtual machine unless it is a constant.

    So numbers that are computed become attributes: ``T.reinterpret("float64", m - t)`` is the
    number again, once ``R.match_cast`` has bound its two integers to m and t.

    expr: (n,), floats
    result: a shape of rank 2 * n: of each number two integers that are not negative, whose
        difference is its bits as float64 (those of 0.0 for -0.0)
    """
    info = want_tensor(expr, "expr", FLOAT, ndim=1)
    count = info.dims[0] if info.dims else None
    return ShapeStructInfo(ndim=2 * count if isinstance(count, int) else -1)


@tensor_to_bits.legalize
def _(expr: Expr) -> Expr:
    if isinstance(expr, Constant):
        return ShapeExpr(bits_of(expr.data))
    raise LegalizeError("numbers computed from data are known only when the program runs")


def bits_of(values: npt.NDArray[Any]) -> tuple[int, ...]:
    """What :func:`tensor_to_bits` gives for an array of numbers."""
    made: list[int] = []
    numbers = np.asarray(values).astype(np.float64).reshape(-1) + 0.0
    for bits in numbers.view(np.int64).tolist():
        made += (bits, 0) if bits >= 0 else (bits + INT64_MAX, INT64_MAX)
    return tuple(made)


@op("relax.shape_to_tensor", Opaque())
def shape_to_tensor(expr: Expr) -> Rule:
    """A shape as a vector of its dimensions.

    expr: a shape of rank n
    result: (n,), int64
    """
    info = want_shape(expr, "expr")

    def lower() -> Expr:
        return index_constant(static(literal_dims(expr, "expr")), "int64")

    return tensor(None if info.ndim == -1 else (info.ndim,), "int64", 1), lower


@op("relax.number_to_tensor", Opaque())
def number_to_tensor(
    value: PrimLike,
    dtype: DTypeLike = "float32",
    least: float | None = None,
    below: float | None = None,
) -> StructInfo:
    """A number, which may be symbolic, as a tensor.

    value: a number, such as ``R.prim_value(n)``; least, below: what it must not be less than, and
            what it must be less than, which is checked when it is known
    result: (), ``dtype``
    Raises ``OpError`` for a number outside of these.
    """
    number = _literal(value)
    if number is not None:
        low = least is not None and not number >= least
        if low or (below is not None and not number < below):
            raise OpError(f"the number {number} is outside of [{least}, {below})")
    return tensor((), dtype or "float32")


def _literal(value: PrimLike) -> float | None:
    """A scalar operand as a number of Python; None while it is symbolic."""
    known = prim_of(value, "value")
    number = None if known is None else tir.simplify(known)
    if isinstance(number, tir.IntImm | tir.FloatImm):
        return number.value
    return number if isinstance(number, int) else None


@number_to_tensor.legalize
def _(
    value: PrimLike,
    dtype: DTypeLike = "float32",
    least: float | None = None,
    below: float | None = None,
) -> Expr:
    number = _literal(value)
    if number is None:
        raise LegalizeError("a number as a tensor must be known")
    return scalar(number, dtype or "float32")


@op("relax.size", Opaque())
def size(expr: Expr) -> Rule:
    """The number of elements of a tensor.

    expr: any tensor
    result: (), int64
    """
    want_tensor(expr, "expr")
    return tensor((), "int64"), lambda: scalar(product(static_shape(expr)), "int64")


def as_vdevice(device: Any) -> VDevice | None:
    """A virtual device; None for what names none (a runtime device is a hint without effect)."""
    if isinstance(device, VDevice):
        return device
    return VDevice(device) if isinstance(device, str) else None


@op("relax.hint_on_device", Opaque())
def hint_on_device(data: Expr, dst_vdevice: Any) -> Rule:
    """States on which device ``data`` is wanted; the value is not changed.

    data: (*s), any dtype; dst_vdevice: a VDevice, its target's name or a runtime device
    result: ``data`` on that device
    """
    return _moved(data, dst_vdevice), lambda: _placed(data, dst_vdevice)


@op("relax.to_vdevice", Opaque())
def to_vdevice(data: Expr, dst_vdevice: Any) -> Rule:
    """``data`` copied to a device.

    data: (*s), any dtype; dst_vdevice: a VDevice or its target's name
    result: ``data`` on that device
    """
    if as_vdevice(dst_vdevice) is None:
        raise OpError(f"`dst_vdevice` must be a VDevice or a target's name; got {dst_vdevice!r}")
    return _moved(data, dst_vdevice), lambda: _placed(data, dst_vdevice)


def _placed(data: Expr, device: Any) -> Expr:
    info = _moved(data, device)
    # A reshape to the same shape costs nothing and carries the new struct info.
    return data if info == data.struct_info else hlo("reshape", data, out=info)


def _moved(data: Expr, device: Any) -> TensorStructInfo:
    info = want_tensor(data, "data")
    shape = info.dims if info.dims is not None else info.shape
    ndim = info.ndim if shape is None else -1
    return TensorStructInfo(shape, info.dtype, as_vdevice(device) or info.vdevice, ndim)


@op("relax.null_value", Opaque())
def null_value() -> StructInfo:
    """A value that stands for nothing, for optional arguments of packed functions.

    result: an object
    """
    return ObjectStructInfo()
