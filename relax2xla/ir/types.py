"""Types: what struct info says without shapes. Source: ``relax.ty`` of TVM Relax v0.20.

Relax programs speak in struct info; ``expr.checked_type`` is for programs that ask for less: the
kind of value, its dtype and rank. Types are values: they compare by what they hold.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from relax2xla.dtypes import dtype_name
from relax2xla.ir.base import Scriptable, Span
from relax2xla.ir.struct_info import (
    FuncStructInfo,
    PrimStructInfo,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
)
from relax2xla.tir.node import OTHER_NAMES


class Type(Scriptable):
    """Base class of all types."""

    __slots__ = ()

    def same_as(self, other: object) -> bool:
        """Whether both are the same object."""
        return self is other


@dataclass(frozen=True, slots=True)
class ObjectType(Type):
    """Any value at all."""

    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class ShapeType(Type):
    """A shape of ``ndim`` dimensions; -1: any number."""

    ndim: int = -1
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class TensorType(Type):
    """A tensor of ``ndim`` axes (-1: any number) and a dtype ("" or None: any)."""

    ndim: int = -1
    dtype: str = "float32"
    span: Span | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        """The dtype by its name."""
        object.__setattr__(self, "dtype", dtype_name(self.dtype) if self.dtype else "")


@dataclass(frozen=True, slots=True)
class PrimType(Type):
    """A scalar of a dtype."""

    dtype: str

    def __post_init__(self) -> None:
        """The dtype by its name."""
        object.__setattr__(self, "dtype", dtype_name(OTHER_NAMES.get(self.dtype, self.dtype)))


@dataclass(frozen=True, slots=True)
class PointerType(Type):
    """A pointer to values of ``element_type`` in memory ``storage_scope`` ("" is "global")."""

    element_type: Type
    storage_scope: str = "global"

    def __post_init__(self) -> None:
        if not self.storage_scope:
            object.__setattr__(self, "storage_scope", "global")


@dataclass(frozen=True, slots=True)
class PackedFuncType(Type):
    """A packed function."""

    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True, init=False)
class TupleType(Type):
    """A tuple of values of ``fields``."""

    fields: tuple[Type, ...]

    def __init__(self, fields: Iterable[Type]) -> None:
        """``fields``: any sequence of types."""
        object.__setattr__(self, "fields", tuple(fields))


@dataclass(frozen=True, slots=True, init=False)
class FuncType(Type):
    """A function from ``arg_types`` to ``ret_type``."""

    arg_types: tuple[Type, ...]
    ret_type: Type

    def __init__(self, arg_types: Iterable[Type], ret_type: Type) -> None:
        """``arg_types``: any sequence of types."""
        object.__setattr__(self, "arg_types", tuple(arg_types))
        object.__setattr__(self, "ret_type", ret_type)


def type_of(info: StructInfo) -> Type:
    """The type of values of a struct info; an opaque function's is PackedFuncType."""
    match info:
        case TensorStructInfo():
            return TensorType(info.ndim, info.dtype)
        case ShapeStructInfo():
            return ShapeType(info.ndim)
        case PrimStructInfo():
            return PrimType(info.dtype)
        case TupleStructInfo():
            return TupleType(map(type_of, info.fields))
        case FuncStructInfo():
            if info.params is None:
                return PackedFuncType()
            return FuncType(map(type_of, info.params), type_of(info.ret))
        case _:
            return ObjectType()
