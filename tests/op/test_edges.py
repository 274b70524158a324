"""Edges that the tests of the families leave out, a table for each: no elements, no axes, axes
from the end, sizes 1 and 0 side by side, NaN and infinity, integers that wrap, division by 0.

The truth is numpy's or torch's; where neither has one (integers divided by 0) it is written here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from relax2xla import op
from relax2xla.errors import OpError
from relax2xla.ir import Op
from tests.op.harness import Case, calling, check, tensor
from tests.op.test_oracles import ANY_UNARY, ARITHMETIC, BITWISE, COMPARE, LOGICAL, TORCH, UNARY

NONE = np.zeros((0, 3), np.float32)
ROWS = np.zeros((2, 0, 3), np.float32)
ONE = np.float32(2.5)
ODD = np.array([[1, np.nan, 3, -1], [np.inf, 2, -np.inf, 0], [5, np.inf, 4, 1]], np.float32)
Truth = Callable[..., Any]
# name, options, inputs, truth of the inputs
Row = tuple[str, tuple[Any, ...], tuple[Any, ...], Truth]


def rows(*table: Row) -> list[Case]:
    made: list[Case] = []
    with np.errstate(all="ignore"):
        for name, options, inputs, truth in table:
            want = truth(*inputs)
            if isinstance(want, torch.Tensor):
                want = want.numpy()
            want = tuple(map(np.asarray, want)) if isinstance(want, tuple) else np.asarray(want)
            shapes = [np.shape(x) for x in inputs]
            label = f"{name}{options} of {shapes}"
            make = calling(Op.get(f"relax.{name}"), *options)
            made.append(Case(label, make, inputs, want, 1e-5, 1e-6))
    return made


def with_torch(f: Truth, *options: Any, **attrs: Any) -> Truth:
    return lambda *x: f(*(torch.from_numpy(np.array(v)) for v in x), *options, **attrs)


FLOATING = {
    **{n: (f, "float32") for n, f in (ARITHMETIC | COMPARE).items()},
    "divide": (np.divide, "float32"),
    "floor_divide": (np.floor_divide, "float32"),
    "floor_mod": (np.mod, "float32"),
    "mod": (np.fmod, "float32"),
    "power": (np.power, "float32"),
    "atan2": (np.arctan2, "float32"),
    "log_add_exp": (np.logaddexp, "float32"),
    **{n: (f, "bool") for n, f in LOGICAL.items()},
    **{n: (f, "int32") for n, f in BITWISE.items()},
    "left_shift": (np.left_shift, "int32"),
    "right_shift": (np.right_shift, "uint8"),
}
# Sizes that meet: a 1 gives way to a 0, and a scalar to all.
MEETING = (
    ((1,), (0,)),
    ((0, 1), (1, 3)),
    ((), (0,)),
    ((), ()),
    ((2, 1, 1), (1,)),
    ((1, 0), (2, 1)),
)


def test_binary_operators_on_ones_zeros_and_scalars():
    made: list[Row] = []
    for name, (truth, dtype) in FLOATING.items():
        for a, b in MEETING:
            made.append((name, (), (np.full(a, 3, dtype), np.full(b, 2, dtype)), truth))
    check(rows(*made))


def test_integers_divided_by_zero_and_minus_one():
    made: list[Row] = []
    for dtype in ("int8", "int32", "int64", "uint8", "uint64"):
        info = np.iinfo(dtype)
        a = np.array([info.min, info.max, 0, 7], dtype)
        zero, ones = np.zeros(4, dtype), np.full(4, -1 if info.min else 1, dtype)
        for prefix in ("", "floor_"):
            # By 0 a quotient has all bits set and a remainder is the dividend, as in XLA.
            divide, mod = f"{prefix}divide", f"{prefix}mod"
            made.append((divide, (), (a, zero), lambda a, z: np.invert(z)))
            made.append((mod, (), (a, zero), lambda a, z: a))
            made.append((divide, (), (a, ones), np.multiply))
            made.append((mod, (), (a, ones), lambda a, b: a * 0))
        made += [(n, (), (a, a), f) for n, f in ARITHMETIC.items()]
    check(rows(*made))


BITS = np.array([False, True])
BOUNDS = [(False, True), (True, True), (False, False)]


def test_unary_operators_without_elements_and_axes():
    floats = (*UNARY, *ANY_UNARY, "negative", *(f"nn.{n}" for n in TORCH))
    check(
        rows(
            *((n, (), (NONE,), lambda x: x) for n in floats),
            ("abs", (), (ONE,), np.abs),
            ("nn.relu", (), (-ONE,), lambda x: np.float32(0)),
            ("isnan", (), (np.float32(np.nan),), np.isnan),
            ("clip", (1, 2), (NONE,), lambda x: x),
            *(("clip", bounds, (BITS,), lambda x, b=bounds: np.clip(x, *b)) for bounds in BOUNDS),
            ("astype", ("int8",), (NONE,), lambda x: x.astype(np.int8)),
        )
    )


REDUCED: dict[str, Truth] = {
    "sum": np.sum, "prod": np.prod, "mean": np.mean, "variance": np.var, "std": np.std,
    "max": np.max, "min": np.min,
}  # fmt: skip


def test_reductions():
    made: list[Row] = []
    for name, truth in REDUCED.items():
        made.append((name, (-2,), (ODD,), lambda x, f=truth: f(x, -2)))
        made.append((name, ([-1, 0],), (ODD[:, 2:],), lambda x, f=truth: f(x, (0, 1))))
        made.append((name, (), (ONE,), lambda x, f=truth: f(x)))
        made.append((name, ((), True), (ODD,), lambda x, f=truth: f(x, (), keepdims=True)))
        made.append((name, (-1, True), (NONE,), lambda x, f=truth: f(x, -1, keepdims=True)))
        if name in ("sum", "prod"):
            made.append((name, (1,), (ROWS,), lambda x, f=truth: f(x, 1)))
    for name in ("mean", "variance", "std"):
        made.append((name, (1,), (ROWS,), lambda x: np.full((2, 3), np.nan, np.float32)))
    made += [
        ("median", (-2,), (ODD,), with_torch(torch.median, -2)),
        ("median", (1,), (NONE,), with_torch(torch.median, 1)),
        ("argmax", (-2, True), (ODD,), lambda x: x.argmax(-2, keepdims=True)),
        ("argmin", (0,), (ODD,), lambda x: x.argmin(0)),
        ("cumsum", (-2,), (ODD,), lambda x: x.cumsum(-2)),
        ("cumprod", (-1,), (ODD,), lambda x: x.cumprod(-1)),
        ("cumsum", (1,), (NONE,), lambda x: x),
        ("cumprod", (0,), (NONE,), lambda x: x),
        ("cumsum", (0,), (np.full(4, 100, np.int8),), lambda x: x.cumsum(0, np.int8)),
        ("cumprod", (0,), (np.full(4, 100, np.uint8),), lambda x: x.cumprod(0, np.uint8)),
    ]
    check(rows(*made))


def test_searches():
    check(
        rows(
            ("sort", (0,), (NONE,), lambda x: x),
            ("sort", (), (ODD[0, :1],), lambda x: x),
            ("sort", (-2, True), (ODD,), with_torch(lambda x: x.sort(-2, descending=True)[0])),
            ("argsort", (0,), (NONE,), lambda x: x.astype(np.int32)),
            ("topk", (2, 1, "values"), (NONE,), lambda x: x[:, :2]),
            ("topk", (1, -2, "values"), (ODD,), with_torch(lambda x: x.topk(1, -2)[0])),
            ("bucketize", (), (ODD, np.array([0, 1], np.float32)), with_torch(torch.bucketize)),
            ("bucketize", (), (NONE, NONE[:, 0]), with_torch(torch.bucketize)),
            ("bucketize", (), (ODD, NONE[:, 0]), with_torch(torch.bucketize)),
        )
    )


I0 = np.zeros((0,), np.int64)


def test_gathers_and_scatters():
    i = np.zeros((0, 4), np.int64)
    check(
        rows(
            ("take", (1,), (ODD, I0), lambda x, i: x.take(i, 1)),
            ("take", (1,), (NONE, np.array([2, 0])), lambda x, i: x.take(i, 1)),
            ("take", (-1, "wrap"), (ODD, np.array([-9, 7])),
             lambda x, i: x.take(i, -1, mode="wrap")),
            ("gather_elements", (0,), (ODD, i), lambda x, i: x[:0]),
            ("gather_elements", (-2,), (ODD, i), lambda x, i: x[:0]),
            ("gather_nd", (), (ODD, np.zeros((0, 2), np.int64)), lambda x, i: x[:0, 0]),
            ("gather_nd", (), (ODD, np.array([1])), lambda x, i: x[1]),
            ("scatter_elements", (0,), (ODD, i, i.astype("f")), lambda x, i, u: x),
            ("scatter_elements", (-1, "add"), (ODD, i, i.astype("f")), lambda x, i, u: x),
            ("scatter_nd", (), (ODD, np.zeros((0, 1), np.int64), ODD[:0]), lambda x, i, u: x),
            ("one_hot", (1, 0, 3), (I0,), lambda i: np.zeros((0, 3), np.int64)),
            ("one_hot", (1, 0, 3), (np.int64(2),), lambda i: np.eye(3, dtype=np.int64)[2]),
            ("one_hot", (1, 0, 3, 0), (np.array([-1, 3]),), lambda i: np.zeros((3, 2), np.int64)),
        )
    )  # fmt: skip


def test_products():
    made: list[Row] = [
        ("matmul", (), (ODD, ODD.T.copy()), np.matmul),
        ("matmul", (), (NONE.T.copy(), NONE), np.matmul),
        ("matmul", (), (NONE, NONE.T.copy()), np.matmul),
        ("matmul", (), (NONE[:, 0], NONE[:, 0]), np.matmul),
        ("outer", (), (NONE[:, 0], ODD[0]), np.outer),
    ]
    wide = np.full((2, 2), 100, np.int8)
    made.append(("matmul", (), (wide, wide), lambda a, b: a @ b))
    einsum = lambda x: op.einsum((x, x), "ij,ik->jk")  # noqa: E731
    check([*rows(*made), Case("einsum", einsum, [NONE], np.zeros((3, 3), np.float32))])


def test_networks():
    finite = np.where(np.isnan(ODD), 0, ODD)
    images = np.zeros((0, 3, 5, 5), np.float32)
    kernel, three = np.ones((2, 3, 3, 3), np.float32), np.ones(3, np.float32)
    check(
        rows(
            ("nn.softmax", (-1,), (ODD,), with_torch(F.softmax, -1)),
            ("nn.softmax", (0,), (np.full(3, -np.inf, np.float32),), with_torch(F.softmax, 0)),
            ("nn.softmax", (-2,), (ROWS,), lambda x: x),
            ("nn.log_softmax", (-1,), (finite,), with_torch(F.log_softmax, -1)),
            ("nn.log_softmax", (0,), (np.array([1e30, 0, -1e30], np.float32),),
             with_torch(F.log_softmax, 0)),
            ("nn.layer_norm", ([-1],), (NONE, three, three), lambda x, g, b: x),
            ("nn.rms_norm", ([-1],), (NONE, three), lambda x, g: x),
            ("nn.layer_norm", ([-1],), (ODD[:, :3], three, three),
             lambda x, g, b: with_torch(F.layer_norm, (3,), torch.ones(3), torch.ones(3))(x)),
            ("nn.conv2d", (), (images, kernel), lambda x, w: np.zeros((0, 2, 3, 3), np.float32)),
            ("nn.max_pool2d", (2,), (images,), lambda x: np.zeros((0, 3, 4, 4), np.float32)),
            ("nn.avg_pool2d", (2,), (images,), lambda x: np.zeros((0, 3, 4, 4), np.float32)),
            ("nn.adaptive_avg_pool2d", (2,), (images,), lambda x: x[:, :, :2, :2]),
            ("nn.max_pool1d", (2,), (ODD[None],), with_torch(F.max_pool1d, 2, 1)),
            ("nn.avg_pool1d", (2,), (ODD[None],), with_torch(F.avg_pool1d, 2, 1)),
            ("image.resize2d", ((2, 2),), (images,), lambda x: x[:, :, :2, :2]),
        )
    )  # fmt: skip


def test_shapes():
    zero = np.zeros((0,), np.float32)
    check(
        [
            *rows(
                ("reshape", ((0, 5),), (NONE,), lambda x: x.reshape(0, 5)),
                ("reshape", ((1, 1),), (ONE,), lambda x: x.reshape(1, 1)),
                ("squeeze", ((-3, -1),), (ODD[None, :, :1],), lambda x: x.squeeze((-3, -1))),
                ("expand_dims", ((-1, 0),), (ONE,), lambda x: x.reshape(1, 1)),
                ("permute_dims", (), (ONE,), lambda x: x),
                ("permute_dims", ((-1, 0, -2),), (ROWS,), lambda x: x.transpose(2, 0, 1)),
                ("flip", (-2,), (NONE,), lambda x: x),
                ("tile", ((0, 2),), (ODD,), lambda x: np.tile(x, (0, 2))),
                ("tile", ((2, 3),), (ONE,), lambda x: np.tile(x, (2, 3))),
                ("repeat", (2, -1), (NONE,), lambda x: x.repeat(2, -1)),
                ("repeat", (3,), (ONE,), lambda x: x.repeat(3)),
                ("broadcast_to", ((0, 4),), (ODD[:1],), lambda x: np.broadcast_to(x, (0, 4))),
                ("broadcast_to", ((2, 0),), (ONE,), lambda x: np.broadcast_to(x, (2, 0))),
                ("collapse_sum_to", ((1, 3),), (NONE,), lambda x: x.sum(0, keepdims=True)),
                ("strided_slice", ([-1], [-9], [9], [2]), (NONE,), lambda x: x[:, ::2]),
                ("strided_slice", ([0], [9], [-9], [-1]), (ODD,), lambda x: x[::-1]),
                ("strided_slice", ([0], [0], [9], [1]), (zero,), lambda x: x),
                ("slice_scatter", (1, 1, 1, -1), (ODD, ODD[:, :0]), lambda x, s: x),
                ("split", (2, -1), (NONE,), lambda x: (x[:, :2], x[:, 2:])),
                ("split", ([1], 0), (NONE,), lambda x: tuple(np.split(x, [1], 0))),
                ("nn.pad", ((1, 1, 0, 0), "constant", 7), (NONE,),
                 lambda x: np.pad(x, ((1, 1), (0, 0)), constant_values=7)),
                ("nn.pad", ((), "constant"), (ONE,), lambda x: x),
                ("tril", (-1,), (NONE,), lambda x: x),
                ("where", (), (np.array([True]), zero, np.float32(1)), lambda c, x, y: x),
                ("ewise_fma", (), (zero, zero, zero), lambda a, b, c: a),
            ),
            Case("concat", lambda a, b: op.concat([a, b], -2), [NONE, ODD[:, 1:]], ODD[:, 1:]),
            Case("stack", lambda a: op.stack([a, a], -1), [zero], np.stack([zero] * 2, -1)),
            Case("stack of scalars", lambda a: op.stack([a, a]), [ONE], np.stack([ONE] * 2)),
            Case("meshgrid", lambda a, b: op.meshgrid([a, b]), [zero, ODD[0]],
                 tuple(np.meshgrid(zero, ODD[0], indexing="ij"))),
        ]
    )  # fmt: skip


@pytest.mark.parametrize("name", ["argmax", "argmin", "median"])
@pytest.mark.parametrize("axis", [1, -2, None])
def test_what_is_nowhere_has_no_position(name: str, axis: int | None):
    with pytest.raises(OpError, match=r"axis 1 of .* has no elements"):
        Op.get(f"relax.{name}")(tensor((2, 0, 3)), axis)


@pytest.mark.parametrize("dtype", ["float32", "int8", "uint32", "bool"])
def test_extremes_of_nothing_are_those_of_onnx(dtype: str):
    x = np.zeros((2, 0), dtype)
    low, high = {"f": (-np.inf, np.inf), "b": (False, True)}.get(x.dtype.kind, (None, None))
    if low is None:
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    check(rows(*(
        (name, (1,), (x,), lambda x, v=v: np.full(2, v, x.dtype))
        for name, v in (("max", low), ("min", high))
    )))  # fmt: skip
