"""``relax.inspect``: properties of a tensor as scalars, for code that checks arguments.

What follows from the struct info is known as the result's value. The layout (strides, offsets) of a
tensor whose shape is unknown is that of the array a function is called with.
Source: TVM Relax v0.20.
"""

from __future__ import annotations

from relax2xla import tir
from relax2xla.dtypes import dtype_info
from relax2xla.errors import LegalizeError, OpError
from relax2xla.ir.expr import Expr, PrimValue
from relax2xla.ir.op import Op, Rule, op
from relax2xla.ir.op_param import PrimLike
from relax2xla.ir.struct_info import PrimStructInfo, StructInfo, TensorStructInfo
from relax2xla.ir.traits import Opaque
from relax2xla.op.shared.checks import norm_axis, product, want_tensor
from relax2xla.op.shared.scalars import dim_of
from relax2xla.tir import Dim

# TVM's type codes: DLPack's, but for bool, which is an unsigned integer of one bit, and floats of
# eight and four bits.
KIND_CODES = {"int": 0, "uint": 1, "bool": 1, "float": 2, "complex": 5}
CODES = {"bfloat16": 4, "float8_e4m3fn": 6, "float8_e5m2": 7, "float4_e2m1fn": 8}


def type_code(dtype: str) -> int:
    """TVM's number for the kind of a dtype."""
    return CODES.get(dtype, KIND_CODES[dtype_info(dtype).kind])


def _known(dtype: str, value: Dim | None) -> StructInfo:
    if value is None:
        return PrimStructInfo(dtype)
    return PrimStructInfo(value=tir.const(value, dtype) if isinstance(value, int) else value)


def _constant(x: StructInfo) -> Expr:
    if isinstance(x, PrimStructInfo) and x.value is not None:
        return PrimValue(x.value)
    raise LegalizeError("this property of a tensor is known only when the program runs")


def _bits(info: TensorStructInfo) -> int | None:
    return dtype_info(info.dtype).bits if info.dtype else None


def _property(name: str, dtype: str, text: str) -> Op[[Expr]]:
    @op(
        f"relax.inspect.{name}", Opaque(), doc=f"{text}\n\nx: any tensor\nresult: a scalar, {dtype}"
    )
    def made(x: Expr) -> Rule:
        info = want_tensor(x, "x")
        value: int | None = {
            "tensor_ndim": None if info.ndim == -1 else info.ndim,
            "tensor_dtype_code": type_code(info.dtype) if info.dtype else None,
            "tensor_dtype_bits": _bits(info),
            "tensor_dtype_lanes": 1 if info.dtype else None,
            # As in TVM, tensors of known shape are taken to start where their buffer does.
            "tensor_byte_offset": None if info.dims is None else 0,
            "tensor_elem_offset": None if info.dims is None else 0,
        }[name]
        result = _known(dtype, value)
        return result, lambda: _constant(result)

    return made


tensor_ndim = _property("tensor_ndim", "int32", "The number of axes.")
tensor_dtype_code = _property("tensor_dtype_code", "uint8", "TVM's code of the dtype's kind.")
tensor_dtype_bits = _property("tensor_dtype_bits", "uint8", "The bits of one element.")
tensor_dtype_lanes = _property("tensor_dtype_lanes", "uint16", "The lanes of the dtype: 1.")
tensor_byte_offset = _property("tensor_byte_offset", "uint64", "Where the data starts, in bytes.")
tensor_elem_offset = _property(
    "tensor_elem_offset", "uint64", "Where the data starts, in elements."
)


def _axis(info: TensorStructInfo, axis: Expr) -> int | None:
    at = dim_of(axis, "axis")
    if not isinstance(at, int):
        return None
    if at < 0:
        raise OpError(f"`axis` must not be negative here; got {at}")
    return at if info.ndim == -1 else norm_axis(at, info.ndim)


@op("relax.inspect.tensor_shape_i", Opaque())
def tensor_shape_i(x: Expr, axis: PrimLike) -> Rule:
    """The size of one axis.

    x: any tensor; axis: counted from the front
    result: a scalar, int64
    """
    info = want_tensor(x, "x")
    at = _axis(info, axis)
    made = _known("int64", None if at is None or info.dims is None else info.dims[at])
    return made, lambda: _constant(made)


@op("relax.inspect.tensor_stride_i", Opaque())
def tensor_stride_i(x: Expr, axis: PrimLike) -> Rule:
    """How many elements lie between neighbours along an axis.

    x: any tensor; one of known shape is row-major, one of unknown shape has the strides of the
    array that a function is called with; axis: counted from the front
    result: a scalar, int64
    """
    info = want_tensor(x, "x")
    at = _axis(info, axis)
    made = _known(
        "int64", None if at is None or info.dims is None else product(info.dims[at + 1 :])
    )
    return made, lambda: _constant(made)
