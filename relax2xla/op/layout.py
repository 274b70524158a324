"""Elements moved by a rule: layout_transform, reverse_sequence.

Sources: TVM Relax v0.20 and v0.27 for names and inference; ONNX's ReverseSequence.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from relax2xla import tir
from relax2xla.dtypes import is_float
from relax2xla.errors import LegalizeError, OpError, TVMError
from relax2xla.ir.expr import Expr, PrimValue
from relax2xla.ir.op import Given, Rule, op
from relax2xla.ir.struct_info import PrimStructInfo, StructInfo, show
from relax2xla.ir.traits import Opaque
from relax2xla.op.index import gather_axis
from relax2xla.op.shared.checks import INTEGER, differ, norm_axis, seen_dims, tensor, want_tensor
from relax2xla.op.shared.lowering import (
    broadcast_in_dim,
    compare,
    concatenate,
    convert,
    dtype_of,
    full,
    full_like,
    hlo,
    index_constant,
    iota,
    pad,
    reshape,
    scalar,
    select,
    shape_of,
    static,
    transpose,
)
from relax2xla.op.shared.scalars import number
from relax2xla.tir.index_map import Factor


# ---- layout_transform
def _index_map(value: Any) -> tir.IndexMap:
    if isinstance(value, tir.IndexMap):
        return value
    raise OpError(f"`index_map` must be an IndexMap or a function; got {type(value).__name__}")


@op("relax.layout_transform", Opaque())
def layout_transform(
    x: Expr,
    index_map: Any,
    pad_value: Any = None,
    axis_separators: Any = (),
    input_axis_separators: Any = (),
) -> Rule:
    """``x`` in another layout: ``result[index_map(i, j, ...)] = x[i, j, ...]``.

    x: (*s), any dtype; index_map: a function of the indices, such as
    ``lambda i, j: (j // 4, i, j % 4)``, or an IndexMap, which sends no two elements to one place
    pad_value: what the places hold to which no element goes (default: 0), a number of the dtype of
    ``x``; axis_separators, input_axis_separators: how TVM lays out memory; of no effect
    result: the shape that holds all places, dtype of ``x``
    """
    info = want_tensor(x, "x")
    moved = _index_map(index_map)
    if info.ndim not in (-1, len(moved.initial_indices)):
        raise OpError(
            f"`index_map` takes {len(moved.initial_indices)} indices, "
            f"but `x` has rank {info.ndim}: {show(info)}"
        )
    if pad_value is not None:
        kind = pad_value.struct_info if isinstance(pad_value, Expr) else None
        if not isinstance(kind, PrimStructInfo):
            raise OpError(f"`pad_value` must be a number; got {pad_value!r}")
        if info.dtype and kind.dtype != info.dtype:
            raise OpError(f"`pad_value` is {kind.dtype}, but `x` is {info.dtype}")

    def lower() -> Expr:
        shape, dtype = shape_of(x), dtype_of(x)
        blank = scalar(0 if pad_value is None else number(pad_value, "pad_value"), dtype)
        factors = moved.factors()
        if factors is not None:
            return _split_and_permute(x, moved, factors, blank)
        # Any other map: each place reads the element that goes there, or the blank after the last.
        places = moved.places(shape).reshape(-1)
        new = static(moved.map_shape(shape))
        if len(np.unique(places)) != len(places):
            raise LegalizeError(f"layout_transform: {moved} sends two elements to one place")
        source = np.full(int(np.prod(new)), len(places), np.int64)
        source[places] = np.arange(len(places))
        flat = concatenate([reshape(x, (len(places),)), reshape(blank, (1,))], 0)
        kind = "int32" if len(places) < 2**31 - 1 else "int64"
        return reshape(gather_axis(flat, index_constant(source, kind), 0), new)

    dims = seen_dims(info)
    if dims is None:
        return tensor(None, info.dtype, len(moved.final_indices), info), lower
    try:
        return tensor(tuple(moved.map_shape(dims)), info.dtype, like=info), lower
    except OpError:
        raise
    except TVMError as e:
        raise OpError(f"`index_map`: {e}") from None


@layout_transform.shorthand
def _(given: Given) -> Given:
    x, index_map, pad_value = given["x"], given["index_map"], given["pad_value"]
    separators = ("axis_separators", "input_axis_separators")
    found: dict[str, Any] = {name: tuple(given[name] or ()) for name in separators}
    info = want_tensor(x, "x") if isinstance(x, Expr) else None
    if callable(index_map):
        ndim = None if info is None or info.ndim == -1 else info.ndim
        try:
            found["index_map"] = tir.IndexMap.from_func(index_map, ndim)
        except OpError:
            raise
        except TVMError as e:
            raise OpError(f"`index_map`: {e}") from None
    if isinstance(pad_value, bool | int | float) and info is not None and info.dtype:
        value = float(pad_value) if is_float(info.dtype) else pad_value
        found["pad_value"] = PrimValue(tir.const(value, info.dtype))
    elif isinstance(pad_value, tir.PrimExpr):
        found["pad_value"] = PrimValue(pad_value)
    return found


def _split_and_permute(x: Expr, moved: tir.IndexMap, factors: list[Factor], blank: Expr) -> Expr:
    shape = shape_of(x)
    split: list[int] = []
    order: dict[Factor, int] = {}
    high: list[int] = []
    for i, size in enumerate(shape):
        own = sorted((f for f in factors if f[0] == i), key=lambda f: -f[1])
        block = own[0][1]
        count = -(-size // block)
        high.append(count * block - size)
        for f in own:
            order[f] = len(split)
            split.append(count if f[2] is None else f[2])
    x = reshape(pad(x, [0] * len(shape), high, blank), split)
    return transpose(x, [order[f] for f in factors])


# ---- reverse_sequence
@op("relax.reverse_sequence", Opaque())
def reverse_sequence(
    data: Expr, seq_lengths: Expr, seq_axis: int = 1, batch_axis: int = 0
) -> StructInfo:
    """Each sequence of a batch reversed up to its own length; what lies behind stays.

    data: (*s) of rank 2 or more, any dtype; seq_lengths: (s[batch_axis],), integers, at most
    s[seq_axis] (a longer sequence is reversed whole)
    result: (*s), dtype of ``data``
    """
    info = want_tensor(data, "data")
    lengths = want_tensor(seq_lengths, "seq_lengths", INTEGER, 1)
    if info.ndim == -1:
        return info
    if info.ndim < 2:
        raise OpError(f"`data` must have rank 2 or more; got {show(info)}")
    along, batch = (
        norm_axis(seq_axis, info.ndim, "seq_axis"),
        norm_axis(batch_axis, info.ndim, "batch_axis"),
    )
    if along == batch:
        raise OpError(f"`seq_axis` and `batch_axis` must differ; both are axis {along}")
    if info.dims is not None and lengths.dims is not None:
        a, b = info.dims[batch], lengths.dims[0]
        if differ(a, b):
            raise OpError(f"`seq_lengths` must have one entry for each of {a} sequences; got {b}")
    return info


@reverse_sequence.legalize
def _(data: Expr, seq_lengths: Expr, seq_axis: int = 1, batch_axis: int = 0) -> Expr:
    shape = shape_of(data)
    along, batch = norm_axis(seq_axis, len(shape)), norm_axis(batch_axis, len(shape))
    # Indices have the axes of batch and sequence in the order in which `data` has them.
    pair = sorted((along, batch))
    wide = tuple(shape[a] for a in pair)
    spread = broadcast_in_dim(convert(seq_lengths, "int32"), wide, [pair.index(batch)])
    spread = hlo("minimum", spread, full_like(spread, shape[along]))
    at = iota(wide, pair.index(along), "int32")
    last = hlo("subtract", spread, full(wide, 1, "int32"))
    index = select(compare(at, spread, "LT"), hlo("subtract", last, at), at)
    return hlo(
        "gather",
        data,
        index,
        dimension_numbers={
            "offset_dims": tuple(i for i in range(len(shape)) if i not in pair),
            "collapsed_slice_dims": (along,),
            "operand_batching_dims": (batch,),
            "start_indices_batching_dims": (pair.index(batch),),
            "start_index_map": (along,),
            "index_vector_dim": 2,
        },
        slice_sizes=tuple(1 if i in pair else d for i, d in enumerate(shape)),
    )
