"""Random tensors made, joined, cut and rearranged, against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from relax2xla import op
from relax2xla.dtypes import numpy_dtype
from tests.op.draws import (
    ANY,
    INTS,
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


# ---- made
def arange(draw: Any, name: str) -> Case:
    start, step = number(draw, -9, 9), one_of(draw, -3, -1, 1, 2)
    options = start, start + step * number(draw, 0, 5) + one_of(draw, 0, 1), step
    dtype = one_of(draw, *NUMBERS, "int8")
    return same(
        f"{name} {options}", call_of(name, *options, dtype), [], np.arange(*options, dtype=dtype)
    )


def filled(draw: Any, name: str) -> Case:
    shape, dtype = shape_of(draw), one_of(draw, *ANY)
    kind = name.removesuffix("_like")
    value = {"zeros": 0, "ones": 1, "full": number(draw, 0, 1)}[kind]
    inputs: list[Any] = [array(draw, shape, one_of(draw, *ANY))] if name.endswith("like") else []
    options: list[Any] = [] if inputs else [shape]
    if kind == "full":
        inputs.append(np.asarray(value, one_of(draw, *ANY)))
    make = lambda *x: call_of(name, dtype=dtype)(*options, *x)  # noqa: E731
    return same(f"{name} {shape}", make, inputs, np.full(shape, value, dtype))


def eye(draw: Any, name: str) -> Case:
    n, m, k = number(draw, 0, 4), number(draw, 0, 4), number(draw, -4, 4)
    dtype = one_of(draw, *ANY)
    want = np.eye(n, m, k, dtype)
    if name == "eye":
        return same(f"{name} {n, m, k}", call_of(name, n, m, k, dtype), [], want)
    return same(f"{name} {n, m, k}", call_of(name, k), [array(draw, (n, m), dtype)], want)


def hamming_window(draw: Any, name: str) -> Case:
    size, periodic, dtype = number(draw, 2, 9), number(draw, 0, 1), one_of(draw, *WIDE)
    want = np.hamming(size + periodic)[:size]
    return case(name, call_of(name, size, periodic, 0.54, 0.46, dtype), [], want, dtype)


# ---- of several tensors
def concat(draw: Any, name: str) -> Case:
    first = array(draw, shape_of(draw, 1), one_of(draw, *ANY))
    axis = axis_of(draw, first)
    parts = [first]
    for _ in range(number(draw, 0, 2)):
        shape = list(first.shape)
        shape[axis] = number(draw, 0, 3)
        parts.append(array(draw, shape, first.dtype.name))
    return same(f"{name} {axis}", lambda *x: op.concat(x, axis), parts, np.concatenate(parts, axis))


def stack(draw: Any, name: str) -> Case:
    shape, dtype = shape_of(draw), one_of(draw, *ANY)
    parts = [array(draw, shape, dtype) for _ in range(number(draw, 1, 3))]
    axis = number(draw, -len(shape) - 1, len(shape))
    return same(f"{name} {axis}", lambda *x: op.stack(x, axis), parts, np.stack(parts, axis))


def meshgrid(draw: Any, name: str) -> Case:
    dtype, indexing = one_of(draw, *ANY), one_of(draw, "ij", "xy")
    parts = [array(draw, number(draw, 0, 3), dtype) for _ in range(number(draw, 1, 3))]
    want = tuple(np.meshgrid(*parts, indexing=indexing))
    return same(f"{name} {indexing}", lambda *x: op.meshgrid(x, indexing), parts, want)


EINSUMS = (
    ("ij,jk->ik", "ij", "jk"), ("bij,bkj->bik", "bij", "bkj"), ("ij->j", "ij"), ("ii", "ii"),
    ("iij->ji", "iij"), ("i,j->ji", "i", "j"), ("ij,jk,k->i", "ij", "jk", "k"),
    ("ij,ij", "ij", "ij"), ("a...j,...j->...a", "abcj", "bcj"),
)  # fmt: skip


def einsum(draw: Any, name: str) -> Case:
    rule, *axes = one_of(draw, *EINSUMS)
    dtype, size = one_of(draw, *NUMBERS), dict(zip("abcijk", draw(SIZES), strict=True))
    parts = [array(draw, [size[a] for a in letters], dtype) for letters in axes]
    return case(
        f"{name} {rule}", lambda *x: op.einsum(x, rule), parts, np.einsum(rule, *parts), dtype
    )


SIZES = st.tuples(*[st.integers(1, 4)] * 6)


def ewise_fma(draw: Any, name: str) -> Case:
    shape, dtype = shape_of(draw), one_of(draw, *NUMBERS)
    a, b, c = (array(draw, shape, dtype) for _ in range(3))
    return case(name, call_of(name), [a, b, c], a * b + c, dtype)


# ---- cut and rearranged
def split(draw: Any, name: str) -> Case:
    x = array(draw, shape_of(draw, 1), one_of(draw, *ANY))
    axis = axis_of(draw, x)
    cuts = draw(st.lists(st.integers(-5, 5), min_size=1, max_size=3))
    return same(
        f"{name} {cuts} {axis}", call_of(name, cuts, axis), [x], tuple(np.split(x, cuts, axis))
    )


def reshape(draw: Any, name: str) -> Case:
    shape = shape_of(draw)
    x = array(draw, shape, one_of(draw, *ANY))
    target = list(draw(st.permutations([*shape, 1, 1])))
    if x.size and one_of(draw, False, True):
        target[number(draw, 0, len(target) - 1)] = -1
    return same(f"{name} {target}", call_of(name, target), [x], x.reshape(target))


def squeeze(draw: Any, name: str) -> Case:
    x = array(draw, shape_of(draw, 0, 4, 0, 2), one_of(draw, *ANY))
    return same(name, call_of(name), [x], x.squeeze())


def broadcast_to(draw: Any, name: str) -> Case:
    shape = shape_of(draw)
    x = array(draw, [one_of(draw, 1, d) for d in shape][number(draw, 0, 3) :], one_of(draw, *ANY))
    return same(f"{name} {shape}", call_of(name, shape), [x], np.broadcast_to(x, shape))


def collapse_sum(draw: Any, name: str) -> Case:
    dtype, shape = one_of(draw, *NUMBERS), shape_of(draw)
    x = array(draw, shape, dtype)
    skip = number(draw, 0, len(shape))
    target = [one_of(draw, 1, d) for d in shape][skip:]
    gone = tuple(range(skip))
    kept = tuple(i + skip for i, d in enumerate(target) if d != shape[i + skip])
    want = x.sum(kept, keepdims=True).sum(gone).astype(dtype)
    if name == "collapse_sum_to":
        return case(f"{name} {target}", call_of(name, target), [x], want, dtype)
    return case(f"{name} {target}", call_of(name), [x, array(draw, target, dtype)], want, dtype)


MAPS: tuple[tuple[Any, Any], ...] = (
    (lambda i, j, k: (k, i, j), lambda x: x.transpose(2, 0, 1)),
    (lambda i, j, k: (i, j // 2, k, j % 2), lambda x: halves(x).transpose(0, 1, 3, 2)),
    (lambda i, j, k: (j // 2, k * 2 + j % 2, i), lambda x: joined(halves(x))),
)


def halves(x: Any) -> Any:
    """The second axis in pairs, after a 0 where it is odd."""
    x = np.pad(x, ((0, 0), (0, x.shape[1] % 2), (0, 0)))
    return x.reshape(x.shape[0], -1, 2, x.shape[2])


def joined(x: Any) -> Any:
    i, j, _, k = x.shape
    return x.transpose(1, 3, 2, 0).reshape(j, 2 * k, i)


def layout_transform(draw: Any, name: str) -> Case:
    i, j, k = shape_of(draw, 3, 3, 1)
    # Of one row there is no second half, which `halves` always makes.
    x = array(draw, (i, max(j, 2), k), one_of(draw, *NUMBERS))
    rule, truth = one_of(draw, *MAPS)
    return same(name, call_of(name, rule), [x], np.ascontiguousarray(truth(x)))


MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}


def pad(draw: Any, name: str) -> Case:
    x = array(draw, shape_of(draw, 1, 3, 3), one_of(draw, *ANY))
    mode = one_of(draw, *MODES)
    widths = [(number(draw, 0, 2), number(draw, 0, 2)) for _ in x.shape]
    want = np.pad(x, widths, MODES[mode])  # pyright: ignore[reportArgumentType, reportCallIssue]
    return same(f"{name} {mode} {widths}", call_of(name, widths, mode), [x], want)


# ---- values, and what is known of a tensor
def astype(draw: Any, name: str) -> Case:
    x, target = array(draw, shape_of(draw), one_of(draw, *ANY)), one_of(draw, *ANY, "float16")
    if target == "uint8":
        x = np.abs(x)  # a negative float has no truth there
    return same(
        f"{name} {x.dtype} {target}", call_of(name, target), [x], x.astype(numpy_dtype(target))
    )


def clip(draw: Any, name: str) -> Case:
    x, low, high = (
        array(draw, shape_of(draw), one_of(draw, *NUMBERS)),
        number(draw, -9, 5),
        number(draw, -5, 9),
    )
    want = np.minimum(np.maximum(x, low), high).astype(x.dtype)
    return same(f"{name} {low} {high}", call_of(name, low, high), [x], want)


def size(draw: Any, name: str) -> Case:
    x = array(draw, shape_of(draw), one_of(draw, *ANY))
    return same(name, call_of(name), [x], np.int64(x.size))


def shape_vector(draw: Any, name: str) -> Case:
    x = array(draw, shape_of(draw), one_of(draw, *ANY))
    want = np.array(x.shape, np.int64)
    return same(name, lambda x: op.shape_to_tensor(op.shape_of(x)), [x], want)


MADE: dict[str, Draw] = {
    "arange": arange,
    **dict.fromkeys(("zeros", "ones", "full", "zeros_like", "ones_like", "full_like"), filled),
    "eye": eye,
    "eye_like": eye,
    "hamming_window": hamming_window,
    "concat": concat,
    "stack": stack,
    "meshgrid": meshgrid,
    "einsum": einsum,
    "ewise_fma": ewise_fma,
}
CHANGED: dict[str, Draw] = {
    "split": split,
    "reshape": reshape,
    "squeeze": squeeze,
    "broadcast_to": broadcast_to,
    "collapse_sum_to": collapse_sum,
    "collapse_sum_like": collapse_sum,
    "layout_transform": layout_transform,
    "nn.pad": pad,
    "astype": astype,
    "wrap_param": astype,
    "clip": clip,
    "size": size,
    "shape_of": shape_vector,
    "shape_to_tensor": shape_vector,
}


@examples(2)
@given(one_of_each(MADE))
def test_made_and_joined(drawn: list[Case]) -> None:
    check(drawn)


@examples(2)
@given(one_of_each(CHANGED))
def test_cut_and_rearranged(drawn: list[Case]) -> None:
    check(drawn)
