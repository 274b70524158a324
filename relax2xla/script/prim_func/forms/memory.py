"""Buffers and memory: what is matched, declared, allocated and realised."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeGuard

import numpy as np

from relax2xla import tir
from relax2xla.dtypes import numpy_dtype
from relax2xla.script import arithmetic as arith
from relax2xla.script.prim_func import values as v
from relax2xla.script.prim_func.buffers import make
from relax2xla.script.prim_func.forms.axes import as_range
from relax2xla.script.prim_func.forms.owner import Owner, innermost
from relax2xla.script.prim_func.frames import Opener
from relax2xla.tir import stmt as s
from relax2xla.tir.buffer import Buffer, BufferLoad, BufferRegion, PointerVar


def _buffer(owner: Owner, *args: Any, **kwargs: Any) -> Buffer:
    made = partial(make, owner.symbol_named)
    v.bind("a buffer", made, args, kwargs)
    return replace(made(*args, **kwargs), line=owner.line)


def _match_buffer(
    owner: Owner,
    param: object,
    shape: object = None,
    dtype: object = "float32",
    *args: Any,
    **kwargs: Any,
) -> Buffer:
    if isinstance(param, BufferLoad):
        param = v.region_of(param)
    if shape is None:
        if not isinstance(param, BufferRegion):
            raise ValueError("T.match_buffer needs a shape")
        shape = tuple(v.number64(r.extent) for r in param.region)
        dtype = param.buffer.dtype
    buffer = _buffer(owner, shape, dtype, *args, **kwargs)
    if isinstance(param, BufferRegion):
        block = innermost(owner, "T.match_buffer of a region")
        _check_match(buffer, param)
        block.match_buffers.append(s.MatchBufferRegion(buffer, param))
    elif isinstance(param, tir.Var) and any(param is p for p in owner.func.params):
        if param in owner.func.buffer_map:
            raise ValueError(f"the parameter {param.name} is a buffer already; match it once")
        if param.dtype != "handle":
            raise TypeError(
                f"the parameter {param.name} is {param.dtype}; T.match_buffer takes a T.handle"
            )
        check_parameter(buffer)
        owner.func.buffer_map[param] = buffer
    else:
        raise ValueError("T.match_buffer takes a parameter of the function, or a region")
    return buffer


def check_parameter(buffer: Buffer) -> None:
    """ValueError where a parameter has a size that no array has."""
    below = [int(d) for d in buffer.shape if _number(d) and int(d) < 0]
    if below:
        raise ValueError(f"the buffer has the shape {_shown(buffer.shape)}; no size is negative")


def _check_match(buffer: Buffer, source: BufferRegion) -> None:
    """ValueError where a region cannot have the shape of the buffer that views it."""
    if buffer.dtype != source.buffer.dtype:
        raise TypeError(
            f"T.match_buffer: {source.buffer.name} holds {source.buffer.dtype}, the buffer that "
            f"views its region {buffer.dtype}; both have one dtype"
        )
    extents = [tir.simplify(r.extent) for r in source.region]
    ahead = len(extents) - buffer.ndim
    wanted = [*([1] * ahead), *map(tir.simplify, buffer.shape)]
    known = [(a, b) for a, b in zip(extents, wanted, strict=False) if _number(a) and _number(b)]
    if ahead < 0 or any(int(a) != int(b) for a, b in known):
        raise ValueError(
            f"T.match_buffer: the region of {source.buffer.name} has the extents "
            f"{_shown(extents)}, the buffer that views it the shape {_shown(buffer.shape)}; the "
            "last extents are its sizes, and those before are 1"
        )


def _number(value: tir.Dim) -> TypeGuard[int | tir.IntImm]:
    return isinstance(value, int | tir.IntImm)


def _shown(sizes: Sequence[tir.Dim]) -> str:
    return f"({', '.join(str(int(d) if _number(d) else d) for d in sizes)})"


def _alloc_buffer(owner: Owner, *args: Any, **kwargs: Any) -> Buffer:
    buffer = _buffer(owner, *args, **kwargs)
    for frame in reversed(owner.frames):
        if frame.block is not None:
            frame.block.alloc_buffers.append(buffer)
            return buffer
    owner.func.allocated.append(buffer)
    return buffer


def _alloc_in(scope: str, owner: Owner, *args: Any, **kwargs: Any) -> Buffer:
    return _alloc_buffer(owner, *args, **{"scope": scope, **kwargs})


def _decl_buffer(owner: Owner, *args: Any, **kwargs: Any) -> Opener:
    buffer = _buffer(owner, *args, **kwargs)
    given = kwargs.get("data", args[2] if len(args) > 2 else None) is not None
    line = owner.line

    def wrap(body: s.Stmt) -> s.Stmt:
        made = s.DeclBuffer(buffer, body, line=line)
        if given:
            return made
        sizes = tuple(map(v.number64, buffer.shape))
        return s.Allocate(buffer.data, buffer.dtype, sizes, s.TRUE, made, buffer.scope, line=line)

    return Opener(wrap, buffer)


def _allocate(
    owner: Owner,
    extents: Sequence[object],
    dtype: object,
    scope: str = "global",
    condition: object = True,
    annotations: dict[str, Any] | None = None,
) -> Opener:
    name, where = v.dtype_name(dtype), v.text(scope, "the scope of T.allocate")
    var = PointerVar("", name, where)
    sizes = tuple(v.number(v.dim(e)) for e in _several(extents, "the extents of T.allocate"))
    held, line = v.number(condition), owner.line
    more = v.mapping(annotations, "annotations= of T.allocate")
    return Opener(
        lambda body: s.Allocate(var, name, sizes, held, body, where, more, line=line), var
    )


def _several(values: Any, what: str) -> Sequence[Any]:
    if not isinstance(values, list | tuple):
        raise TypeError(f"{what} are a list; got {arith.described(values)}")
    held: Sequence[Any] = values
    return held


def _allocate_const(
    owner: Owner,
    data: Any,
    dtype: object,
    extents: Sequence[object],
    annotations: dict[str, Any] | None = None,
) -> Opener:
    name = v.dtype_name(dtype)
    sizes = tuple(v.number(v.dim(e)) for e in _several(extents, "the extents"))
    more = v.mapping(annotations, "annotations= of T.allocate_const")
    numbers = [
        x.value if isinstance(x, tir.IntImm | tir.FloatImm) else x
        for x in _several(data, "the data of T.allocate_const")
    ]
    wrong = [x for x in numbers if not isinstance(x, int | float)]
    if wrong:
        raise TypeError(f"T.allocate_const takes numbers; got {arith.described(wrong[0])}")
    array = np.asarray(numbers, numpy_dtype(name))
    wanted = [int(n) for n in sizes if isinstance(n, tir.IntImm)]
    if len(wanted) != len(sizes) or math.prod(wanted) != array.size:
        raise ValueError(f"T.allocate_const: {array.size} numbers for the extents {list(sizes)}")
    var, line = PointerVar("", name), owner.line
    return Opener(
        lambda body: s.AllocateConst(var, name, sizes, array, body, more, line=line),
        var,
    )


def _realize(
    owner: Owner, buffer_slice: object, storage_scope: str = "", condition: object = True
) -> Opener:
    region = v.region_of(buffer_slice)
    held, line = v.number(condition), owner.line

    def wrap(body: s.Stmt) -> s.Stmt:
        made = s.BufferRealize(region.buffer, region.region, held, body, line=line)
        scope = tir.StringImm(storage_scope)
        return s.AttrStmt(region.buffer, "realize_scope", scope, made, line=line)

    return Opener(wrap)


def _prefetch(owner: Owner, buffer: object, bounds: Sequence[Any]) -> None:
    if not isinstance(buffer, Buffer):
        raise TypeError(f"T.prefetch takes a buffer; got {buffer!r}")
    ranges = [as_range(b) for b in bounds]
    owner.frames[-1].entries.append(s.Prefetch(buffer, tuple(ranges), line=owner.line))


FORMS: Final[dict[str, Callable[..., Any]]] = {
    "Buffer": _buffer,
    "buffer": _buffer,
    "buffer_decl": _buffer,
    "match_buffer": _match_buffer,
    "alloc_buffer": _alloc_buffer,
    "alloc_local": partial(_alloc_in, "local"),
    "alloc_shared": partial(_alloc_in, "shared"),
    "sblock_alloc_buffer": _alloc_buffer,
    "decl_buffer": _decl_buffer,
    "allocate": _allocate,
    "allocate_const": _allocate_const,
    "realize": _realize,
    "prefetch": _prefetch,
}
