"""Functions that move elements, make tensors or take places that are data, against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from relax2xla import te, topi
from tests.topi.harness import Case, check

RNG = np.random.default_rng(0)
X = RNG.uniform(-2, 2, (4, 7)).astype(np.float32)
Y = RNG.uniform(-2, 2, (7,)).astype(np.float32)
V = RNG.uniform(-2, 2, (2, 3, 7)).astype(np.float32)
IMAGE = RNG.uniform(-2, 2, (2, 6, 5, 4)).astype(np.float32)
AT = np.array([2, 0, 3], np.int32)
OUT = np.array([2, -1, 9], np.int64)
MATRIX = np.array([[0, 2], [3, 1]], np.int64)


def parts(x: Any, *args: Any) -> list[np.ndarray]:
    return [np.ascontiguousarray(p) for p in np.split(x, *args)]


SHAPES = [
    Case("expand", lambda x: topi.expand_dims(x, 1, 2), [X], X[:, None, None]),
    Case("expand_last", lambda x: topi.expand_dims(x, -1), [X], X[..., None]),
    Case("expand_like", lambda y, x: topi.expand_like(y, x, [0]), [Y, X], 0 * X + Y),
    Case("transpose", topi.transpose, [V], V.T),
    Case("permute", lambda v: topi.transpose(v, (1, -1, 0)), [V], V.transpose(1, 2, 0)),
    Case("flip", lambda x: topi.flip(x, 1), [X], X[:, ::-1]),
    Case("reshape", lambda v: topi.reshape(v, (3, -1)), [V], V.reshape(3, -1)),
    Case("reshape_all", lambda x: topi.reshape(x, (4 * x.shape[1],)), [X], X.reshape(-1)),
    Case("flatten", lambda v: topi.nn.flatten(v), [V], V.reshape(2, -1)),
    Case("squeeze", lambda x: topi.squeeze(topi.expand_dims(x, 1)), [X], X),
    Case("squeeze_one", lambda x: topi.squeeze(topi.expand_dims(x, 0), [0]), [X], X),
    Case("concatenate", lambda x: topi.concatenate((x, x, x), 0), [X], np.concatenate([X] * 3)),
    Case(
        "concatenate_other",
        lambda v: topi.concatenate((v, topi.expand_dims(topi.sum(v, 1), 1)), 1),
        [V],
        np.concatenate([V, V.sum(1, keepdims=True)], 1),
    ),
    Case("stack", lambda x: topi.stack((x, topi.negative(x)), -1), [X], np.stack([X, -X], -1)),
    Case("split", lambda x: topi.split(x, 2, 0), [X], parts(X, 2, 0)),
    Case("split_at", lambda x: topi.split(x, [1, 3], 0), [X], parts(X, [1, 3], 0)),
    Case("slice", lambda x: topi.strided_slice(x, [1], [4], [2]), [X], X[1:4:2]),
    Case(
        "slice_both", lambda x: topi.strided_slice(x, [1, 2], [9, -1], [1, 2]), [X], X[1:, 2:-1:2]
    ),
    Case("slice_back", lambda x: topi.strided_slice(x, [3], [0], [-2], [0]), [X], X[3:0:-2]),
    Case(
        "slice_size",
        lambda x: topi.strided_slice(x, [1, 2], [2, -1], slice_mode="size"),
        [X],
        X[1:3, 2:],
    ),
    Case("repeat", lambda x: topi.repeat(x, 3, 1), [X], np.repeat(X, 3, 1)),
    Case("tile", lambda x: topi.tile(x, (2, 1, 3)), [X], np.tile(X, (2, 1, 3))),
    Case("tile_last", lambda x: topi.tile(x, (2,)), [X], np.tile(X, 2)),
    Case(
        "meshgrid",
        lambda y, a: topi.meshgrid((y, topi.cast(a, "float32")), "ij"),
        [Y, AT],
        np.meshgrid(Y, AT.astype(np.float32), indexing="ij"),
    ),
    Case(
        "meshgrid_xy",
        lambda y, a: topi.meshgrid((y, topi.cast(a, "float32")), "xy"),
        [Y, AT],
        np.meshgrid(Y, AT.astype(np.float32), indexing="xy"),
    ),
    Case(
        "windows",
        lambda x: topi.sliding_window(x, 1, [3], [2]),
        [X],
        np.lib.stride_tricks.sliding_window_view(X, 3, 1)[:, ::2],
    ),
    Case(
        "layout",
        lambda x: topi.layout_transform(x, "NCHW", "NHWC"),
        [IMAGE],
        IMAGE.transpose(0, 2, 3, 1),
    ),
    Case(
        "layout_parts",
        lambda x: topi.layout_transform(x, "NCHW", "NCHW3c"),
        [IMAGE],
        IMAGE.reshape(2, 2, 3, 5, 4).transpose(0, 1, 3, 4, 2),
    ),
    Case(
        "layout_padded",
        lambda x: topi.layout_transform(x, "NCHW", "NCHW4c"),
        [IMAGE],
        np.pad(IMAGE, [(0, 0), (0, 2), (0, 0), (0, 0)])
        .reshape(2, 2, 4, 5, 4)
        .transpose(0, 1, 3, 4, 2),
    ),
    Case(
        "layout_back",
        lambda x: topi.layout_transform(
            topi.layout_transform(x, "NCHW", "NCHW3c"), "NCHW3c", "NHWC"
        ),
        [IMAGE],
        IMAGE.transpose(0, 2, 3, 1),
    ),
    Case(
        "reverse_sequence",
        lambda v, n: topi.reverse_sequence(v, n, 1, 0),
        [V, np.array([2, 3], np.int32)],
        np.stack([V[0, [1, 0, 2]], V[1, ::-1]]),
    ),
]

ONE = np.eye(5, dtype=np.float32)
CREATED = [
    Case("full", lambda x: topi.full((2, x.shape[1]), "float16", 3), [X], np.full((2, 7), 3, "f2")),
    Case("full_like", lambda x: topi.full_like(x, 2), [X], np.full_like(X, 2)),
    Case("zeros_like", topi.zeros_like, [X], 0 * X),
    Case("ones_like", topi.ones_like, [X], np.ones_like(X)),
    Case("arange", lambda x: topi.arange(1, x.shape[1], 2, "int64"), [X], np.arange(1, 7, 2)),
    Case(
        "arange_float",
        lambda x: topi.arange(0.5, 3, 0.5),
        [X[:, :3]],
        np.arange(1, 6, dtype="f4") / 2,
    ),
    Case(
        "arange_int",
        lambda x: topi.arange(5, dtype="float32"),
        [X[:, :3]],
        np.arange(5, dtype="f4"),
    ),
    Case("eye", lambda x: topi.eye(4, x.shape[1], 1), [X], np.eye(4, 7, 1, "f4")),
    Case("triu", lambda x: topi.trilu(x, 1, True), [X], np.triu(X, 1)),
    Case("tril", lambda x: topi.trilu(x, -1, False), [X], np.tril(X, -1)),
    Case("one_hot", lambda a: topi.one_hot(a, 1.0, 0.0, 5, -1, "float32"), [AT], ONE[AT]),
    Case(
        "one_hot_first",
        lambda a: topi.one_hot(a, 1, 0, 5, 0, "int32"),
        [AT],
        ONE[AT].T.astype("i4"),
    ),
    Case("shape", topi.shape, [V], np.array([2, 3, 7], np.int32)),
    Case("ndarray_size", topi.ndarray_size, [V], np.int32(42)),
    Case(
        "set_diagonal",
        lambda x, a: topi.matrix_set_diag(x, topi.cast(a, "float32"), 1),
        [X, np.arange(4, dtype=np.int32)],
        np.where(np.eye(4, 7, 1, dtype=bool), np.arange(4, dtype="f4")[:, None], X),
    ),
    Case(
        "sequence_mask",
        lambda x, n: topi.sequence_mask(x, n, -1.0, 1),
        [X, np.array([1, 7, 0, 3], np.int32)],
        np.where(np.arange(7) < np.array([1, 7, 0, 3])[:, None], X, -1).astype("f4"),
    ),
]


def scattered(data: Any, at: Any, new: Any, how: str) -> Any:
    return (
        torch.from_numpy(data.copy())
        .scatter_reduce(0, torch.from_numpy(at), torch.from_numpy(new), how)
        .numpy()
    )


PLACES = RNG.integers(0, 4, (3, 7))
NEW = RNG.uniform(-2, 2, (3, 7)).astype(np.float32)
UNIQUE = np.stack([RNG.permutation(4)[:3] for _ in range(7)], 1)
PUT = X.copy()
np.put_along_axis(PUT, UNIQUE, NEW, 0)
ADDED = X.copy()
np.add.at(ADDED, (AT,), NEW)
INDEXED = [
    Case("take", lambda x, a: topi.take(x, a, axis=0), [X, AT], X[AT]),
    Case("take_last", lambda x, a: topi.take(x, a, -1, mode="fast"), [X, MATRIX], X[:, MATRIX]),
    Case("take_flat", topi.take, [X, AT], X.reshape(-1)[AT]),
    Case("take_clip", lambda x, a: topi.take(x, a, 0), [X, OUT], X[[2, 0, 3]]),
    Case("take_wrap", lambda x, a: topi.take(x, a, 0, mode="wrap"), [X, OUT], X[[2, 3, 1]]),
    Case(
        "take_nan",
        lambda x, a: topi.take(x, a, 0, mode="nan"),
        [X, OUT],
        np.stack([X[2], X[3], X[0] * np.nan]),
    ),
    Case("take_number", lambda x: topi.take(x, 2, 0), [X], X[2]),
    Case(
        "take_batch",
        lambda v, a: topi.take(v, a, 1, batch_dims=1),
        [V, np.array([[0, 2, 2, 1], [1, 0, 0, 2]], np.int32)],
        np.stack([V[0, [0, 2, 2, 1]], V[1, [1, 0, 0, 2]]]),
    ),
    Case(
        "gather", lambda x, a: topi.gather(x, 0, a), [X, PLACES], np.take_along_axis(X, PLACES, 0)
    ),
    Case(
        "gather_nd", topi.gather_nd, [V, np.array([[0, 1, 1], [2, 0, 1]])], V[[0, 1, 1], [2, 0, 1]]
    ),
    Case(
        "gather_nd_batch",
        lambda v, a: topi.gather_nd(v, a, 1),
        [V, np.array([[2, 1]])],
        np.stack([V[0, 2], V[1, 1]]),
    ),
    Case(
        "adv_index",
        lambda x, a, b: topi.adv_index(x, [a, b]),
        [X, AT, MATRIX[:, :1]],
        X[AT, MATRIX[:, :1]],
    ),
    Case(
        "unravel",
        topi.unravel_index,
        [np.array([5, 27, 0]), np.array([4, 7, 1])],
        np.stack(np.unravel_index([5, 27, 0], (4, 7, 1))),
    ),
    Case("scatter", topi.scatter_elements, [X, UNIQUE, NEW], PUT),
    *(
        Case(
            f"scatter_{how}",
            lambda x, a, n, how=how: topi.scatter_elements(x, a, n, 0, how),
            [X, PLACES, NEW],
            scattered(X, PLACES, NEW, name),
        )
        for how, name in [("add", "sum"), ("mul", "prod"), ("min", "amin"), ("max", "amax")]
    ),
    Case("scatter_nd", lambda x, a, n: topi.scatter_nd(x, a, n, "add"), [X, AT[None], NEW], ADDED),
    Case(
        "scatter_nd_elements",
        topi.scatter_nd,
        [X[:, :3], np.array([[0, 2], [1, 1]]), np.array([9, 8], np.float32)],
        np.array([[*X[0, :1], 9, *X[0, 2:3]], X[1, :3], [*X[2, :1], 8, X[2, 2]], X[3, :3]], "f4"),
    ),
]


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("cases", [SHAPES, CREATED, INDEXED])
def test_values(cases: list[Case], symbolic: bool) -> None:
    check(cases, symbolic)


def test_mistakes() -> None:
    x = te.placeholder((4, 6), name="x")
    with pytest.raises(ValueError, match="24 elements"):
        topi.reshape(x, (5, 5))
    with pytest.raises(ValueError, match="the axis 0 has size 4"):
        topi.squeeze(x, [0])
    with pytest.raises(ValueError, match="names not each"):
        topi.transpose(x, (0, 0))
    with pytest.raises(ValueError, match="is no layout"):
        topi.layout_transform(x, "N4", "N")
    with pytest.raises(ValueError, match="mode is one of 'clip'"):
        topi.take(x, 1, 0, mode="raise")
