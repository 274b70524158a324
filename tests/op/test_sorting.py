"""Sorting, topk, argmax and bucketize against numpy and torch."""

from __future__ import annotations

import math

import numpy as np
import pytest

from relax2xla import op, tir
from relax2xla.errors import OpError
from relax2xla.ir import TensorStructInfo, TupleStructInfo, Var
from tests.op.harness import Case, check, tensor

torch = pytest.importorskip("torch")
N = tir.Var("n", "int64")
X = np.random.default_rng(0).integers(-9, 9, (3, 8, 5)).astype(np.float32)
SPECIAL = np.array([3, math.nan, -0.0, 0.0, -math.inf, math.inf, -math.nan, 3, -1, 0.0], np.float32)


def test_sort():
    t = torch.from_numpy(SPECIAL)
    values, where = t.sort(stable=True)
    down, down_where = t.sort(stable=True, descending=True)
    i = np.array([[-128, 127, 0, 1, -1]], np.int8)
    u = i.astype(np.uint8)
    b = np.array([True, False, True])
    check(
        [
            Case("axis 1", lambda x: op.sort(x, 1), [X], np.sort(X, 1)),
            Case("default", op.sort, [X], np.sort(X)),
            Case("down", lambda x: op.sort(x, 1, True), [X], -np.sort(-X, 1)),
            Case("int8", op.sort, [i], np.sort(i)),
            Case("uint8", op.sort, [u], np.sort(u)),
            Case("bool", op.sort, [b], np.sort(b)),
            Case("half", op.sort, [X.astype(np.float16)], np.sort(X.astype(np.float16))),
            Case("special", op.sort, [SPECIAL], values.numpy()),
            Case("special down", lambda x: op.sort(x, 0, True), [SPECIAL], down.numpy()),
            Case("argsort", op.argsort, [SPECIAL], where.numpy().astype(np.int32)),
            Case(
                "argsort down",
                lambda x: op.argsort(x, -1, True, "int64"),
                [SPECIAL],
                down_where.numpy(),
            ),
            Case(
                "argsort axis 0",
                lambda x: op.argsort(x, 0, dtype="int64"),
                [X],
                np.argsort(X, 0, stable=True),
            ),
            Case("none", op.sort, [X[:, :, :0]], X[:, :, :0]),
        ]
    )


def test_topk():
    rng = np.random.default_rng(0)
    x = rng.permutation(40).reshape(5, 8).astype(np.float32)
    order = np.argsort(-x, 1)
    first = order[:, :3].astype(np.int32)
    low = np.argsort(x, 0)[:2]
    check(
        [
            Case("both", lambda x: op.topk(x, 3), [x], (np.take_along_axis(x, first, 1), first)),
            Case("values", lambda x: op.topk(x, 8, ret_type="values"), [x], -np.sort(-x)),
            Case(
                "indices of the smallest",
                lambda x: op.topk(x, 2, 0, "indices", False, "int64"),
                [x],
                low,
            ),
            Case("all", lambda x: op.topk(x, -1, ret_type="indices"), [x], order.astype(np.int32)),
            Case("too many", lambda x: op.topk(x, 99, 1, "values"), [x], -np.sort(-x)),
            Case(
                "ties keep their order",
                lambda x: op.topk(x, 2, ret_type="indices"),
                [np.array([1, 5, 5, 5], np.int32)],
                np.array([1, 2], np.int32),
            ),
        ]
    )


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("largest", [True, False])
def test_topk_of_special_values(dtype, largest):
    x = np.concatenate([SPECIAL, -SPECIAL, np.arange(-3, 9)]).astype(dtype)
    x = np.stack([x, x[::-1]], 1)
    values, where = torch.from_numpy(x).sort(dim=0, descending=largest, stable=True)
    make = lambda x, k: op.topk(x, k, 0, largest=largest, dtype="int64")  # noqa: E731
    check(
        [
            Case(f"{k}", lambda x, k=k: make(x, k), [x], (values[:k].numpy(), where[:k].numpy()), 0)
            for k in (1, 7, 20, 31)
        ]
    )


def test_arg_extremes():
    nan = np.array([[1, math.nan, 9, math.nan], [-math.inf] * 4], np.float32)
    i = np.array([5, 7, 7, -128], np.int8)
    b = np.array([[False, True, True], [False, False, False]])
    check(
        [
            Case("max", lambda x: op.argmax(x, 1), [X], X.argmax(1)),
            Case("min", lambda x: op.argmin(x, -1, True), [X], X.argmin(-1, keepdims=True)),
            Case("max of all", op.argmax, [X], X.argmax()),
            Case("min of all", lambda x: op.argmin(x, None, True), [X], X.argmin(keepdims=True)),
            Case("nan max", lambda x: op.argmax(x, 1), [nan], nan.argmax(1)),
            Case("nan min", lambda x: op.argmin(x, 1), [nan], nan.argmin(1)),
            Case("int8 max", op.argmax, [i], i.argmax()),
            Case("int8 min", op.argmin, [i], i.argmin()),
            Case("bool max", lambda x: op.argmax(x, 1), [b], b.argmax(1)),
            Case("half", lambda x: op.argmax(x, 0), [X.astype(np.float16)], X.argmax(0)),
            Case("scalar", op.argmax, [np.float32(2)], np.int64(0)),
            Case("rows of none", lambda x: op.argmax(x, 1), [X[:0]], X[:0].argmax(1)),
        ]
    )


def test_bucketize():
    marks = np.array([1.0, 3.0, 3.0, 5.0], np.float32)
    x = np.array([[0, 1, 2, 3], [4, 5, 9, math.nan]], np.float32)
    t, m = torch.from_numpy(x), torch.from_numpy(marks)
    check(
        [
            Case("left", op.bucketize, [x, marks], torch.bucketize(t, m).numpy()),
            Case(
                "right",
                lambda x, m: op.bucketize(x, m, True, True),
                [x, marks],
                torch.bucketize(t, m, out_int32=True, right=True).numpy(),
            ),
        ]
    )


def test_inference():
    x = tensor((N, 5))
    unknown = Var("x", TensorStructInfo(None, "float32", ndim=2))
    both = op.topk(x, 2).struct_info
    assert both == TupleStructInfo(
        [TensorStructInfo((N, 2), "float32"), TensorStructInfo((N, 2), "int32")]
    )
    assert op.topk(x, 7, ret_type="values").struct_info == TensorStructInfo((N, 5), "float32")
    assert op.topk(x, 2, 0, "values").struct_info == TensorStructInfo((2, 5), "float32")
    assert op.topk(unknown, 2, 0, "values").struct_info == unknown.struct_info
    assert op.sort(x).struct_info == x.struct_info
    assert op.argsort(x, dtype="int64").struct_info == TensorStructInfo((N, 5), "int64")
    assert op.argmax(x).struct_info == TensorStructInfo((), "int64")
    assert op.argmin(x, 1, True).struct_info == TensorStructInfo((N, 1), "int64")
    assert op.argmax(unknown, 1).struct_info == TensorStructInfo(None, "int64", ndim=1)
    assert op.bucketize(x, tensor((3,))).struct_info == TensorStructInfo((N, 5), "int64")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: op.sort(tensor((2,)), 1), "out of range"),
        (lambda: op.sort(tensor((2,), "complex64")), "got complex64"),
        (lambda: op.argsort(tensor((2,)), -2), "out of range"),
        (lambda: op.topk(tensor((2,)), ret_type="all"), "`ret_type` must be"),
        (lambda: op.topk(tensor((2,)), 1, 3), "out of range"),
        (lambda: op.argmax(tensor((2, 0)), 1), r"axis 1 of .* has no elements"),
        (lambda: op.argmin(tensor((0,))), r"axis 0 of .* has no elements"),
        (lambda: op.bucketize(tensor((2,)), tensor((2, 2))), "`boundaries` must have rank 1"),
    ],
)
def test_errors(call, message):
    with pytest.raises(OpError, match=message):
        call()
