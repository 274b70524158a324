"""TVM's containers and object classes, by what stands for them here (docs/parity.md)."""

from __future__ import annotations

from typing import Any

from relax2xla.dtypes import dtype_info, dtype_name
from relax2xla.ir import ExternFunc, Function
from relax2xla.op.inspect import type_code
from relax2xla.runtime import ShapeTuple
from relax2xla.tir import PrimFunc

Array = tuple
Shape = ShapeTuple
Map = dict
String = str
Object = object
BaseFunc = (Function, PrimFunc, ExternFunc)


class _AnyName(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, str)


class DataType(str, metaclass=_AnyName):
    """A dtype's name with its parts. Names that are plain strings count as instances."""

    __slots__ = ()
    lanes = 1

    def __new__(cls, dtype: Any) -> DataType:
        return super().__new__(cls, dtype_name(dtype))

    @property
    def type_code(self) -> int:
        """TVM's number for the kind: 0 int, 1 uint and bool, 2 float, 4 bfloat, ..."""
        return type_code(str(self))

    @property
    def bits(self) -> int:
        """The bits of one element."""
        return dtype_info(str(self)).bits
