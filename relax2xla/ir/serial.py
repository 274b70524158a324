"""Whole IR trees as a table of nodes: saved as JSON, pickled, deep copied.

``save_json`` writes ``{"format", "version", "root", "nodes", "blobs"}``. A node is a list: its
kind, then its fields; a field is a JSON scalar or ``[i]``, a reference to an *earlier* node. So
sharing is kept, cycles cannot be written down, and neither direction recurses. Arrays are bytes in
``blobs`` (base64), bit for bit. Loading checks the type of every field, calls nothing but the
constructors of the table below, and meets bad input with one ``FileFormatError``.

Pickles hold the same text. Variables, plain or symbolic, that are free in what is saved come back
as new variables, as in TVM.
"""

from __future__ import annotations

import base64
import importlib
import json
import math
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import NoneType
from typing import Any, Final, TypeVar

import numpy as np

from relax2xla import tir
from relax2xla.dtypes import DTYPES, dtype_name
from relax2xla.errors import FileFormatError, TVMError
from relax2xla.ir import expr as e
from relax2xla.ir import late
from relax2xla.ir import struct_info as s
from relax2xla.ir.base import Attrs, DummyGlobalInfo, Span, VDevice
from relax2xla.ir.collection import no_collection
from relax2xla.ir.mesh import DeviceMesh, Placement
from relax2xla.ir.module import IRModule
from relax2xla.ir.op import Op
from relax2xla.ir.serial_kernels import (
    AXIS,
    FUNCTION,
    NODES,
    STATEMENTS,
    STORE,
    Fields,
    Many,
    make_axis,
    make_function,
    make_store,
    take_axis,
    take_function,
    take_store,
)

FORMAT, VERSION = "relax2xla.ir", 1
T = TypeVar("T")
Types = tuple[type, ...]


# ---- the table of kinds
@dataclass(frozen=True, slots=True)
class _Many:
    """A field that holds a tuple of these types."""

    types: Types
    optional: bool = False

    def accepts(self, value: Any) -> bool:
        """Whether ``value`` may be the field's."""
        if value is None:
            return self.optional
        return type(value) is tuple and all(isinstance(v, self.types) for v in value)


@dataclass(frozen=True, slots=True)
class _Kind:
    """How one class is taken apart and put together."""

    cls: type
    fields: Mapping[str, Types | _Many]
    make: Callable[..., Any]
    take: Callable[[Any], Sequence[Any]]

    def build(self, values: Sequence[Any]) -> Any:
        """A node of ``values``, which are checked."""
        missing = list(self.fields.values())[len(values) :]
        if missing and all(isinstance(m, tuple) and NoneType in m for m in missing):
            values = [*values, *(None for _ in missing)]
        if len(values) != len(self.fields):
            raise ValueError(f"{len(self.fields)} fields expected, got {len(values)}")
        for (name, accepted), value in zip(self.fields.items(), values, strict=True):
            if isinstance(accepted, _Many):
                good = accepted.accepts(value)
            else:
                good = isinstance(value, accepted) and (type(value) is not bool or bool in accepted)
            if not good:
                raise ValueError(f"the field {name} cannot be {_short(value)}")
        return self.make(*values)


def _short(value: Any) -> str:
    return repr(value)[:60] if isinstance(value, str | int | float | None) else type(value).__name__


OPT_SPAN: Types = (Span, NoneType)
OPT_INFO: Types = (s.StructInfo, NoneType)
DIMS: Types = (int, tir.PrimExpr)
FUNCS: Types = (e.Function, tir.PrimFunc, e.ExternFunc)


def _slots(cls: type, **fields: Types | _Many) -> _Kind:
    """A class whose slots are set directly, so that what is known need not be inferred again."""

    def make(*values: Any) -> Any:
        made: Any = object.__new__(cls)
        for name, value in zip(fields, values, strict=True):
            setattr(made, name, value)
        return made

    return _Kind(cls, fields, make, lambda node: [getattr(node, name) for name in fields])


def _expr(cls: type, **fields: Types | _Many) -> _Kind:
    return _slots(cls, **fields, struct_info_=OPT_INFO, span=OPT_SPAN)


def _built(cls: type, **fields: Types | _Many) -> _Kind:
    """A class whose constructor takes its fields in this order."""
    return _Kind(cls, fields, cls, lambda node: [getattr(node, name) for name in fields])


def _dtype(name: str) -> str:
    if dtype_name(name) != name:
        raise ValueError(f"unknown dtype {name!r}")
    return name


def _tensor(
    shape: Any, dtype: str, vdevice: VDevice | None, ndim: int, span: Span | None
) -> s.TensorStructInfo:
    return s.TensorStructInfo(shape, _dtype(dtype), vdevice, ndim if shape is None else -1, span)


def _take_tensor(info: s.TensorStructInfo) -> Sequence[Any]:
    shape = info.dims if info.dims is not None else info.shape
    return (shape, info.dtype, info.vdevice, info.ndim, info.span)


def _function_info(params: Any, ret: Any, purity: Any, derive: Any, span: Any) -> s.StructInfo:
    return s.FuncStructInfo(params, ret, purity, span, derive_func=derive)


def _module(names: Any, functions: Any, attrs: Attrs, infos: Attrs) -> IRModule:
    return IRModule(dict(zip(names, functions, strict=True)), attrs, dict(infos))


def _take_module(mod: IRModule) -> Sequence[Any]:
    return (tuple(mod.keys()), tuple(mod.values()), mod.attrs, Attrs(mod.global_infos))


def _prim_text(params: Any, body: str, ret_type: Any, attrs: Attrs) -> tir.PrimFunc:
    """A loop-level function of files from before these were trees."""
    why = "it was saved as text"
    return tir.PrimFunc(params, tir.Text(body, why), ret_type, None, dict(attrs))


def _types(fields: Fields) -> dict[str, Types | _Many]:
    return {n: _Many(t.types) if isinstance(t, Many) else t for n, t in fields.items()}


def _statement(cls: type, fields: Fields) -> _Kind:
    """A statement: its fields, and the line it was read from."""

    def make(*values: Any) -> Any:
        *own, line = values
        return cls(*own, line=line)

    names = [*fields, "line"]
    return _Kind(
        cls,
        {**_types(fields), "line": (int,)},
        make,
        lambda node: [getattr(node, name) for name in names],
    )


def _attrs(*pairs: Any) -> Attrs:
    keys, values = pairs[::2], pairs[1::2]
    if len(keys) != len(values) or not all(isinstance(k, str) for k in keys):
        raise ValueError("attributes are pairs of a name and a value")
    made = Attrs.__new__(Attrs)  # the values are frozen already
    object.__setattr__(made, "_items", dict(zip(keys, values, strict=True)))
    return made


def _mesh(shape: Any, ids: tuple[int, ...], is_range: bool) -> DeviceMesh:
    if not is_range:
        return DeviceMesh(shape, ids)
    if ids != tuple(range(ids[0], ids[0] + len(ids)) if ids else ()):
        raise ValueError(f"the devices {ids} are no range")
    return DeviceMesh(shape, range(ids[0], ids[0] + len(ids)) if ids else range(0))


def _float(bits: str) -> float:
    return struct.unpack(">d", bytes.fromhex(bits))[0]


def _constant(data: np.ndarray[Any, Any], info: Any, span: Span | None) -> e.Constant:
    tensor = info.tensor_sinfo if isinstance(info, s.DTensorStructInfo) else info
    dims = s.dims_of(tensor)
    if not isinstance(tensor, s.TensorStructInfo) or dims not in (None, data.shape):
        raise ValueError(f"a constant of shape {data.shape} cannot be {info}")
    return e.Constant(data, info, span)


def _scalar(array: np.ndarray[Any, Any]) -> Any:
    return array[()]


SPAN_FIELDS: dict[str, Types | _Many] = {
    "name": (str,),
    "file": (str,),
    "line": (int,),
    "column": (int,),
    "end_line": (int,),
    "end_column": (int,),
    "kind": (str,),
    "children": _Many((Span,)),
    "metadata": (str,),
}
BINARY = (
    *(tir.Add, tir.Sub, tir.Mul, tir.Div, tir.Mod, tir.FloorDiv, tir.FloorMod, tir.Min, tir.Max),
    *(tir.EQ, tir.NE, tir.LT, tir.LE, tir.GT, tir.GE, tir.And, tir.Or),
)
PRIM: Types = (tir.PrimExpr,)
KINDS: dict[str, _Kind] = {
    "Span": _built(Span, **SPAN_FIELDS),
    "VDevice": _built(VDevice, target=(str,), vdevice_id=(int,), memory_scope=(str,)),
    "DummyGlobalInfo": _built(DummyGlobalInfo),
    "Id": _built(e.Id, name_hint=(str,)),
    # Expressions.
    "Var": _expr(e.Var, vid=(e.Id,)),
    "DataflowVar": _expr(e.DataflowVar, vid=(e.Id,)),
    "GlobalVar": _expr(e.GlobalVar, name_hint=(str,)),
    "Constant": _Kind(
        e.Constant,
        {"data": (np.ndarray,), "struct_info": OPT_INFO, "span": OPT_SPAN},
        _constant,
        lambda node: (node.data, node.struct_info_, node.span),
    ),
    "Tuple": _expr(e.Tuple, fields=_Many((e.Expr,))),
    "TupleGetItem": _expr(e.TupleGetItem, tuple_value=(e.Expr,), index=(int,)),
    "ShapeExpr": _expr(e.ShapeExpr, values=_Many(DIMS)),
    "PrimValue": _expr(e.PrimValue, value=PRIM),
    "StringImm": _expr(e.StringImm, value=(str,)),
    "DataTypeImm": _expr(e.DataTypeImm, value=(str,)),
    "ExternFunc": _expr(e.ExternFunc, global_symbol=(str,)),
    "Call": _expr(
        e.Call,
        op=(e.Expr,),
        args=_Many((e.Expr,)),
        attrs=(Attrs,),
        sinfo_args=_Many((s.StructInfo,)),
    ),
    "If": _expr(e.If, cond=(e.Expr,), true_branch=(e.SeqExpr,), false_branch=(e.SeqExpr,)),
    "SeqExpr": _expr(e.SeqExpr, blocks=_Many((e.BindingBlock,)), body=(e.Expr,)),
    "Function": _expr(
        e.Function,
        params=_Many((e.Var,)),
        body=(e.SeqExpr,),
        ret_struct_info=(s.StructInfo,),
        is_pure=(bool,),
        attrs=(Attrs,),
    ),
    "VarBinding": _slots(e.VarBinding, var=(e.Var,), value=(e.Expr,), span=OPT_SPAN),
    "MatchCast": _slots(
        e.MatchCast, var=(e.Var,), value=(e.Expr,), struct_info=(s.StructInfo,), span=OPT_SPAN
    ),
    "BindingBlock": _slots(e.BindingBlock, bindings=_Many((e.Binding,)), span=OPT_SPAN),
    "DataflowBlock": _slots(e.DataflowBlock, bindings=_Many((e.Binding,)), span=OPT_SPAN),
    "IRModule": _Kind(
        IRModule,
        {
            "names": _Many((e.GlobalVar,)),
            "functions": _Many(FUNCS),
            "attrs": (Attrs,),
            "global_infos": (Attrs,),
        },
        _module,
        _take_module,
    ),
    # Struct infos.
    "ObjectStructInfo": _built(s.ObjectStructInfo, span=OPT_SPAN),
    "PrimStructInfo": _built(
        s.PrimStructInfo, dtype=(str,), value=(tir.PrimExpr, NoneType), span=OPT_SPAN
    ),
    "ShapeStructInfo": _Kind(
        s.ShapeStructInfo,
        {"values": _Many(DIMS, True), "ndim": (int,), "span": OPT_SPAN},
        lambda values, ndim, span: s.ShapeStructInfo(values, ndim if values is None else -1, span),
        lambda info: (info.values, info.ndim, info.span),
    ),
    "TensorStructInfo": _Kind(
        s.TensorStructInfo,
        {
            "shape": (tuple, e.Expr, NoneType),
            "dtype": (str,),
            "vdevice": (VDevice, NoneType),
            "ndim": (int,),
            "span": OPT_SPAN,
        },
        _tensor,
        _take_tensor,
    ),
    "DTensorStructInfo": _built(
        s.DTensorStructInfo,
        tensor_sinfo=(s.TensorStructInfo,),
        device_mesh=(DeviceMesh,),
        placement=(Placement,),
        span=OPT_SPAN,
    ),
    "TupleStructInfo": _built(s.TupleStructInfo, fields=_Many((s.StructInfo,)), span=OPT_SPAN),
    "FuncStructInfo": _Kind(
        s.FuncStructInfo,
        {
            "params": _Many((s.StructInfo,), True),
            "ret": (s.StructInfo,),
            "purity": (bool,),
            "derive_func": (str, NoneType),
            "span": OPT_SPAN,
        },
        _function_info,
        lambda info: (info.params, info.ret, info.purity, info.derive_func, info.span),
    ),
    # Symbolic scalars. The constructors do not fold, so each node comes back as it was.
    "tir.Var": _built(tir.Var, name=(str,), dtype=(str,)),
    "tir.SizeVar": _built(tir.SizeVar, name=(str,), dtype=(str,)),
    "tir.IntImm": _built(tir.IntImm, dtype=(str,), value=(int,)),
    "tir.FloatImm": _Kind(
        tir.FloatImm,
        {"dtype": (str,), "value": (float,)},
        tir.FloatImm,
        lambda x: (x.dtype, x.written),
    ),
    "tir.StringImm": _built(tir.StringImm, value=(str,)),
    "tir.Not": _built(tir.Not, a=PRIM),
    "tir.Cast": _built(tir.Cast, dtype=(str,), value=PRIM),
    "tir.Select": _built(tir.Select, condition=PRIM, true_value=PRIM, false_value=PRIM),
    "tir.Call": _Kind(
        tir.Call,
        {"dtype": (str,), "op": (str,), "args": _Many(PRIM)},
        tir.Call,
        lambda call: (call.dtype, call.op.name, call.args),
    ),
    **{f"tir.{cls.__name__}": _built(cls, a=PRIM, b=PRIM) for cls in BINARY},
    "tir.PrimFunc": _Kind(
        tir.PrimFunc,
        {
            "params": _Many((tir.Var,)),
            "body": (str,),
            "ret_type": (str, NoneType),
            "attrs": (Attrs,),
        },
        _prim_text,
        lambda func: (func.params, func.body.text, func.ret_type, Attrs(func.attrs)),
    ),
    # The later of two kinds of one class is the one that is written.
    "tir.function": _Kind(tir.PrimFunc, _types(FUNCTION), make_function, take_function),
    "tir.Range": _Kind(
        tir.Range,
        {"min": DIMS, "extent": DIMS},
        tir.Range.from_min_extent,
        lambda r: (r.min, r.extent),
    ),
    **{f"tir.{cls.__name__}": _built(cls, **_types(f)) for cls, f in NODES.items()},
    **{f"tir.{cls.__name__}": _statement(cls, f) for cls, f in STATEMENTS.items()},
    "tir.BufferStore": _Kind(tir.BufferStore, _types(STORE), make_store, take_store),
    "tir.IterVar": _Kind(tir.IterVar, _types(AXIS), make_axis, take_axis),
    # Values of attributes.
    "float": _Kind(float, {"bits": (str,)}, _float, lambda x: (struct.pack(">d", x).hex(),)),
    "complex": _built(complex, real=(float,), imag=(float,)),
    "bytes": _Kind(bytes, {"hex": (str,)}, bytes.fromhex, lambda x: (x.hex(),)),
    "DeviceMesh": _Kind(
        DeviceMesh,
        {"shape": _Many((int,)), "device_ids": _Many((int,)), "is_range": (bool,)},
        _mesh,
        lambda mesh: (mesh.shape, mesh.device_ids, mesh.ranged),
    ),
    "Placement": _built(Placement, axes=_Many((int, NoneType))),
    "scalar": _Kind(np.generic, {"array": (np.ndarray,)}, _scalar, lambda x: (np.asarray(x),)),
    "Op": _Kind(Op, {"name": (str,)}, Op.get, lambda op: (op.name,)),
}
KIND_OF: dict[type, str] = {kind.cls: name for name, kind in KINDS.items()}

# Rooms above this one have kinds of their own; their names begin with these words.
ELSEWHERE: Final = {"te.": "relax2xla.te.saved"}


def add_kind(
    name: str,
    cls: type,
    fields: Fields,
    make: Callable[..., Any] | None = None,
    take: Callable[[Any], Sequence[Any]] | None = None,
) -> None:
    """Let nodes of ``cls`` be saved; without more its constructor takes the fields in order."""
    types = _types(fields)
    plain = _built(cls, **types)
    KINDS[name] = _Kind(cls, types, make or plain.make, take or plain.take)
    KIND_OF[cls] = name


# ---- walking
def _apart(node: Any) -> tuple[str, Sequence[Any]]:
    """Kind and fields of ``node``."""
    name = KIND_OF.get(type(node))
    if name is not None:
        return name, KINDS[name].take(node)
    match node:
        case tuple() | list():
            return "tuple", node
        case Mapping():
            if not all(isinstance(k, str) for k in node):
                raise TypeError("names of attributes must be strings to be saved")
            return "Attrs", [part for pair in node.items() for part in pair]
        case np.ndarray():
            return "array", ()
        case np.generic():
            return "scalar", KINDS["scalar"].take(node)
        case Op():
            return "Op", (node.name,)
        case _:
            raise TypeError(
                f"cannot save or copy a value of the class {type(node).__name__}: {node!r:.80}; "
                "attributes hold numbers, strings, arrays, struct infos and tuples of them"
            )


def _together(kind: str, values: Sequence[Any]) -> Any:
    if kind == "tuple":
        return tuple(values)
    if kind == "Attrs":
        return _attrs(*values)
    found = KINDS.get(kind)
    if found is None:
        home = next((home for word, home in ELSEWHERE.items() if kind.startswith(word)), None)
        if home is not None:
            importlib.import_module(home)
            found = KINDS.get(kind)
    if found is None:
        raise ValueError(f"unknown kind of node {kind!r}")
    return found.build(values)


def _is_scalar(value: Any) -> bool:
    """Whether JSON holds ``value`` as it is."""
    if type(value) is float:
        return math.isfinite(value)
    return value is None or type(value) in (bool, int, str)


def _nodes(root: Any, done: dict[int, Any]) -> Iterator[tuple[Any, str, Sequence[Any]]]:
    """Nodes below ``root``, fields first, each object once; those with an id in ``done`` are not.

    Whoever iterates puts each node's id into ``done``.
    """
    alive: list[Any] = []  # so that no id is used twice
    stack: list[tuple[Any, str, Sequence[Any] | None]] = [(root, "", None)]
    while stack:
        node, kind, fields = stack.pop()
        if id(node) in done:
            continue
        if fields is None:
            kind, fields = _apart(node)
            alive.append(node)
            below = [f for f in fields if not _is_scalar(f) and id(f) not in done]
            if below:
                alive.append(fields)
                stack.append((node, kind, fields))
                stack.extend((f, "", None) for f in reversed(below))
                continue
        yield node, kind, fields


# ---- arrays
def _small(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """``array`` with one element along each axis over which it repeats itself (stride 0)."""
    index = tuple(
        slice(0, 1) if stride == 0 and size else slice(None)
        for stride, size in zip(array.strides, array.shape, strict=True)
    )
    return array[(*index, ...)]


def _write_array(array: np.ndarray[Any, Any], blobs: list[bytes]) -> list[Any]:
    name = dtype_name(array.dtype)
    small = _small(array)
    blobs.append(np.ascontiguousarray(small, DTYPES[name].numpy).tobytes())
    return ["array", name, len(blobs) - 1, array.ndim, *array.shape, *small.shape]


def _read_array(values: Sequence[Any], blobs: Sequence[bytes]) -> np.ndarray[Any, Any]:
    name, at, ndim, *sizes = values
    if name not in DTYPES:
        raise ValueError(f"unknown dtype {name!r}")
    if any(type(n) is not int or n < 0 for n in (at, ndim, *sizes)) or len(sizes) != 2 * ndim:
        raise ValueError("a damaged shape")
    shape, small = sizes[:ndim], sizes[ndim:]
    dtype = DTYPES[name].numpy
    if math.prod(small) * dtype.itemsize != len(blobs[at]):
        raise ValueError(f"{len(blobs[at])} bytes are no {name} array of shape {tuple(small)}")
    # A copy of its own: the bytes cannot be written to, which torch warns about.
    made = np.frombuffer(blobs[at], dtype).reshape(small).copy()
    return made if small == shape else np.broadcast_to(made, shape)


# ---- JSON
@no_collection()
def to_document(root: Any) -> tuple[dict[str, Any], list[bytes]]:
    """The document of ``save_json``, without its arrays, and those; TypeError if it has none."""
    done: dict[int, int] = {}
    nodes: list[list[Any]] = []
    blobs: list[bytes] = []
    for node, kind, fields in _nodes(root, done):
        if kind == "array":
            made = _write_array(node, blobs)
        else:
            made = [kind, *(f if _is_scalar(f) else [done[id(f)]] for f in fields)]
        done[id(node)] = len(nodes)
        nodes.append(made)
    return {"format": FORMAT, "version": VERSION, "root": done[id(root)], "nodes": nodes}, blobs


@no_collection()
def from_document(document: Any, blobs: Sequence[bytes]) -> Any:
    """What ``to_document`` was given; ``FileFormatError`` if the document is damaged."""
    try:
        if not isinstance(document, dict) or document.get("format") != FORMAT:
            raise ValueError("it is not JSON that relax2xla saved")
        if document["version"] != VERSION:
            raise ValueError(f"version {document['version']!r}; this is made for {VERSION}")
        objects: list[Any] = []
        for i, node in enumerate(document["nodes"]):
            try:
                objects.append(_read_node(node, objects, blobs))
            except Exception as error:
                raise ValueError(f"node {i}: {error}") from error
        root = document["root"]
        if type(root) is not int or not 0 <= root < len(objects):
            raise ValueError(f"there is no node {root!r}")
        return objects[root]
    except (ValueError, TypeError, KeyError) as error:
        raise FileFormatError(f"cannot load this IR: {error}") from error


def _read_node(node: Any, objects: Sequence[Any], blobs: Sequence[bytes]) -> Any:
    kind, *fields = node
    if kind == "array":
        return _read_array(fields, blobs)
    values: list[Any] = []
    for field in fields:
        if type(field) is list:
            (at,) = field
            if type(at) is not int or not 0 <= at < len(objects):
                raise ValueError(f"a reference to {at!r}, which is no earlier node")
            field = objects[at]
        elif type(field) is dict:
            raise ValueError("a field cannot be a JSON object")
        values.append(field)
    return _together(kind, values)


def save_json(node: Any) -> str:
    """``node`` (a module, function, expression, struct info, ...) as text for ``load_json``.

    Raises TypeError for a value of a class of your own among the attributes.
    """
    document, blobs = to_document(node)
    document["blobs"] = [base64.b64encode(b).decode("ascii") for b in blobs]
    return json.dumps(document, separators=(",", ":"), allow_nan=False)


def load_json(json_str: str) -> Any:
    """What ``save_json`` made a text of. Safe for texts of unknown origin: ``FileFormatError``."""
    try:
        document = json.loads(json_str)
        encoded = document.pop("blobs")
        blobs = [base64.b64decode(b, validate=True) for b in encoded]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise FileFormatError(
            f"cannot load this IR: it is not JSON that relax2xla saved ({error})"
        ) from error
    return from_document(document, blobs)


# ---- pickle and copy
@late.pickled.given
def pickled(node: Any) -> tuple[Any, ...]:
    """The reduction of ``node`` for pickle."""
    document, blobs = to_document(node)
    return unpickled, (json.dumps(document, separators=(",", ":")), blobs)


def unpickled(text: str, blobs: Sequence[bytes]) -> Any:
    """What ``pickled`` reduced."""
    return from_document(json.loads(text), blobs)


@late.deep_copy.given
@no_collection()
def deep_copy(root: T, memo: dict[int, Any]) -> T:
    """``root`` with every node and array copied; ``memo`` as in ``copy.deepcopy``."""
    originals: list[Any] = memo.setdefault(id(memo), [])
    for node, kind, fields in _nodes(root, memo):
        if kind == "array":
            small = _small(node).copy()
            made = small if small.shape == node.shape else np.broadcast_to(small, node.shape)
        elif kind == "Op":
            made = node
        else:
            made = _together(kind, [f if _is_scalar(f) else memo[id(f)] for f in fields])
        memo[id(node)] = made
        originals.append(node)  # deepcopy's own rule: what has an id in memo stays alive
    return memo[id(root)]


@late.shallow_copy.given
def shallow_copy(node: T) -> T:
    """Another node with the same fields; an operator is itself, for there is but one of it."""
    if isinstance(node, Op):
        return node
    kind = KIND_OF.get(type(node))
    if kind is None:
        raise TVMError(f"cannot copy a {type(node).__name__}")
    return KINDS[kind].make(*KINDS[kind].take(node))
