"""Struct infos, call shapes and result trees as plain data, for the manifest of saved executables.

What reads them takes nothing on trust: TypeError, ValueError or KeyError for anything else than
what the functions beside them write.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, get_args, get_origin

import numpy as np

from relax2xla.dtypes import DTYPES, dtype_name, numpy_dtype
from relax2xla.ir import (
    PrimStructInfo,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
)
from relax2xla.runtime.device import Device, Mesh, device
from relax2xla.runtime.shape_tuple import ShapeTuple
from relax2xla.transform.pipeline import STATIC
from relax2xla.vm.call.specialise import HostValue

FORMAT: Final = 1
MODULE: Final = "module.relax"
CODE: Final = "code.json"
# Passes over specialised functions that a file can name: ConvolvePlanes as convolve_planes.
PASSES: Final = {re.sub(r"(?<!^)(?=[A-Z])", "_", p.__name__).lower(): p for p in STATIC}

# Fields of the manifest and of its rows by the class of what they hold; of those that a file of an
# older version may lack, what it has is checked. ``dict[str, X]`` and ``list[X]`` are checked
# throughout; ``object`` is checked by what reads it.
_FIELDS: Final[dict[str, Any]] = {
    "versions": dict[str, str],
    "device": str | None,
    "mesh": dict[str, list[object]] | None,
    "devices": dict[str, str],
    "platform": str,
    "static": dict[str, list[str]],
    "opt_level": int,
    "required_pass": list[str],
    "disabled_pass": list[str],
    "notes": dict[str, list[str]],
    "results": dict[str, list[str]],
    "donated": dict[str, list[int]],
    "platforms": dict[str, str],
    "narrowed": dict[str, list[int]],
    "in_place": dict[str, list[list[int]]],
    "states": dict[str, list[list[object]]],
    "functions": list[dict[str, object]],
    "signatures": dict[str, str],
    "tables": dict[str, list[dict[str, object]]],
    "fingerprint": str | None,
    "custom_calls": list[str],
    "prim_funcs": list[str],
    "native": list[dict[str, object]],
}
_ROW: Final[dict[str, Any]] = {
    "name": str,
    "kind": str,
    "main": str,
    "transform": str | None,
    "params": list[list[object]],
    "sources": list[str],
    "weights": list[object],
    "names": list[str],
    "raw_names": list[str],
    "aliases": dict[str, str],
    "raw_infos": list[object],
    "raw": list[object],
    "packs": list[list[int]],
    "ready": dict[str, dict[str, object]],
    "programs": list[dict[str, object]],
}
_NATIVE: Final[dict[str, Any]] = {
    "file": str,
    "symbols": list[str],
    "digest": str,
    "machine": str,
    "tuned": bool,
}
_PROGRAM: Final[dict[str, Any]] = {
    "file": str,
    "variant": str,
    "key": list[list[object]],
    "outputs": list[list[object]],
    "compiled": str,
}


def device_name(given: Device | None) -> str | None:
    """A device as text; of a mesh the platform."""
    if given is None:
        return None
    return given.platform if isinstance(given, Mesh) else str(given)


def mesh_data(given: Device | None) -> dict[str, Any] | None:
    """A mesh as plain data; None for what is none."""
    if not isinstance(given, Mesh):
        return None
    return {"ids": list(given.ids), "axes": [list(axis) for axis in given.axes]}


def read_device(name: str | None, mesh: Mapping[str, Any] | None) -> Device | None:
    """The inverse of both; ValueError where axes and devices of a mesh do not agree."""
    one = None if name is None else device(name)
    if mesh is None:
        return one
    ids, axes = mesh["ids"], [tuple(axis) for axis in mesh["axes"]]
    named = all(len(a) == 2 and type(a[0]) is str and type(a[1]) is int for a in axes)
    fits = named and math.prod(size for _, size in axes) == len(ids) == len(set(ids))
    if one is None or not ids or not is_shape(ids) or not fits:
        raise ValueError(f"no mesh: {mesh!r}")
    return Mesh(one.platform, ids[0], tuple(ids), tuple(axes))


def check_manifest(manifest: Mapping[str, Any]) -> None:
    """ValueError where a field of a manifest holds something of another class."""
    _check_fields(manifest, _FIELDS, "")
    for row in manifest.get("functions", ()):
        _check_fields(row, _ROW, "a function's ")
        for param in row.get("params", ()):
            if len(param) != 2 or not isinstance(param[0], str):
                raise ValueError(f"no parameter: {param!r}")
        for program in row.get("programs", ()):
            _check_fields(program, _PROGRAM, "a program's ")
    for row in manifest.get("native", ()):
        if set(row) != set(_NATIVE):
            raise ValueError(f"no native code: {repr(row)[:100]}")
        _check_fields(row, _NATIVE, "native code's ")
    for rows in manifest.get("states", {}).values():
        for row in rows:
            places = [type(p) for p in row[1:3]]
            if len(row) != 4 or type(row[0]) is not str or places != [int, int]:
                raise ValueError(f"no state: {row!r}")


def _check_fields(held: Mapping[str, Any], fields: Mapping[str, Any], of: str) -> None:
    for name, form in fields.items():
        if name in held and not _has_form(held[name], form):
            raise ValueError(f"{of}{name!r} cannot be {repr(held[name])[:100]}")


def _has_form(value: Any, form: Any) -> bool:
    """Whether ``value``, of JSON, is of the class ``form``."""
    origin, inner = get_origin(form), get_args(form)
    if form is object:
        return True
    if origin is dict:
        held = isinstance(value, dict)
        return held and all(_has_form(v, inner[1]) for v in value.values())
    if origin is list:
        return isinstance(value, list) and all(_has_form(v, inner[0]) for v in value)
    if inner:  # one of several
        return any(_has_form(value, i) for i in inner)
    return type(value) is form or (form is type(None) and value is None)


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


def read_places(value: Any, count: int | None = None) -> tuple[int, ...]:
    """Places of parameters: ``count`` of them, or any number."""
    if not is_shape(value) or (count is not None and len(value) != count):
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
        return HostValue(ShapeTuple(tree["shape"]) if "shape" in tree else tree["number"])
    if isinstance(tree, list):
        return [read_tree(t, arrays) for t in tree]
    if type(tree) is not int or not 0 <= tree < arrays:
        raise ValueError(f"a result names the array {tree!r} of {arrays}")
    return tree
