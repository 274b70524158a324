"""Shapes as values: shape_of, tensor_to_shape, shape_to_tensor, size; and where tensors live.

Sources: TVM Relax v0.20.
"""

from __future__ import annotations

from typing import Any

from relax2xla.errors import LegalizeError, OpError
from relax2xla.ir.base import VDevice
from relax2xla.ir.expr import Constant, Expr, ShapeExpr
from relax2xla.ir.op import op
from relax2xla.ir.struct_info import (
    ObjectStructInfo,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
)
from relax2xla.op._lower import hlo, index_constant, scalar, static
from relax2xla.op._lower import shape_of as static_shape
from relax2xla.op._rules import INTEGER, literal_dims, product, tensor, want_shape, want_tensor


@op("relax.shape_of")
def shape_of(expr: Expr) -> StructInfo:
    """The shape of a tensor.

    expr: any tensor
    result: a shape, with the dimensions that are known
    """
    info = want_tensor(expr, "expr")
    if info.dims is not None:
        return ShapeStructInfo(info.dims)
    return ShapeStructInfo(ndim=info.ndim)


@shape_of.legalize
def _(expr: Expr) -> Expr:
    return ShapeExpr(static_shape(expr))


@op("relax.tensor_to_shape")
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


@op("relax.shape_to_tensor")
def shape_to_tensor(expr: Expr) -> StructInfo:
    """A shape as a vector of its dimensions.

    expr: a shape of rank n
    result: (n,), int64
    """
    info = want_shape(expr, "expr")
    return tensor(None if info.ndim == -1 else (info.ndim,), "int64", 1)


@shape_to_tensor.legalize
def _(expr: Expr) -> Expr:
    return index_constant(static(literal_dims(expr, "expr")), "int64")


@op("relax.size")
def size(expr: Expr) -> StructInfo:
    """The number of elements of a tensor.

    expr: any tensor
    result: (), int64
    """
    want_tensor(expr, "expr")
    return tensor((), "int64")


@size.legalize
def _(expr: Expr) -> Expr:
    return scalar(product(static_shape(expr)), "int64")


def as_vdevice(device: Any) -> VDevice | None:
    """A virtual device; None for what names none (a runtime device is a hint without effect)."""
    if isinstance(device, VDevice):
        return device
    return VDevice(device) if isinstance(device, str) else None


@op("relax.hint_on_device")
def hint_on_device(data: Expr, dst_vdevice: Any) -> StructInfo:
    """States on which device ``data`` is wanted; the value is not changed.

    data: (*s), any dtype; dst_vdevice: a VDevice, its target's name or a runtime device
    result: ``data`` on that device
    """
    return _moved(data, dst_vdevice)


@hint_on_device.legalize
def _(data: Expr, dst_vdevice: Any) -> Expr:
    return _placed(data, dst_vdevice)


@op("relax.to_vdevice")
def to_vdevice(data: Expr, dst_vdevice: Any) -> StructInfo:
    """``data`` copied to a device.

    data: (*s), any dtype; dst_vdevice: a VDevice or its target's name
    result: ``data`` on that device
    """
    if as_vdevice(dst_vdevice) is None:
        raise OpError(f"`dst_vdevice` must be a VDevice or a target's name; got {dst_vdevice!r}")
    return _moved(data, dst_vdevice)


@to_vdevice.legalize
def _(data: Expr, dst_vdevice: Any) -> Expr:
    return _placed(data, dst_vdevice)


def _placed(data: Expr, device: Any) -> Expr:
    info = _moved(data, device)
    # A reshape to the same shape costs nothing and carries the new struct info.
    return data if info == data.struct_info else hlo("reshape", data, out=info)


def _moved(data: Expr, device: Any) -> TensorStructInfo:
    info = want_tensor(data, "data")
    shape = info.dims if info.dims is not None else info.shape
    ndim = info.ndim if shape is None else -1
    return TensorStructInfo(shape, info.dtype, as_vdevice(device) or info.vdevice, ndim)


@op("relax.null_value")
def null_value() -> StructInfo:
    """A value that stands for nothing, for optional arguments of packed functions.

    result: an object
    """
    return ObjectStructInfo()
