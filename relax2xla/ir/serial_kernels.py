"""What a saved file holds of loop-level functions: fields of statements and buffers, by class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import NoneType
from typing import Any, Final

import numpy as np

from relax2xla import tir
from relax2xla.tir.buffer import Buffer, BufferLoad, BufferRegion, Let, PointerVar

PRIM: Final = (tir.PrimExpr,)
DIM: Final = (int, tir.PrimExpr)
STMT: Final = (tir.Stmt,)
TEXT: Final = (str,)
NUMBER: Final = (int,)
ATTRS: Final = (Mapping,)


@dataclass(frozen=True, slots=True)
class Many:
    """A tuple of values of these types."""

    types: tuple[type, ...]


Fields = dict[str, tuple[type, ...] | Many]
_RANGES: Final = Many((tir.Range,))
_REGIONS: Final = Many((BufferRegion,))
# What newer files say beside the fields of older ones stands last, and may be missing.
MASK: Final = (tir.PrimExpr, NoneType)
STORE: Final[Fields] = {
    "buffer": (Buffer,),
    "value": PRIM,
    "indices": Many(PRIM),
    "line": NUMBER,
    "predicate": MASK,
}
AXIS: Final[Fields] = {
    "var": (tir.Var,),
    "dom": (tir.Range, NoneType),
    "iter_type": TEXT,
    "thread_tag": TEXT,
}
# Fields in the order of the constructors. Statements have their line as well.
NODES: Final[dict[type, Fields]] = {
    PointerVar: {"name": TEXT, "element": TEXT, "scope": TEXT},
    Buffer: {
        "data": (tir.Var,),
        "shape": Many(DIM),
        "dtype": TEXT,
        "name": TEXT,
        "strides": Many(DIM),
        "elem_offset": DIM,
        "scope": TEXT,
        "data_alignment": NUMBER,
        "offset_factor": NUMBER,
        "buffer_type": TEXT,
        "axis_separators": Many(NUMBER),
    },
    BufferLoad: {"buffer": (Buffer,), "indices": Many(PRIM), "predicate": MASK},
    Let: {"var": (tir.Var,), "value": PRIM, "body": PRIM},
    tir.Ramp: {"base": PRIM, "stride": PRIM, "lanes": DIM},
    tir.Broadcast: {"value": PRIM, "lanes": DIM},
    BufferRegion: {"buffer": (Buffer,), "region": _RANGES},
    tir.CommReducer: {
        "lhs": Many((tir.Var,)),
        "rhs": Many((tir.Var,)),
        "result": Many(PRIM),
        "identity_element": Many(PRIM),
    },
    tir.Reduce: {
        "combiner": (tir.CommReducer, NoneType),
        "source": Many(PRIM),
        "axis": Many((tir.IterVar,)),
        "condition": PRIM,
        "value_index": NUMBER,
        "init": Many(PRIM),
    },
    tir.MatchBufferRegion: {"buffer": (Buffer,), "source": (BufferRegion,)},
}
STATEMENTS: Final[dict[type, Fields]] = {
    tir.SeqStmt: {"seq": Many(STMT)},
    tir.For: {
        "loop_var": (tir.Var,),
        "min": DIM,
        "extent": DIM,
        "kind": TEXT,
        "body": STMT,
        "thread_binding": (tir.IterVar, NoneType),
        "annotations": ATTRS,
    },
    tir.Block: {
        "iter_vars": Many((tir.IterVar,)),
        "reads": _REGIONS,
        "writes": _REGIONS,
        "name_hint": TEXT,
        "body": STMT,
        "init": (tir.Stmt, NoneType),
        "alloc_buffers": Many((Buffer,)),
        "match_buffers": Many((tir.MatchBufferRegion,)),
        "annotations": ATTRS,
    },
    tir.BlockRealize: {"iter_values": Many(PRIM), "predicate": PRIM, "block": (tir.Block,)},
    tir.IfThenElse: {"condition": PRIM, "then_case": STMT, "else_case": (tir.Stmt, NoneType)},
    tir.While: {"condition": PRIM, "body": STMT},
    tir.LetStmt: {"var": (tir.Var,), "value": PRIM, "body": STMT},
    tir.AssertStmt: {"condition": PRIM, "message": (tir.StringImm,), "body": STMT},
    tir.AttrStmt: {
        "node": (tir.PrimExpr, Buffer, tir.IterVar, tir.CommReducer, str, NoneType),
        "attr_key": TEXT,
        "value": PRIM,
        "body": STMT,
    },
    tir.Evaluate: {"value": PRIM},
    tir.Allocate: {
        "buffer_var": (tir.Var,),
        "dtype": TEXT,
        "extents": Many(DIM),
        "condition": PRIM,
        "body": STMT,
        "scope": TEXT,
        "annotations": ATTRS,
    },
    tir.AllocateConst: {
        "buffer_var": (tir.Var,),
        "dtype": TEXT,
        "extents": Many(DIM),
        "data": (np.ndarray,),
        "body": STMT,
        "annotations": ATTRS,
    },
    tir.BufferRealize: {"buffer": (Buffer,), "bounds": _RANGES, "condition": PRIM, "body": STMT},
    tir.Prefetch: {"buffer": (Buffer,), "bounds": _RANGES},
    tir.DeclBuffer: {"buffer": (Buffer,), "body": STMT},
    tir.Text: {"text": TEXT, "why": TEXT},
}
FUNCTION: Final[Fields] = {
    "params": Many((tir.Var,)),
    "body": STMT,
    "ret_type": (str, NoneType),
    "handles": Many((tir.Var,)),
    "buffers": Many((Buffer,)),
    "attrs": ATTRS,
}


def make_store(buffer: Any, value: Any, indices: Any, line: Any, predicate: Any) -> tir.BufferStore:
    """A store of its fields."""
    return tir.BufferStore(buffer, value, indices, predicate, line=line)


def take_store(store: tir.BufferStore) -> Sequence[Any]:
    """The fields of a store."""
    return [getattr(store, name) for name in STORE]


def make_axis(var: Any, dom: Any, iter_type: Any, thread_tag: Any) -> tir.IterVar:
    """An axis of its fields, in the order of the file."""
    return tir.IterVar(dom, var, iter_type, thread_tag)


def take_axis(axis: tir.IterVar) -> Sequence[Any]:
    """The fields of an axis."""
    return [getattr(axis, name) for name in AXIS]


def make_function(
    params: Any, body: Any, ret_type: Any, handles: Any, buffers: Any, attrs: Any
) -> tir.PrimFunc:
    """A function of its fields."""
    return tir.PrimFunc(
        params, body, ret_type, dict(zip(handles, buffers, strict=True)), dict(attrs)
    )


def take_function(func: tir.PrimFunc) -> Sequence[Any]:
    """The fields of a function."""
    held = func.buffer_map
    return (
        *(func.params, func.body, func.ret_type),
        *(tuple(held), tuple(held.values()), func.attrs),
    )
