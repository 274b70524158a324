"""Struct infos, call shapes and result trees as plain data, for the manifest of saved executables.

What reads them takes nothing on trust: TypeError, ValueError or KeyError for anything else than
what the functions beside them write.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from relax2xla.dtypes import DTYPES, dtype_name, numpy_dtype
from relax2xla.ir import (
    PrimStructInfo,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
)
from relax2xla.vm.specialise import HostValue


def info_data(info: StructInfo) -> Any:
    """Struct info of static sizes as plain data; None for others, which are in the text."""
    match info:
        case TensorStructInfo() if info.dims is not None and _static(info.dims) and info.dtype:
            return None if info.vdevice is not None else ["tensor", list(info.dims), info.dtype]
        case ShapeStructInfo() if info.values is not None and _static(info.values):
            return ["shape", list(info.values)]
        case ShapeStructInfo() if info.values is None:
            return ["shape", info.ndim]
        case PrimStructInfo() if info.value is None:
            return ["prim", info.dtype]
        case TupleStructInfo():
            fields = [info_data(f) for f in info.fields]
            return None if None in fields else ["tuple", fields]
        case _:
            return None


def _static(dims: Sequence[Any]) -> bool:
    return all(isinstance(d, int) for d in dims)


def read_info(data: Any) -> StructInfo:
    """The inverse of :func:`info_data`; ValueError or TypeError for anything else."""
    kind, value, *rest = data
    if kind == "tensor":
        if not is_shape(value) or rest[0] not in DTYPES:
            raise ValueError(f"no struct info: {data!r}")
        return TensorStructInfo.make(tuple(value), rest[0])
    if kind == "shape":
        return ShapeStructInfo(ndim=value) if isinstance(value, int) else ShapeStructInfo(value)
    if kind == "prim":
        return PrimStructInfo(value)
    if kind == "tuple":
        return TupleStructInfo([read_info(f) for f in value])
    raise ValueError(f"no struct info: {data!r}")


def read_places(value: Any) -> tuple[int, ...]:
    """Places of parameters."""
    if not is_shape(value):
        raise ValueError(f"no places of parameters: {value!r}")
    return tuple(value)


def is_shape(value: Any) -> bool:
    """Whether ``value`` is a list of sizes."""
    return isinstance(value, list) and all(type(d) is int and d >= 0 for d in value)


def is_array_key(item: Any) -> bool:
    """Whether a leaf of a machine's key is a tensor's shape and dtype."""
    return isinstance(item, tuple) and len(item) == 2 and isinstance(item[1], np.dtype)


def key_data(item: Any) -> Any:
    """One leaf of a machine's key: a tensor's shape and dtype, a shape, or a number."""
    if is_array_key(item):
        return ["tensor", list(item[0]), dtype_name(item[1])]
    return ["shape", list(item)] if isinstance(item, tuple) else ["number", item]


def read_key(item: Any) -> Any:
    """The inverse of :func:`key_data`."""
    kind, value, *rest = item
    if kind == "tensor":
        return tuple(value), numpy_dtype(rest[0])
    return tuple(value) if kind == "shape" else value


def tree_data(tree: Any) -> Any:
    """A result's tree as plain data."""
    if isinstance(tree, HostValue):
        value = tree.value
        return {"shape": list(value)} if isinstance(value, tuple) else {"number": value}
    return tree if isinstance(tree, int) else [tree_data(t) for t in tree]


def read_tree(tree: Any, arrays: int) -> Any:
    """The inverse of :func:`tree_data`; ValueError where it names an array that is not there."""
    if isinstance(tree, dict):
        return HostValue(tuple(tree["shape"]) if "shape" in tree else tree["number"])
    if isinstance(tree, list):
        return [read_tree(t, arrays) for t in tree]
    if type(tree) is not int or not 0 <= tree < arrays:
        raise ValueError(f"a result names the array {tree!r} of {arrays}")
    return tree
