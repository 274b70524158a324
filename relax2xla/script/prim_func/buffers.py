"""Buffers of a ``T.prim_func``: made from TVM's options, and the methods that texts call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from relax2xla import tir
from relax2xla.script import arithmetic as arith
from relax2xla.script.prim_func import values as v
from relax2xla.tir import stmt as s
from relax2xla.tir.buffer import Buffer, BufferLoad, buffer_of
from relax2xla.tir.vector import Ramp, with_lanes


def dims(values: object, resolve: Callable[[str], tir.Dim]) -> tuple[tir.Dim, ...]:
    """Sizes; a string among them is the name of a symbolic variable."""
    sizes = values if isinstance(values, tuple | list) else (values,)
    return tuple(resolve(x) if isinstance(x, str) else v.dim(x) for x in sizes)


def make(
    resolve: Callable[[str], tir.Dim],
    shape: object,
    dtype: object = "float32",
    data: tir.Var | None = None,
    strides: Sequence[object] | None = None,
    elem_offset: object = None,
    scope: str = "global",
    align: int = -1,
    offset_factor: int = 0,
    buffer_type: str = "",
    axis_separators: Sequence[int] | None = None,
) -> Buffer:
    """A buffer without a name yet. A string among the strides is a new symbolic variable."""
    if buffer_type not in ("", "default", "auto"):
        raise ValueError(f'buffer_type is "default" or "auto"; got {buffer_type!r}')
    scope = v.text(scope, "the scope of a buffer")
    if data is not None and not (isinstance(data, tir.Var) and data.dtype == "handle"):
        raise TypeError(
            f"data= is a pointer such as A.data or T.handle(); got {arith.described(data)}"
        )
    for name, number in (("align", align), ("offset_factor", offset_factor)):
        if not isinstance(number, int):
            raise TypeError(f"{name}= is a number of Python; got {arith.described(number)}")
    sizes = dims(shape, resolve)
    index = _dtype_of(sizes[0]) if sizes else "int32"
    steps = tuple(
        tir.Var(x, index) if isinstance(x, str) else v.dim(x)
        for x in (() if strides is None else strides)
    )
    offset = None if elem_offset is None else v.dim(elem_offset)
    if isinstance(offset, int | tir.IntImm) and offset == 0:
        offset = 0  # the same place, whatever the dtype of the literal
    elif offset is None and offset_factor:
        offset = tir.Var("elem_offset", index)
    return buffer_of(
        sizes,
        v.dtype_name(dtype),
        "",
        data,
        steps,
        offset,
        scope,
        align,
        offset_factor,
        buffer_type,
        [int(i) for i in axis_separators or ()],
    )


def _dtype_of(d: tir.Dim) -> str:
    return "int64" if isinstance(d, int) else d.dtype


def named(buffer: Buffer, name: str) -> Buffer:
    """Give a buffer that was just made, and what is its own, a name."""
    object.__setattr__(buffer, "name", name)
    # A pointer that has a name keeps it, else the text of a text would have another.
    if not buffer.data.name:
        object.__setattr__(buffer.data, "name", name)
    for i, step in enumerate(buffer.strides):
        if isinstance(step, tir.Var):
            object.__setattr__(step, "name", f"{name}_s{i}")
    return buffer


# -- methods -------------------------------------------------------------------------------------
def _access_ptr(
    buffer: Buffer,
    access_mask: str | int,
    ptr_type: str = "handle",
    content_lanes: int = 1,
    offset: object = 0,
    extent: object = None,
) -> tir.PrimExpr:
    if content_lanes != 1 or ptr_type != "handle":
        raise v.Unread(None, "access_ptr with lanes or a type of pointer is not read")
    if isinstance(access_mask, str):
        access_mask = sum({"r": 1, "w": 2}[c] for c in set(access_mask))
    whole: tir.PrimExpr
    if buffer.strides:
        whole = v.number64(buffer.strides[0]) * v.number64(buffer.shape[0])
    else:
        whole = v.number(1) if not buffer.shape else v.number64(buffer.shape[0])
        for d in buffer.shape[1:]:
            whole = whole * v.number64(d)
    start = v.number(offset)
    held = v.number(extent) if extent is not None else whole - start
    zero = isinstance(buffer.elem_offset, int | tir.IntImm) and buffer.elem_offset == 0
    at = start if zero else v.number64(buffer.elem_offset) + start
    kind = tir.Call(buffer.dtype, "tir.type_annotation", ())
    args = (kind, buffer.data, at, held, v.number(access_mask))
    return tir.Call("handle", "tir.tvm_access_ptr", args)


def _vector(buffer: Buffer, begin: object, dtype: str) -> list[tir.PrimExpr]:
    indices = [v.number(i) for i in (begin if isinstance(begin, tuple | list) else (begin,))]
    lanes = tir.lanes_of(dtype) // tir.lanes_of(buffer.dtype)
    if with_lanes(buffer.dtype, tir.lanes_of(dtype)) != dtype:
        raise TypeError(f"the buffer {buffer.name} holds {buffer.dtype}; got {dtype}")
    if lanes != 1 and tir.lanes_of(indices[-1].dtype) == 1:
        indices[-1] = Ramp(indices[-1], tir.const(1, indices[-1].dtype), lanes)
    return indices


def _vload(
    buffer: Buffer, begin: object, dtype: object = None, predicate: object = None
) -> BufferLoad:
    name = buffer.dtype if dtype is None else v.dtype_name(dtype)
    mask = None if predicate is None else v.number(predicate)
    return BufferLoad(buffer, _vector(buffer, begin, name), mask)


def _vstore(
    buffer: Buffer, begin: object, value: object, predicate: object = None
) -> s.BufferStore:
    held = v.number(value)
    mask = None if predicate is None else v.number(predicate)
    return s.BufferStore(buffer, held, tuple(_vector(buffer, begin, held.dtype)), mask)


METHODS: Final[dict[str, Callable[..., Any]]] = {
    "access_ptr": _access_ptr,
    "vload": _vload,
    "vstore": _vstore,
    "scope": lambda buffer: buffer.scope,
}
