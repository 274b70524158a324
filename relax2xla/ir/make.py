"""Expressions from Python values: constants, packed functions, shapes."""

from __future__ import annotations

from typing import Any

import numpy as np

from relax2xla.dtypes import dtype_name, is_integer, limits, numpy_dtype
from relax2xla.errors import StructInfoError
from relax2xla.ir import late
from relax2xla.ir.base import Span
from relax2xla.ir.expr import Constant, Expr, ExternFunc
from relax2xla.ir.struct_info import StructInfo, TensorStructInfo


def const(value: Any, dtype: Any = None) -> Constant:
    """A constant: bool stays bool, int is int32, float is float32, else numpy's rule.

    ``dtype`` overrides. numpy scalars and Python numbers make 0-dimensional constants. As in TVM,
    int64 and float64 *scalars of Python* are narrowed; arrays keep their dtype. The memory of an
    array is shared, not copied: do not write to it afterwards.
    """
    if dtype is None:
        if isinstance(value, bool):
            dtype = "bool"
        elif isinstance(value, int):
            dtype = "int32"
        elif isinstance(value, float) and not isinstance(value, np.generic):
            dtype = "float32"  # np.float64 is a float too, but it has said its dtype
    if isinstance(value, int) and is_integer(dtype_name(dtype)):
        low, high = limits(dtype_name(dtype))
        if not low <= value <= high:
            raise ValueError(
                f"the value {value} does not fit {dtype_name(dtype)}; give const a wider dtype"
            )
    if isinstance(value, Constant):
        value = value.data
    array = np.asarray(value)
    if array.dtype == object or array.dtype.kind in "USM":
        raise ValueError(
            f"cannot make a constant of {type(value).__name__} {value!r}; "
            "give numbers or an array of numbers"
        )
    return Constant(array if dtype is None else array.astype(numpy_dtype(dtype)))


def extern(
    name: str, struct_info: StructInfo | None = None, span: Span | None = None
) -> ExternFunc:
    """The packed function registered as ``name``."""
    return ExternFunc(name, struct_info, span)


def get_shape_of(expr: Expr) -> Expr:
    """The shape of a tensor: its symbolic shape if known, else a call of ``R.shape_of``."""
    info = expr.struct_info
    if not isinstance(info, TensorStructInfo):
        raise StructInfoError(f"get_shape_of needs a tensor; {expr!r} is {info}")
    return info.shape if info.shape is not None else late.operator.call("relax.shape_of")(expr)
