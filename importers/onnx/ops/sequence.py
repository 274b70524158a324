# ruff: noqa: D103  (a converter's documentation is the ONNX schema; it says what differs)
"""ai.onnx: sequences and optionals.

A sequence whose length is known at import is a tuple of the function, and positions in it are
resolved here. Any other one, and a value that may not be there, is an object of the machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from onnx import GraphProto, TensorProto, TypeProto

from relax2xla import op as R
from relax2xla.importers.onnx.engine.context import Context, choice, known
from relax2xla.importers.onnx.engine.converters import as_int, onnx_op
from relax2xla.importers.onnx.engine.evaluate import constant_value
from relax2xla.importers.onnx.engine.known_values import (
    Host,
    Items,
    axis_of,
    dims_of,
    dtype_of,
    ndim_of,
    scalar,
)
from relax2xla.importers.onnx.engine.objects import (
    NO_RANK,
    TEXT,
    Kind,
    as_value,
    held,
    host_loop,
    is_absent,
    kind_of,
    tensor_from,
    typed,
)
from relax2xla.importers.onnx.ops.strings import is_text, rank_of
from relax2xla.importers.onnx.read.tensors import dtype_of_code
from relax2xla.importers.shared.gaps import Unsupported
from relax2xla.importers.shared.index import joined
from relax2xla.ir import Constant, Expr, Tuple

# Parts that a tensor is split into at most as a tuple.
PARTS_LIMIT = 4096


def _fields(x: Expr, position: Expr | None = None) -> list[Expr] | None:
    """The tensors of a sequence of known length, None where it or ``position`` is computed."""
    if isinstance(x, Tuple) and (position is None or isinstance(position, Constant)):
        return list(x.fields)
    return None


def _known_place(position: Expr, count: int, places: int) -> int:
    """A known position in a sequence of ``count`` that has ``places``, from the front."""
    at = as_int(np.asarray(known(position)), "the position in a sequence")
    if not -count <= at < places:
        raise ValueError(f"the position {at} of a sequence with {count} places")
    return at + count if at < 0 else at


def _sequence(ctx: Context, x: Expr) -> tuple[Expr, Kind]:
    """The object of a sequence, and what it holds."""
    kind = kind_of(ctx, x)
    if not kind.sequence:
        raise Unsupported(f"expected a sequence, got {x.struct_info}")
    return as_value(ctx, x), kind


@onnx_op("SequenceConstruct", since=11)
def sequence_construct(ctx: Context, *inputs: Expr) -> Items:
    return Items([ctx.emit(x) for x in inputs])


@onnx_op("SequenceEmpty", since=11)
def sequence_empty(ctx: Context, *, dtype: int = 1) -> Items:
    made = Items([])
    text = dtype == TensorProto.STRING
    name = TEXT if text else dtype_of_code(dtype, "SequenceEmpty").name
    ctx.kinds[made.expr] = Kind(True, dtype=name, ndim=NO_RANK)
    return made


@onnx_op("SequenceAt", since=11)
def sequence_at(ctx: Context, input_sequence: Expr, position: Expr) -> Expr:
    items = _fields(input_sequence, position)
    if items is not None:
        return items[_known_place(position, len(items), len(items))]
    sequence, kind = _sequence(ctx, input_sequence)
    dtype, ndim = typed(kind, "a sequence")
    return tensor_from(ctx, R.sequence.at(sequence, position, dtype, ndim), kind)


@onnx_op("SequenceInsert", since=11)
def sequence_insert(
    ctx: Context, input_sequence: Expr, tensor: Expr, position: Expr | None = None
) -> Any:
    """Without a position at the end."""
    items = _fields(input_sequence, position)
    if items is not None:
        count = len(items)
        at = count if position is None else _known_place(position, count, count + 1)
        return Items([*items[:at], ctx.emit(tensor), *items[at:]])
    sequence, kind = _sequence(ctx, input_sequence)
    at = R.sequence.length(sequence) if position is None else position
    return held(ctx, R.sequence.insert(sequence, tensor, at), kind.holding(tensor))


@onnx_op("SequenceErase", since=11)
def sequence_erase(ctx: Context, input_sequence: Expr, position: Expr | None = None) -> Any:
    """Without a position the last one."""
    last = scalar(-1, "int64") if position is None else position
    items = _fields(input_sequence, position)
    if items is not None:
        at = _known_place(last, len(items), len(items))
        return Items([*items[:at], *items[at + 1 :]])
    sequence, kind = _sequence(ctx, input_sequence)
    return held(ctx, R.sequence.erase(sequence, last), kind)


@onnx_op("SequenceLength", since=11)
def sequence_length(ctx: Context, input_sequence: Expr) -> Host | Expr:
    items = _fields(input_sequence)
    if items is not None:
        return Host(np.array(len(items), np.int64))
    return tensor_from(ctx, R.sequence.length(_sequence(ctx, input_sequence)[0]), Kind(ndim=0))


@onnx_op("ConcatFromSequence", since=11)
def concat_from_sequence(
    ctx: Context, input_sequence: Expr, *, axis: int, new_axis: int = 0
) -> Expr:
    choice(new_axis, (0, 1), "new_axis")
    items = _fields(input_sequence)
    if items is None or (items and is_text(items[0])):
        sequence, kind = _sequence(ctx, input_sequence)
        if kind.ndim >= 0:
            kind = replace(kind, ndim=kind.ndim + new_axis)
        dtype, ndim = typed(kind, "a sequence")
        return tensor_from(ctx, R.sequence.concat(sequence, axis, new_axis, dtype, ndim), kind)
    if not items:
        raise ValueError("the sequence is empty")
    rank = ndim_of(items[0])
    if new_axis:
        at = axis_of(axis, rank + 1)
        items = [R.expand_dims(x, [at]) for x in items]
    else:
        at = axis_of(axis, rank)
    return joined(items, at)


@onnx_op("SplitToSequence", since=11)
def split_to_sequence(
    ctx: Context, input: Expr, split: Expr | None = None, *, axis: int = 0, keepdims: int = 1
) -> Any:
    """In parts of one length (a scalar), of these lengths, or of one entry each."""
    kept = split is not None or bool(choice(keepdims, (0, 1), "keepdims"))
    if is_text(input):
        rank = rank_of(ctx, input)
        each = scalar(1, "int64") if split is None else split
        at, ndim = axis, -1
        if rank is not None:
            at, ndim = axis_of(axis, rank), rank - (not kept)
        kind = Kind(True, dtype=TEXT, ndim=ndim)
        return held(ctx, R.sequence.split(input, each, at, int(kept)), kind)
    at = axis_of(axis, ndim_of(input))
    size = dims_of(input)[at]
    given = None if split is None else constant_value(ctx.builder, split)
    if isinstance(size, int) and size <= PARTS_LIMIT and (split is None or given is not None):
        lengths = [1] * size
        if given is not None and given.ndim == 0:
            lengths = _even(int(given), size)
        elif given is not None:
            lengths = [int(n) for n in given.reshape(-1)]
        if min(lengths, default=0) < 0 or sum(lengths) != size:
            raise ValueError(f"parts of {lengths} of {size}")
        return Items(_parts(ctx, input, at, lengths, kept))
    count: Expr = scalar(1, "int64") if split is None else split
    kind = Kind(True, dtype=dtype_of(input), ndim=ndim_of(input) - (not kept))
    return held(ctx, R.sequence.split(input, count, at, int(kept)), kind)


def _even(each: int, size: int) -> list[int]:
    if each < 1:
        raise ValueError(f"parts of the length {each}")
    return [min(each, size - start) for start in range(0, size, each)]


def _parts(ctx: Context, x: Expr, axis: int, lengths: Sequence[int], kept: bool) -> list[Expr]:
    parts: list[Expr] = []
    start = 0
    for length in lengths:
        part = R.strided_slice(x, [axis], [start], [start + length])
        start += length
        parts.append(ctx.emit(part if kept else R.squeeze(part, [axis])))
    return parts


@onnx_op("SequenceMap", since=17)
def sequence_map(
    ctx: Context, input_sequence: Expr, *additional_inputs: Expr, body: GraphProto
) -> list[Any]:
    """The body for each place of the sequences; tensors are the same at each."""
    inputs = [input_sequence, *additional_inputs]
    outputs = len(body.output)
    are_sequences = [kind_of(ctx, x).sequence for x in inputs]
    lengths = [
        len(x.fields) if isinstance(x, Tuple) else None
        for x, is_one in zip(inputs, are_sequences, strict=True)
        if is_one
    ]
    count = lengths[0]
    if count is not None and None not in lengths:
        if len(set(lengths)) > 1:
            raise ValueError(f"the sequences have the lengths {lengths}")
        made: list[list[Expr]] = [[] for _ in range(outputs)]
        for at in range(count):
            seen = [x.fields[at] if isinstance(x, Tuple) else x for x in inputs]
            for column, x in zip(made, ctx.subgraph(body, seen), strict=True):
                column.append(ctx.emit(x))
        return [Items(column) for column in made]
    objects = [as_value(ctx, x) for x in inputs]

    def step(at: Expr, going: Expr, _: Sequence[Expr]) -> tuple[Expr, list[Expr], list[Expr]]:
        seen = [
            sequence_at(ctx, x, at) if is_one else x
            for x, is_one in zip(objects, are_sequences, strict=True)
        ]
        return going, [], ctx.subgraph(body, seen, host=True)

    limit = ctx.emit(R.sequence.length(objects[0]))
    return list(host_loop(ctx, limit, scalar(True, "bool"), [], [], outputs, step).rows)


# -- optionals -----------------------------------------------------------------------------------
@onnx_op("Optional", since=15)
def optional(ctx: Context, input: Expr | None = None, *, type: TypeProto | None = None) -> Any:
    """What is there is itself."""
    if input is not None:
        return _itself(input)
    if type is None:
        raise ValueError("it has neither an input nor a type")
    return held(ctx, R.null_value(), replace(Kind.of(type, "Optional"), optional=True))


@onnx_op("OptionalHasElement", since=15)
def optional_has_element(ctx: Context, input: Expr | None = None) -> Host | Expr:
    """Known at import where it does not depend on what the function is called with."""
    if input is None or is_absent(ctx, input) or not kind_of(ctx, input).optional:
        return Host(np.array(input is not None and not is_absent(ctx, input)))
    return tensor_from(ctx, R.sequence.has_element(input), Kind(ndim=0))


@onnx_op("OptionalGetElement", since=15)
def optional_get_element(ctx: Context, input: Expr) -> Any:
    kind = kind_of(ctx, input)
    if not kind.optional:
        return _itself(input)
    inner = replace(kind, optional=False)
    if kind.sequence:
        return held(ctx, R.sequence.get(input), inner)
    dtype, ndim = typed(kind, "an optional")
    return tensor_from(ctx, R.sequence.get(input, dtype, ndim), inner)


def _itself(input: Expr) -> Any:
    return Items(list(input.fields)) if isinstance(input, Tuple) else input
