"""TVM's containers and object classes, by what stands for them here (docs/parity.md)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, cast

from relax2xla.dtypes import dtype_info, dtype_name
from relax2xla.errors import UnsupportedError
from relax2xla.ir import ExternFunc, Function
from relax2xla.ir.object_path import ObjectPath as ObjectPath
from relax2xla.op.inspect import CODES, KIND_CODES, type_code
from relax2xla.runtime import ShapeTuple
from relax2xla.tir import PrimFunc
from relax2xla.tir.convert import as_expr

Array = tuple
Shape = ShapeTuple

String = str
Object = object
BaseFunc = (Function, PrimFunc, ExternFunc)


# Integers of any width; a dtype and the lanes of a vector.
_INTEGER: Final = re.compile(r"(u?int)([1-9]\d*)")
_VECTOR: Final = re.compile(r"(.*[a-z\d])x([1-9]\d*)")


class _AnyMap(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, Mapping)


class Map(dict[Any, Any], metaclass=_AnyMap):
    """A dictionary. Any mapping counts as an instance, such as the attributes of a call."""


class _AnyName(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, str)


class DataType(str, metaclass=_AnyName):
    """A dtype's name with its parts. Names that are plain strings count as instances.

    Integers of any width and vectors have names, too (``int3``, ``float32x4``), as formats of
    packed weights are described with them; no array has such a dtype.
    """

    __slots__ = ()

    def __new__(cls, dtype: Any) -> DataType:
        vector = _VECTOR.fullmatch(dtype) if isinstance(dtype, str) else None
        element, lanes = vector.groups() if vector is not None else (dtype, "")
        if isinstance(element, str) and element.endswith("xvscale"):
            raise ValueError(
                f"{dtype} is a vector whose length only the processor knows, which has no size "
                "here; name the lanes by number, as in float32x4"
            )
        if not (isinstance(element, str) and _INTEGER.fullmatch(element)):
            element = dtype_name(element)
        return super().__new__(cls, f"{element}x{lanes}" if lanes else element)

    def _element(self) -> str:
        vector = _VECTOR.fullmatch(self)
        return str(self) if vector is None else vector.group(1)

    @property
    def type_code(self) -> int:
        """TVM's number for the kind: 0 int, 1 uint and bool, 2 float, 4 bfloat, ..."""
        integer = _INTEGER.fullmatch(self._element())
        return KIND_CODES[integer.group(1)] if integer is not None else type_code(self._element())

    @property
    def bits(self) -> int:
        """The bits of one element."""
        integer = _INTEGER.fullmatch(self._element())
        return int(integer.group(2)) if integer is not None else dtype_info(self._element()).bits

    @property
    def lanes(self) -> int:
        """The elements of a vector; 1 for a scalar."""
        vector = _VECTOR.fullmatch(self)
        return 1 if vector is None else int(vector.group(2))

    def itemsize(self) -> int:
        """The bytes of all the lanes together: sub-byte elements are packed, then rounded up."""
        return -(-self.bits * self.lanes // 8)


class DataTypeCode:
    """TVM's numbers of kinds of dtypes: what ``DataType(...).type_code`` gives."""

    INT, UINT, FLOAT = (KIND_CODES[kind] for kind in ("int", "uint", "float"))
    HANDLE = 3
    BFLOAT = CODES["bfloat16"]
    Float8E4M3FN = CODES["float8_e4m3fn"]
    Float8E5M2 = CODES["float8_e5m2"]
    Float4E2M1FN = CODES["float4_e2m1fn"]


def convert(value: Any) -> Any:
    """A value of Python as programs of TVM hold it: numbers as literals, lists as tuples.

    A function of Python and an array stay what they are.
    """
    if isinstance(value, bool | int | float):
        return as_expr(value)
    if isinstance(value, list | tuple):
        return tuple(convert(x) for x in cast("list[Any]", value))
    if isinstance(value, dict):
        return {k: convert(x) for k, x in cast("dict[Any, Any]", value).items()}
    return value


def make_node(type_key: str, **fields: Any) -> Any:
    """A node by its name in TVM. There is one of whose class programs make none: DictAttrs."""
    if type_key != "DictAttrs":
        raise UnsupportedError(
            f"tvm.ir.make_node({type_key!r}) is not part of relax2xla; call the class instead"
        )
    return dict(fields)
