"""Shapes and dtypes of a call: what its program is found by, and what ``warm`` compiles ahead."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from relax2xla import tir
from relax2xla.dtypes import DTYPES, dtype_name
from relax2xla.errors import CallError
from relax2xla.ir import (
    ObjectStructInfo,
    PrimStructInfo,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
    Var,
)
from relax2xla.ir.lattice import free_symbolic_vars, substitute
from relax2xla.ir.struct_info import flatten_info, show

# For each leaf of the arguments the shape and numpy dtype of a tensor, a shape, or a number.
Key = tuple[Any, ...]


def key_of(infos: Sequence[StructInfo]) -> Key:
    """The key of arguments of these struct infos; CallError if they are not static."""
    return tuple(_key_of(leaf) for i in infos for leaf in flatten_info(i))


def _key_of(info: StructInfo) -> Any:
    if isinstance(info, TensorStructInfo):
        if info.dims is None or not all(isinstance(d, int) for d in info.dims):
            raise CallError(
                f"{show(info)} is not static; give each symbolic dimension a size, as in "
                'vm.warm("main", n=8), or the shape of each argument, as in vm.warm("main", (8, 4))'
            )
        row = DTYPES.get(info.dtype)
        if row is None:
            what = f"has the dtype {info.dtype}, which" if info.dtype else "says no dtype, which"
            raise CallError(
                f"{show(info)} {what} no array has; give the struct info of each argument, as in "
                'vm.warm("main", TensorStructInfo((8, 4), "float32"))'
            )
        return (tuple(info.dims), np.dtype(row.numpy))
    if isinstance(info, ShapeStructInfo):
        return info.values
    return info.value if isinstance(info, PrimStructInfo) else None


def infos_of(params: Sequence[Var], key: Sequence[Any]) -> list[StructInfo]:
    """Struct infos of the arguments for ``params`` of a call, from its key."""
    rest = iter(key)

    def build(info: StructInfo) -> StructInfo:
        if isinstance(info, TupleStructInfo):
            return TupleStructInfo([build(f) for f in info.fields])
        item = next(rest)
        if isinstance(info, TensorStructInfo):
            return TensorStructInfo.make(tuple(item[0]), dtype_name(item[1]))
        if isinstance(info, ShapeStructInfo):
            return ShapeStructInfo(item)
        if isinstance(info, PrimStructInfo):
            return PrimStructInfo(info.dtype, item)
        return ObjectStructInfo()

    return [build(p.struct_info) for p in params]


def difference(
    params: Sequence[Var],
    before: Sequence[StructInfo],
    now: Sequence[StructInfo],
    old_numbers: Mapping[str, int | float] | None = None,
    new_numbers: Mapping[str, int | float] | None = None,
) -> str:
    """How the arguments of two calls differ, dimension by dimension with its symbolic name.

    old_numbers, new_numbers: what symbolic variables stand for, by name; then a shape among the
        arguments, which holds values that the program has read, is told by these
    """
    found: list[str] = []
    old_numbers, new_numbers = old_numbers or {}, new_numbers or {}

    def compare(name: str, said: StructInfo, a: StructInfo, b: StructInfo) -> None:
        if a == b:
            return
        if isinstance(a, TupleStructInfo) and isinstance(b, TupleStructInfo):
            fields = said.fields if isinstance(said, TupleStructInfo) else a.fields
            for i, parts in enumerate(zip(fields, a.fields, b.fields, strict=False)):
                compare(f"{name}[{i}]", *parts)
            return
        if isinstance(a, TensorStructInfo) and isinstance(b, TensorStructInfo):
            old, new = a.dims, b.dims
            if old is not None and new is not None and len(old) == len(new) and a.dtype == b.dtype:
                dims = said.dims if isinstance(said, TensorStructInfo) else None
                for i, (x, y) in enumerate(zip(old, new, strict=True)):
                    if x != y:
                        symbol = f" ({dims[i]})" if dims is not None and len(dims) > i else ""
                        found.append(f"dimension {i}{symbol} of `{name}` was {x} and is {y}")
                return
        if isinstance(said, ShapeStructInfo) and said.values is not None:
            names = [d.name for d in said.values if isinstance(d, tir.Var)]
            told = [
                f"`{n}` was {old_numbers[n]} and is {new_numbers[n]}"
                for n in names
                if n in old_numbers and n in new_numbers and old_numbers[n] != new_numbers[n]
            ]
            if told:
                found.extend(told)
                return
        found.append(f"`{name}` was {show(a)} and is {show(b)}")

    for p, a, b in zip(params, before, now, strict=True):
        compare(p.name_hint, p.struct_info, a, b)
    return ", ".join(found) or "the arguments are those of an earlier program, which was dropped"


# -- shapes to compile ahead -----------------------------------------------------------------------
def dimension(function: str, params: Sequence[Var], name: str) -> tir.Var:
    """The symbolic dimension ``name`` of a function's parameters; CallError without one."""
    known = {v.name: v for p in params for v in free_symbolic_vars(p.struct_info)}
    if name not in known:
        raise CallError(
            f"{function} has no symbolic dimension {name!r}; it has {', '.join(known) or 'none'}"
        )
    return known[name]


def call_shapes(
    function: str,
    params: Sequence[Var],
    shapes: Sequence[StructInfo | Sequence[int]],
    sizes: Mapping[str, int | Sequence[int]],
) -> list[list[StructInfo]]:
    """Struct infos of the arguments of all calls to compile for."""
    declared = [p.struct_info for p in params]
    if not sizes:
        if shapes and len(shapes) != len(declared):
            names = ", ".join(p.name_hint for p in params)
            raise CallError(
                f"warm: {function} takes {len(declared)} arguments ({names}); got "
                f"{len(shapes)} shapes"
            )
        made: list[StructInfo] = []
        for info, given in zip(declared, shapes, strict=False):
            if isinstance(given, StructInfo):
                made.append(given)
            elif isinstance(info, TensorStructInfo):
                made.append(TensorStructInfo.make(tuple(map(operator.index, given)), info.dtype))
            else:
                raise CallError(f"warm: give a struct info for the parameter that is {show(info)}")
        return [made or declared]
    if shapes:
        raise CallError("warm takes shapes or sizes by name, not both")
    dims = [dimension(function, params, key) for key in sizes]
    lists = [sizes_of("warm", key, given) for key, given in sizes.items()]
    return [
        [substitute(i, dict(zip(dims, combination, strict=True))) for i in declared]
        for combination in itertools.product(*lists)
    ]


def sizes_of(what: str, name: str, given: int | Sequence[int]) -> list[int]:
    """One size of a dimension, or several."""
    try:
        several = [given] if isinstance(given, int) else given
        return list(map(operator.index, several))
    except TypeError:
        raise TypeError(
            f"{what}: give {name} one size or several, as {name}=[8, 64]; got {given!r}"
        ) from None
