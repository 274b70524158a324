"""Buffers of loop-level functions, and the expressions that read them.

Semantics are those of TVM v0.20's ``tir``. A buffer is a view of memory: two buffers of one
``data`` variable are the same memory.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final, TypeAlias, cast

from relax2xla.errors import OperandTypeError, OpError
from relax2xla.tir.arith.bounds import Range
from relax2xla.tir.convert import as_dim, as_expr, as_prim_expr
from relax2xla.tir.node import (
    Dim,
    Node,
    PrimExpr,
    StandsForExpr,
    Var,
    element_of,
    lanes_of,
    operations,
    set_field,
)


class PointerVar(Var):
    """A handle of which is known what it points to: values of ``element`` in memory ``scope``."""

    __slots__ = ("element", "scope")
    element: str
    scope: str
    _fields = ("name", "element", "scope")

    def __init__(self, name: str, element: Any, scope: str = "global") -> None:
        super().__init__(name, "handle")
        if not isinstance(element, str):  # a type of relax2xla.ir
            element, scope = element.element_type.dtype, element.storage_scope
        set_field(self, "element", element)
        set_field(self, "scope", scope)

    @property
    def type_annotation(self) -> Any:
        types = importlib.import_module("relax2xla.ir.types")
        return types.PointerType(types.PrimType(self.element), self.scope)


operations["PointerVar"] = PointerVar


STORAGE_SCOPES: Final = (
    *("global", "shared", "local", "warp", "texture"),
    *("wmma.matrix_a", "wmma.matrix_b", "wmma.accumulator", "metal.simdgroup", "amx.tmm"),
    *("m16n8k8.matrixA", "m16n8k8.matrixB", "m16n8k8.matrixC"),
)
"""Where buffers live: these, and with a tag behind them (``shared.dyn``)."""


def is_storage_scope(scope: str) -> bool:
    """Whether TVM knows the scope; the empty one is ``global``."""
    return not scope or any(f"{scope}.".startswith(f"{known}.") for known in STORAGE_SCOPES)


Index: TypeAlias = "PrimExpr | int | slice"
"""What stands between the brackets after a buffer."""


@dataclass(frozen=True, slots=True, eq=False)
class Buffer(Node):
    """A typed, shaped view of memory. Equality is by identity.

    ``data`` is the pointer (a ``handle`` variable), ``shape`` the sizes, ``dtype`` that of an
    element, ``strides`` the steps in elements (empty: row-major and compact), ``elem_offset`` the
    place of the first element, ``scope`` where it lives (``global``, ``shared``, ``local`` ...).
    ``line`` is the line of the script that allocates it, or 0.
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
    line: int = field(default=0, kw_only=True)

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    # Python would ask for one element after the other, without an end.
    __iter__: ClassVar[None] = None

    def __getitem__(self, indices: Index | Sequence[Index]) -> BufferLoad | BufferRegion:
        """An element; with slices a region, with slices that have a step a vector."""
        return self.item(indices)

    def item(self, indices: Index | Sequence[Index]) -> Any:
        """As ``self[indices]``."""
        several = indices if isinstance(indices, Sequence) else (indices,)
        if not any(isinstance(i, slice) for i in several):
            return BufferLoad(self, cast("Sequence[PrimExpr | int]", several))
        return importlib.import_module("relax2xla.script.prim_func.values").load(
            self, tuple(several), region=True
        )

    READ: ClassVar[int] = 1
    WRITE: ClassVar[int] = 2

    def vload(
        self,
        begin: PrimExpr | int | Sequence[PrimExpr | int],
        dtype: str | None = None,
        predicate: PrimExpr | None = None,
    ) -> BufferLoad:
        """The elements from ``begin`` on, as many as ``dtype`` (``float32x4``) has lanes."""
        return self._method("vload", begin, dtype, predicate)

    def vstore(
        self,
        begin: PrimExpr | int | Sequence[PrimExpr | int],
        value: PrimExpr | float,
        predicate: PrimExpr | None = None,
    ) -> Any:
        """The statement that stores a value, or as many as it has lanes, from ``begin`` on."""
        return self._method("vstore", begin, value, predicate)

    def access_ptr(
        self,
        access_mask: str | int,
        ptr_type: str = "handle",
        content_lanes: int = 1,
        offset: PrimExpr | int = 0,
        extent: PrimExpr | int | None = None,
    ) -> PrimExpr:
        """A pointer into the buffer, for calls; ``access_mask``: "r", "w" or "rw"."""
        return self._method("access_ptr", access_mask, ptr_type, content_lanes, offset, extent)

    def _method(self, name: str, *args: Any) -> Any:
        """As scripts call it: Python's numbers are read as TVM reads them."""
        methods = importlib.import_module("relax2xla.script.prim_func.buffers").METHODS
        return methods[name](self, *args)

    def offset_of(self, indices: Sequence[PrimExpr | int]) -> list[PrimExpr]:
        """The place of an element in memory: one number for each axis of memory."""
        sizes = list(map(as_expr, self.shape))
        steps = list(map(as_expr, self.strides))
        if len(indices) != self.ndim:
            raise OpError(f"the buffer {self.name} has {self.ndim} axes; got {len(indices)}")
        ends = [*self.axis_separators, self.ndim]
        found: list[PrimExpr] = []
        start = 0
        for end in ends:
            place: PrimExpr = as_expr(0)
            for i in range(start, end):
                at = as_expr(indices[i])
                place = place + at * steps[i] if steps else place * sizes[i] + at
            found.append(place)
            start = end
        if len(found) == 1:
            found[0] = found[0] + as_expr(self.elem_offset)
        analyzer = importlib.import_module("relax2xla.tir.arith.analyzer").Analyzer()
        return [as_prim_expr(analyzer.simplify(f), f.dtype) for f in found]

    def get_flattened_buffer(self) -> Buffer:
        """The same memory with one axis for each axis of memory; the buffer itself if it has it."""
        ends = [*self.axis_separators, self.ndim]
        if len(ends) == self.ndim and not self.strides:
            return self
        sizes: list[PrimExpr] = []
        start = 0
        for end in ends:
            size: PrimExpr = as_expr(1)
            for i in range(start, end):
                size = size * as_expr(self.shape[i])
            if self.strides and start < end:
                size = as_expr(self.strides[start]) * as_expr(self.shape[start])
            sizes.append(size)
            start = end
        return replace(
            self,
            shape=tuple(as_dim(d) for d in sizes),
            strides=(),
            axis_separators=tuple(range(1, len(ends))),
        )

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
    """A new buffer of dimensions: an int among them is an int64. Defaults are TVM's.

    OpError where the strides or the separators are not those of as many axes.
    """
    ends = list(axis_separators)
    if ends != sorted(ends) or any(not 0 <= e <= len(shape) for e in ends):
        raise OpError(f"the axis_separators {ends} do not part {len(shape)} axes in order")
    if strides and len(strides) != len(shape):
        raise OpError(f"{len(strides)} strides for {len(shape)} axes; a buffer has one for each")
    return Buffer(
        PointerVar(name, dtype, scope or "global") if data is None else data,
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

    The number of indices is the buffer's rank. ``predicate``, a vector of bools, says which lanes
    are read.
    """

    __slots__ = ("buffer", "indices", "predicate")
    buffer: Buffer
    indices: tuple[PrimExpr, ...]
    predicate: PrimExpr | None
    _fields = ("buffer", "indices", "predicate")

    def __init__(
        self,
        buffer: Buffer,
        indices: Sequence[PrimExpr | int],
        predicate: PrimExpr | None = None,
    ) -> None:
        if len(indices) != buffer.ndim:
            raise ValueError(
                f"the buffer {buffer.name} has {buffer.ndim} axes; got {len(indices)} indices"
            )
        set_field(self, "buffer", buffer)
        set_field(self, "indices", tuple(as_prim_expr(i, "int32") for i in indices))
        check_indices(buffer, self.indices)
        lanes = lanes_of(self.indices[-1].dtype) if indices else 1
        total = lanes * lanes_of(buffer.dtype)
        many = "" if total == 1 else f"xvscalex{-total}" if total < 0 else f"x{total}"
        set_field(self, "dtype", element_of(buffer.dtype) + many)
        if predicate is not None:
            check_predicate(predicate, lanes, "load indices", "load a vector")
        set_field(self, "predicate", predicate)
        hashes = tuple(hash(i) for i in (*self.indices, predicate))
        set_field(self, "_hash", hash(("BufferLoad", id(buffer), hashes)))

    def children(self) -> tuple[PrimExpr, ...]:
        return self.indices if self.predicate is None else (*self.indices, self.predicate)

    def payload(self) -> tuple[object, ...]:
        return (self.buffer,)

    def rebuild(self, children: Sequence[PrimExpr]) -> BufferLoad:
        return self.of(self.buffer, children)

    def of(self, buffer: Buffer, children: Sequence[PrimExpr]) -> BufferLoad:
        """The same load of another buffer, with other children."""
        n = len(self.indices)
        return BufferLoad(buffer, children[:n], children[n] if len(children) > n else None)


def check_indices(buffer: Buffer, indices: Sequence[PrimExpr]) -> None:
    """ValueError where an index before the last one is a vector."""
    for i, index in enumerate(indices[:-1]):
        if lanes_of(index.dtype) != 1:
            raise ValueError(
                f"the buffer {buffer.name} has a vector (a slice) for index {i}; only the last "
                "index can be one. Take the elements in a loop"
            )


def check_predicate(predicate: PrimExpr, lanes: int, beside: str, doing: str) -> None:
    """OpError unless ``predicate`` is a vector of as many bools as there are lanes."""
    if element_of(predicate.dtype) != "bool":
        raise OpError(
            "Predicate mask elements must be boolean values, but got "
            f"{element_of(predicate.dtype)}."
        )
    own = lanes_of(predicate.dtype)
    if (own < 0) != (lanes < 0):
        raise OpError(f"Predicate mask dtype and {beside} must both be scalable.")
    if own != lanes:
        raise OpError(
            f"Got a predicate mask with {abs(own)} lanes, but trying to {doing} with {abs(lanes)} "
            "lanes. The number of lanes must match."
        )


class Let(PrimExpr):
    """``body`` with ``var`` standing for ``value``."""

    __slots__ = ("body", "value", "var")
    var: Var
    value: PrimExpr
    body: PrimExpr
    _fields = ("var", "value", "body")

    def __init__(self, var: Var, value: PrimExpr, body: PrimExpr) -> None:
        value, body = as_expr(value), as_expr(body)
        if value.dtype != var.dtype and var.dtype != "handle":
            raise OperandTypeError(
                f"Let: {var.name} is {var.dtype}, and cannot stand for `{value}` of {value.dtype}"
            )
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
