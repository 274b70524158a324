"""Buffers of loop-level functions, and the expressions that read them.

Semantics are those of TVM v0.20's ``tir``. A buffer is a view of memory: two buffers of one
``data`` variable are the same memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .bounds import Range
from .expr import as_dim, as_expr, as_prim_expr
from .node import Dim, Node, PrimExpr, StandsForExpr, Var, element_of, lanes_of, set_field


class PointerVar(Var):
    """A handle of which is known what it points to: values of ``element`` in memory ``scope``."""

    __slots__ = ("element", "scope")
    element: str
    scope: str
    _fields = ("name", "element", "scope")

    def __init__(self, name: str, element: str, scope: str = "global") -> None:
        super().__init__(name, "handle")
        set_field(self, "element", element)
        set_field(self, "scope", scope)


@dataclass(frozen=True, slots=True, eq=False)
class Buffer(Node):
    """A typed, shaped view of memory. Equality is by identity.

    ``data`` is the pointer (a ``handle`` variable), ``shape`` the sizes, ``dtype`` that of an
    element, ``strides`` the steps in elements (empty: row-major and compact), ``elem_offset`` the
    place of the first element, ``scope`` where it lives (``global``, ``shared``, ``local`` ...).
    """

    data: Var
    shape: tuple[Dim, ...]
    dtype: str
    name: str
    strides: tuple[Dim, ...] = ()
    elem_offset: Dim = 0
    scope: str = "global"
    data_alignment: int = 64
    offset_factor: int = 1
    buffer_type: str = "default"
    axis_separators: tuple[int, ...] = ()

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    def __getitem__(self, indices: PrimExpr | int | Sequence[PrimExpr | int]) -> BufferLoad:
        several = indices if isinstance(indices, Sequence) else (indices,)
        return BufferLoad(self, several)

    def __repr__(self) -> str:
        return f"Buffer({self.name}: {self.dtype}{list(self.shape)})"


def decl_buffer(
    shape: Dim | Sequence[Dim],
    dtype: str | None = None,
    name: str = "buffer",
    data: Var | None = None,
    strides: Sequence[Dim] | None = (),
    elem_offset: Dim | None = None,
    scope: str = "",
    data_alignment: int = -1,
    offset_factor: int = 0,
    buffer_type: str = "",
    axis_separators: Sequence[int] | None = (),
    span: object = None,
) -> Buffer:
    """A new buffer; without ``data`` on memory of its own. Defaults are TVM's.

    A number among the sizes, strides and offsets is an int32. With an ``offset_factor`` and no
    ``elem_offset`` the offset is a variable.
    """
    sizes = (shape,) if isinstance(shape, int | PrimExpr | StandsForExpr) else tuple(shape)
    dims = tuple(map(as_expr, sizes))
    offset = None if elem_offset is None else as_expr(elem_offset)
    if offset is None and offset_factor:
        index = dims[0].dtype if dims else "int32"
        offset = Var(f"{name}_elem_offset", index)
    return buffer_of(
        dims,
        dtype or "float32",
        name,
        data,
        tuple(map(as_expr, strides or ())),
        offset,
        scope or (data.scope if isinstance(data, PointerVar) else ""),
        data_alignment,
        offset_factor,
        buffer_type,
        axis_separators or (),
    )


def buffer_of(
    shape: Sequence[Dim],
    dtype: str,
    name: str,
    data: Var | None = None,
    strides: Sequence[Dim] = (),
    elem_offset: Dim | None = None,
    scope: str = "global",
    data_alignment: int = -1,
    offset_factor: int = 0,
    buffer_type: str = "",
    axis_separators: Sequence[int] = (),
) -> Buffer:
    """A new buffer of dimensions: an int among them is an int64. Defaults are TVM's."""
    return Buffer(
        Var(name, "handle") if data is None else data,
        tuple(as_dim(d) for d in shape),
        dtype,
        name,
        tuple(as_dim(d) for d in strides),
        0 if elem_offset is None else as_dim(elem_offset),
        scope or "global",
        64 if data_alignment <= 0 else data_alignment,
        offset_factor or 1,
        buffer_type or "default",
        tuple(axis_separators),
    )


@dataclass(frozen=True, slots=True, eq=False)
class BufferRegion(Node):
    """A box of a buffer: a range for each axis. Blocks say with it what they read and write."""

    buffer: Buffer
    region: tuple[Range, ...]


class BufferLoad(PrimExpr):
    """``buffer[indices]``, one element; a vector where the last index is a vector.

    The number of indices is the buffer's rank.
    """

    __slots__ = ("buffer", "indices")
    buffer: Buffer
    indices: tuple[PrimExpr, ...]
    _fields = ("buffer", "indices")

    def __init__(self, buffer: Buffer, indices: Sequence[PrimExpr | int]) -> None:
        if len(indices) != buffer.ndim:
            raise ValueError(
                f"the buffer {buffer.name} has {buffer.ndim} axes; got {len(indices)} indices"
            )
        set_field(self, "buffer", buffer)
        set_field(self, "indices", tuple(as_prim_expr(i, "int32") for i in indices))
        lanes = lanes_of(self.indices[-1].dtype) if indices else 1
        total = lanes * lanes_of(buffer.dtype)
        set_field(self, "dtype", element_of(buffer.dtype) + (f"x{total}" if total > 1 else ""))
        hashes = tuple(hash(i) for i in self.indices)
        set_field(self, "_hash", hash(("BufferLoad", id(buffer), hashes)))

    def children(self) -> tuple[PrimExpr, ...]:
        return self.indices

    def payload(self) -> tuple[object, ...]:
        return (self.buffer,)

    def rebuild(self, children: Sequence[PrimExpr]) -> PrimExpr:
        return BufferLoad(self.buffer, children)


class Let(PrimExpr):
    """``body`` with ``var`` standing for ``value``."""

    __slots__ = ("body", "value", "var")
    var: Var
    value: PrimExpr
    body: PrimExpr
    _fields = ("var", "value", "body")

    def __init__(self, var: Var, value: PrimExpr, body: PrimExpr) -> None:
        value, body = as_expr(value), as_expr(body)
        set_field(self, "var", var)
        set_field(self, "value", value)
        set_field(self, "body", body)
        set_field(self, "dtype", body.dtype)
        set_field(self, "_hash", hash(("Let", hash(var), hash(value), hash(body))))

    def children(self) -> tuple[PrimExpr, ...]:
        return (self.value, self.body)

    def payload(self) -> tuple[object, ...]:
        return (self.var,)

    def rebuild(self, children: Sequence[PrimExpr]) -> PrimExpr:
        value, body = children
        return Let(self.var, value, body)
