"""Random slices, gathers, scatters and searches against numpy and torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from relax2xla import op
from tests.op.draws import (
    ANY,
    INTS,
    RNG,
    WIDE,
    Draw,
    array,
    axis_of,
    call_of,
    case,
    examples,
    number,
    one_of,
    one_of_each,
    same,
    shape_of,
)
from tests.op.harness import Case, check

NUMBERS = (*WIDE, *INTS)
REDUCTIONS = {"add": "sum", "mul": "prod", "min": "amin", "max": "amax", "mean": "mean"}
AT: dict[str, Callable[..., Any]] = {
    "add": np.add.at, "mul": np.multiply.at, "min": np.minimum.at, "max": np.maximum.at,
}  # fmt: skip


def tensors(*arrays: Any) -> list[torch.Tensor]:
    return [torch.from_numpy(np.array(a)) for a in arrays]


def take(draw: Any, name: str) -> Case:
    x = array(draw, shape_of(draw, 1, 3, 1), one_of(draw, *ANY))
    axis, mode = axis_of(draw, x), one_of(draw, "fast", "clip", "wrap")
    low, high = (0, x.shape[axis]) if mode == "fast" else (-7, 9)
    i = draw(RNG).integers(low, high, shape_of(draw, 0, 2)).astype(one_of(draw, *INTS, "int8"))
    want = np.take(x, i, axis, mode="wrap" if mode == "wrap" else "clip")
    return same(f"{name} {axis} {mode}", call_of(name, axis, mode), [x, i], want)


def take_backward(draw: Any, name: str) -> Case:
    dtype = one_of(draw, *WIDE)
    x = array(draw, shape_of(draw, 1, 3, 1), dtype)
    axis = axis_of(draw, x)
    i = draw(RNG).integers(0, x.shape[axis], number(draw, 0, 5))
    g = array(draw, np.take(x, i, axis).shape, dtype)
    want = torch.zeros(x.shape, dtype=torch.float64).index_add(axis, *tensors(i, g.astype(float)))
    return case(f"{name} {axis}", call_of(name, axis), [g, x, i], want.numpy(), dtype)


def elements(draw: Any, x: Any, axis: int, most: int) -> Any:
    """Indices, negative ones too, of the shape of ``x`` but along ``axis``."""
    shape = list(x.shape)
    shape[axis] = number(draw, 1, most)
    return draw(RNG).integers(-x.shape[axis], x.shape[axis], shape)


def gather_elements(draw: Any, name: str) -> Case:
    x = array(draw, shape_of(draw, 1, 3, 1), one_of(draw, *ANY))
    axis = axis_of(draw, x)
    i = elements(draw, x, axis, 5).astype(one_of(draw, *INTS))
    return same(f"{name} {axis}", call_of(name, axis), [x, i], np.take_along_axis(x, i, axis))


def scatter_elements(draw: Any, name: str) -> Case:
    dtype = one_of(draw, *NUMBERS)
    x = array(draw, shape_of(draw, 1, 3, 1), dtype)
    axis, reduction = axis_of(draw, x), one_of(draw, *REDUCTIONS, "update")
    if reduction == "update":
        i = np.argsort(draw(RNG).random(x.shape), axis)  # each place once: else any may win
        u = array(draw, x.shape, dtype)
        want = x.copy()
        np.put_along_axis(want, i, u, axis)
    else:
        i = elements(draw, x, axis, 5)
        u = array(draw, i.shape, dtype)
        start, where, updates = tensors(x, i % x.shape[axis], u)
        want = start.scatter_reduce(axis, where, updates, REDUCTIONS[reduction]).numpy()
    label = f"{name} {reduction} {axis}"
    return case(label, call_of(name, axis, reduction), [x, i, u], want, dtype)


def columns(draw: Any, x: Any) -> list[Any]:
    """Indices of rows for some of the first axes."""
    rows = number(draw, 1, 4)
    rng = draw(RNG)
    return [rng.integers(0, d, rows) for d in x.shape[: number(draw, 1, x.ndim)]]


def gather_nd(draw: Any, name: str) -> Case:
    x = array(draw, shape_of(draw, 1, 3, 1), one_of(draw, *ANY))
    where = columns(draw, x)
    return same(name, call_of(name), [x, np.stack(where, -1)], x[tuple(where)])


def scatter_nd(draw: Any, name: str) -> Case:
    dtype, reduction = one_of(draw, *NUMBERS), one_of(draw, *AT)
    x = array(draw, shape_of(draw, 1, 3, 1), dtype)
    where = columns(draw, x)
    u = array(draw, (len(where[0]), *x.shape[len(where) :]), dtype)
    want = x.copy()
    AT[reduction](want, tuple(where), u)
    inputs = [x, np.stack(where, -1), u]
    return case(f"{name} {reduction}", call_of(name, reduction), inputs, want, dtype)


def index_put(draw: Any, name: str) -> Case:
    dtype = one_of(draw, *NUMBERS)
    x = array(draw, shape_of(draw, 1, 3, 1), dtype)
    where = columns(draw, x)
    u = array(draw, (len(where[0]), *x.shape[len(where) :]), dtype)
    start, updates = tensors(x, u)
    want = start.index_put(tuple(tensors(*where)), updates, accumulate=True).numpy()
    return case(
        name, lambda x, u, *i: op.index_put(x, i, u, accumulate=True), [x, u, *where], want, dtype
    )


def index_tensor(draw: Any, name: str) -> Case:
    x = array(draw, shape_of(draw, 1, 3, 1), one_of(draw, *ANY))
    where = columns(draw, x)
    where[0] = where[0][:, None]
    inputs = [x, *where]
    return same(name, lambda x, *i: op.index_tensor(x, i), inputs, x[tuple(where)])


def bounds(draw: Any) -> tuple[int, int, int]:
    return number(draw, -6, 6), number(draw, -6, 6), one_of(draw, -3, -1, 1, 2)


def strided_slice(draw: Any, name: str) -> Case:
    x = array(draw, shape_of(draw, 1), one_of(draw, *ANY))
    axis, (begin, end, step) = axis_of(draw, x), bounds(draw)
    at: list[Any] = [slice(None)] * x.ndim
    at[axis] = slice(begin, end, step)
    options = [axis], [begin], [end], [step]
    return same(f"{name} {options}", call_of(name, *options), [x], x[tuple(at)])


def slice_scatter(draw: Any, name: str) -> Case:
    x = array(draw, shape_of(draw, 1), one_of(draw, *ANY))
    axis, step = axis_of(draw, x), number(draw, 1, 3)
    begin, end = number(draw, -4, 4), number(draw, -4, 6)
    at: list[Any] = [slice(None)] * x.ndim
    at[axis] = slice(begin, end, step)
    want = x.copy()
    src = array(draw, want[tuple(at)].shape, x.dtype.name)
    want[tuple(at)] = src
    options = begin, end, step, axis
    return same(f"{name} {options}", call_of(name, *options), [x, src], want)


def one_hot(draw: Any, name: str) -> Case:
    i = draw(RNG).integers(0, 4, shape_of(draw, 0, 2)).astype(one_of(draw, *INTS, "uint8"))
    depth, axis = number(draw, 4, 6), number(draw, -i.ndim - 1, i.ndim)
    on, off = one_of(draw, (3.0, -1.5), (3, -1))
    want = np.where(F.one_hot(torch.from_numpy(i.astype(np.int64)), depth).numpy() == 1, on, off)
    made = call_of(name, on, off, depth, axis)
    return same(f"{name} {axis}", made, [i], np.ascontiguousarray(np.moveaxis(want, -1, axis)))


def bucketize(draw: Any, name: str) -> Case:
    dtype = one_of(draw, *NUMBERS)
    x, edges = array(draw, shape_of(draw), dtype), np.sort(array(draw, number(draw, 0, 5), dtype))
    narrow, right = one_of(draw, False, True), one_of(draw, False, True)
    where, limits = tensors(x, edges)
    want = torch.bucketize(where, limits, out_int32=narrow, right=right).numpy()
    return same(f"{name} {right}", call_of(name, narrow, right), [x, edges], want)


def topk(draw: Any, name: str) -> Case:
    x = array(draw, shape_of(draw, 1, 3, 1), one_of(draw, *NUMBERS, "int8"))
    axis, largest = axis_of(draw, x), one_of(draw, False, True)
    k = number(draw, 1, x.shape[axis])
    down = torch.from_numpy(x).sort(dim=axis, descending=largest, stable=True)
    values, where = (np.take(v.numpy(), range(k), axis) for v in down)
    made = call_of(name, k, axis, "both", largest, "int64")
    return same(f"{name} {k} {axis} {largest}", made, [x], (values, where))


def median(draw: Any, name: str) -> Case:
    x = array(draw, shape_of(draw, 1, 3, 1), one_of(draw, *WIDE))
    axis, keep = axis_of(draw, x), one_of(draw, False, True)
    values, where = torch.from_numpy(x).median(dim=axis, keepdim=keep)
    return same(f"{name} {axis}", call_of(name, axis, keep), [x], (values.numpy(), where.numpy()))


def multinomial(draw: Any, name: str) -> Case:
    rng = draw(RNG)
    weights = rng.integers(1, 5, (2, 4)).astype(np.float32)
    prob = weights / weights.sum(1, keepdims=True)
    count = number(draw, 0, 6)
    rows, u = rng.integers(0, 2, (count, 1)), rng.random((count, 1)).astype(np.float32)
    want = [np.searchsorted(np.cumsum(prob[r]), v, "right") for r, v in zip(rows[:, 0], u[:, 0])]  # noqa: B905
    return same(name, call_of(name), [prob, u, rows], np.array(want, np.int64).reshape(count, 1))


def reverse_sequence(draw: Any, name: str) -> Case:
    x = array(
        draw, (number(draw, 1, 3), number(draw, 1, 4), number(draw, 1, 2)), one_of(draw, *ANY)
    )
    batch, along = one_of(draw, (0, 1), (1, 0), (0, 2), (2, 1))
    lengths = draw(RNG).integers(0, x.shape[along] + 1, x.shape[batch])
    want = np.moveaxis(x, (batch, along), (0, 1)).copy()
    for row, n in zip(want, lengths, strict=True):
        row[:n] = row[:n][::-1].copy()
    want = np.moveaxis(want, (0, 1), (batch, along))
    return same(f"{name} {along} {batch}", call_of(name, along, batch), [x, lengths], want)


# ---- sizes that depend on data: on the machine's host
def nonzero(draw: Any, name: str) -> Case:
    x = array(draw, shape_of(draw, 1), one_of(draw, *ANY))
    want = np.stack(np.nonzero(x)).astype(np.int64)
    return Case(name, call_of(name), [x], want, open=True)


def unique(draw: Any, name: str) -> Case:
    x = array(draw, shape_of(draw, 1, 2), one_of(draw, *ANY)) // 3
    axis = one_of(draw, None, axis_of(draw, x))
    want = np.unique(x, True, True, True, axis)  # in the order of Relax's flags
    want = (want[0], want[1], want[2].reshape(-1), want[3])
    return Case(f"{name} {axis}", call_of(name, True, True, True, True, axis), [x], want, open=True)


def dynamic_strided_slice(draw: Any, name: str) -> Case:
    x = array(draw, shape_of(draw, 1), one_of(draw, *ANY))
    cuts = [bounds(draw) for _ in x.shape]
    want = x[tuple(slice(*cut) for cut in cuts)]
    inputs = [x, *(np.array(v, np.int64) for v in zip(*cuts, strict=True))]
    return Case(f"{name} {cuts}", call_of(name), inputs, want, open=True)


def tensor_to_shape(draw: Any, name: str) -> Case:
    """A shape made of data, which then shapes a tensor."""
    x = array(draw, shape_of(draw), one_of(draw, *ANY))
    shape = np.array(draw(st.permutations(x.shape)), np.int64)
    make = lambda x, v: op.reshape(x, op.tensor_to_shape(v))  # noqa: E731
    return Case(name, make, [x, shape], x.reshape(shape), open=True)


HOSTED: dict[str, Draw] = {
    "dynamic_strided_slice": dynamic_strided_slice,
    "nonzero": nonzero,
    "tensor_to_shape": tensor_to_shape,
    "unique": unique,
}
INDEXING: dict[str, Draw] = {
    "bucketize": bucketize,
    "gather_elements": gather_elements,
    "gather_nd": gather_nd,
    "grad.take_backward": take_backward,
    "index_put": index_put,
    "index_tensor": index_tensor,
    "median": median,
    "multinomial_from_uniform": multinomial,
    "one_hot": one_hot,
    "reverse_sequence": reverse_sequence,
    "scatter_elements": scatter_elements,
    "scatter_nd": scatter_nd,
    "slice_scatter": slice_scatter,
    "strided_slice": strided_slice,
    "take": take,
    "topk": topk,
}


@examples(4)
@given(one_of_each(INDEXING))
def test_slices_gathers_scatters_and_searches(drawn: list[Case]) -> None:
    check(drawn)


@examples(2)
@given(one_of_each(HOSTED, 2))
def test_sizes_that_depend_on_data(drawn: list[Case]) -> None:
    check(drawn)
