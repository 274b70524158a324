# ruff: noqa: D103  (a converter's documentation is the ONNX schema; it says what differs)
"""ai.onnx: sequences of tensors whose number is known at import. They are tuples of the function.

Positions must be known, too. A sequence that grows in a loop of XLA is a gap.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from relax2xla import op as R
from relax2xla.importers._gaps import Unsupported
from relax2xla.importers.onnx import reader
from relax2xla.importers.onnx.context import Context, choice
from relax2xla.importers.onnx.registry import Ints, onnx_op
from relax2xla.importers.onnx.values import (
    Host,
    Items,
    axis_of,
    dims_of,
    ndim_of,
    static,
    statics,
)
from relax2xla.ir import Expr, Tuple

# Parts that a tensor is split into at most.
PARTS_LIMIT = 4096


def _items(x: Expr) -> list[Expr]:
    if not isinstance(x, Tuple):
        raise Unsupported("a sequence whose length is not known at import")
    return list(x.fields)


def _place(position: Sequence[Any] | None, count: int, default: int) -> int:
    """A position counted from the front; ``count`` places."""
    if position is None:
        return default
    at = static(position[0], "the position in a sequence")
    if not -count <= at < count:
        raise ValueError(f"the position {at} of a sequence with {count} places")
    return at % count


@onnx_op("SequenceConstruct", since=11)
def sequence_construct(ctx: Context, *inputs: Expr) -> Items:
    return Items([ctx.emit(x) for x in inputs])


@onnx_op("SequenceEmpty", since=11)
def sequence_empty(ctx: Context, *, dtype: int = 1) -> Items:
    reader.dtype_of_code(dtype, "SequenceEmpty")
    return Items([])


@onnx_op("SequenceAt", since=11)
def sequence_at(ctx: Context, input_sequence: Expr, position: Ints) -> Expr:
    items = _items(input_sequence)
    return items[_place(position, len(items), 0)]


@onnx_op("SequenceInsert", since=11)
def sequence_insert(
    ctx: Context, input_sequence: Expr, tensor: Expr, position: Ints | None = None
) -> Items:
    """Without a position at the end."""
    items = _items(input_sequence)
    at = len(items)
    if position is not None:
        at = static(position[0], "the position in a sequence")
        if not -len(items) <= at <= len(items):
            raise ValueError(f"the position {at} of a sequence of {len(items)}")
        at += len(items) if at < 0 else 0
    return Items([*items[:at], ctx.emit(tensor), *items[at:]])


@onnx_op("SequenceErase", since=11)
def sequence_erase(ctx: Context, input_sequence: Expr, position: Ints | None = None) -> Items:
    """Without a position the last one."""
    items = _items(input_sequence)
    at = _place(position, len(items), len(items) - 1)
    if not items:
        raise ValueError("the sequence is empty")
    return Items([*items[:at], *items[at + 1 :]])


@onnx_op("SequenceLength", since=11)
def sequence_length(ctx: Context, input_sequence: Expr) -> Host:
    return Host(np.array(len(_items(input_sequence)), np.int64))


@onnx_op("ConcatFromSequence", since=11)
def concat_from_sequence(
    ctx: Context, input_sequence: Expr, *, axis: int, new_axis: int = 0
) -> Expr:
    items = _items(input_sequence)
    if not items:
        raise ValueError("the sequence is empty")
    rank = ndim_of(items[0])
    if choice(new_axis, (0, 1), "new_axis"):
        at = axis_of(axis, rank + 1)
        items = [R.expand_dims(x, [at]) for x in items]
    else:
        at = axis_of(axis, rank)
    return items[0] if len(items) == 1 else R.concat(items, at)


@onnx_op("SplitToSequence", since=11)
def split_to_sequence(
    ctx: Context, input: Expr, split: Ints | None = None, *, axis: int = 0, keepdims: int = 1
) -> Items:
    """In parts of one length (a scalar), of these lengths, or of one entry each."""
    at = axis_of(axis, ndim_of(input))
    size = static(dims_of(input)[at], "the size of the axis that is split")
    if split is None:
        lengths = [1] * min(size, PARTS_LIMIT + 1)
    else:
        lengths = statics(split, "the length of a part")
        if min(lengths, default=0) < 0:
            raise ValueError(f"the lengths {lengths}")
        if len(lengths) == 1 and lengths[0] and lengths[0] != size:
            each = lengths[0]
            lengths = [min(each, size - start) for start in range(0, size, each)]
    if len(lengths) > PARTS_LIMIT:
        raise Unsupported(f"a split into more than {PARTS_LIMIT} parts")
    if sum(lengths) != size:
        raise ValueError(f"parts of {lengths} of {size}")
    parts: list[Expr] = []
    start = 0
    for length in lengths:
        part = R.strided_slice(input, [at], [start], [start + length])
        start += length
        if split is None and not keepdims:
            part = R.squeeze(part, [at])
        parts.append(ctx.emit(part))
    return Items(parts)


@onnx_op("Optional", since=15)
def optional(ctx: Context, input: Expr | None = None, *, type: Any = None) -> Any:
    """What is there is itself."""
    if input is None:
        raise Unsupported("an optional value that is not there")
    return optional_get_element(ctx, input)


@onnx_op("OptionalHasElement", since=15)
def optional_has_element(ctx: Context, input: Expr | None = None) -> Host:
    """Known at import: what is left out is not there."""
    return Host(np.array(input is not None))


@onnx_op("OptionalGetElement", since=15)
def optional_get_element(ctx: Context, input: Expr) -> Any:
    return Items(list(input.fields)) if isinstance(input, Tuple) else input
