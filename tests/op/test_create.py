"""Operators that make tensors, against numpy."""

from __future__ import annotations

import numpy as np
import pytest

from relax2xla import op, tir
from relax2xla.errors import OpError
from relax2xla.ir import PrimStructInfo, ShapeStructInfo, TensorStructInfo, Var, VDevice, const
from tests.op.harness import Case, check, tensor

N, M = tir.Var("n", "int64"), tir.Var("m", "int64")
SCALAR = Var("p", PrimStructInfo("int64"))


def test_filled():
    x = np.zeros((2, 3), np.float16)
    big = 2**60 + 1
    cases = [
        (lambda: op.ones((2, 3), "int8"), np.ones((2, 3), np.int8)),
        (lambda: op.zeros((), "bool"), np.zeros((), np.bool_)),
        (lambda: op.zeros((0, 3), "float32"), np.zeros((0, 3), np.float32)),
        (lambda: op.full((2,), const(1.5)), np.full(2, 1.5, np.float32)),
        (lambda: op.full((2,), big, "int64"), np.full(2, big)),
        (lambda: op.full((1,), 0.1, "float64"), np.full(1, 0.1)),
        (lambda: op.full((2,), const(1.9), "int32"), np.full(2, 1, np.int32)),
    ]
    of_x = [
        (lambda x: op.full((2, 2), op.max(x) + 3.5, "int32"), np.full((2, 2), 3, np.int32)),
        (lambda x: op.full_like(x, 2.5), np.full_like(x, 2.5)),
        (lambda x: op.full_like(x, 7, "int8"), np.full_like(x, 7, np.int8)),
        (op.ones_like, np.ones_like(x)),
        (lambda x: op.zeros_like(x, "int64"), np.zeros_like(x, np.int64)),
    ]
    check(
        [Case(f"{i}", make, [], want, 0) for i, (make, want) in enumerate(cases)]
        + [Case(f"of x {i}", make, [x], want, 0) for i, (make, want) in enumerate(of_x)]
    )


@pytest.mark.parametrize(
    ("args", "dtype"),
    [
        ((5,), None),
        ((0,), None),
        ((2, 11, 3), None),
        ((10, 0, -3), None),
        ((5, 2), None),
        ((2**40, 2**40 + 4), None),
        ((-3, 8, 2), "int32"),
        ((-(2**31), 2**31 - 1, 2**30), "int32"),
        ((2**31 - 1, -(2**31), -(2**31)), "int32"),
        ((2**31 - 2, 2**31 + 1), "int32"),
        ((0, 250, 50), "uint8"),
        ((3, 8), "float16"),
        ((0.0, 1.0, 0.1), None),
        ((0.0, 1.0, 0.1), "float64"),
        ((1, 0, -0.25), None),
        ((1.5,), None),
        ((0, 10, 3), "bfloat16"),
    ],
)
def test_arange(args, dtype):
    want = np.arange(*args)
    kind = dtype or ("int64" if all(isinstance(a, int) for a in args) else "float32")
    made = op.arange(*args, dtype=dtype)
    check([Case("arange", lambda: made, [], want.astype(np.dtype(kind)))])


def test_windows_and_diagonals():
    x = np.arange(24, dtype=np.int32).reshape(2, 3, 4) + 1
    y = np.arange(12, dtype=np.float32).reshape(4, 3) + np.inf
    cases = [
        Case("eye", lambda: op.eye(3), [], np.eye(3, dtype=np.float32)),
        Case("eye k", lambda: op.eye(3, 5, 1, "int8"), [], np.eye(3, 5, 1, np.int8)),
        Case("eye -k", lambda: op.eye(4, 3, -2, "bool"), [], np.eye(4, 3, -2, bool)),
        Case("eye_like", lambda x: op.eye_like(x, 1), [y], np.eye(4, 3, 1, np.float32)),
        Case(
            "eye_like dtype",
            lambda x: op.eye_like(x, dtype="int32"),
            [y],
            np.eye(4, 3, dtype=np.int32),
        ),
        Case("inf", op.tril, [y], np.where(np.tri(4, 3, dtype=bool), y, 0)),
        Case(
            "hamming",
            lambda: op.hamming_window(8, 0, 0.54, 0.46, "float32"),
            [],
            np.hamming(8).astype(np.float32),
        ),
        Case(
            "hamming periodic",
            lambda: op.hamming_window(8, 1, 0.54, 0.46, "float64"),
            [],
            np.hamming(9)[:8],
        ),
    ]
    for k in (-9, -1, 0, 2, 9, 2**40):
        j = min(k, 99)
        cases.append(Case(f"tril {k}", lambda x, k=k: op.tril(x, k), [x], np.tril(x, j)))
        cases.append(Case(f"triu {k}", lambda x, k=k: op.triu(x, k), [x], np.triu(x, j)))
    check(cases)


@pytest.mark.parametrize(
    ("make", "want"),
    [
        (lambda: op.full((N, 3), const(1.0)), TensorStructInfo((N, 3), "float32")),
        (lambda: op.zeros((N,), "int8"), TensorStructInfo((N,), "int8")),
        (
            lambda: op.full_like(tensor((N, 3), "int32"), const(1.0)),
            TensorStructInfo((N, 3), "int32"),
        ),
        (lambda: op.arange(N), TensorStructInfo((N,), "int64")),
        (lambda: op.arange(1, N), TensorStructInfo((N - 1,), "int64")),
        (lambda: op.arange(0, N, 2, "float32"), TensorStructInfo(((N + 1) // 2,), "float32")),
        (
            lambda: op.arange(SCALAR),
            TensorStructInfo(None, "int64", ndim=1),
        ),
        (lambda: op.eye(N, M, dtype="int32"), TensorStructInfo((N, M), "int32")),
        (lambda: op.tril(tensor((N, 3))), TensorStructInfo((N, 3), "float32")),
        (lambda: op.triu(Var("x", TensorStructInfo(None, "int8"))), TensorStructInfo(None, "int8")),
    ],
)
def test_inference(make, want):
    assert make().struct_info == want


def test_a_full_tensor_is_on_the_device_of_its_value():
    device = VDevice("llvm")
    value = Var("v", TensorStructInfo((), "float32", device))
    assert op.full((2, 3), value).struct_info == TensorStructInfo((2, 3), "float32", device)


def test_shapes_that_are_variables_are_kept():
    shape = Var("s", ShapeStructInfo(ndim=2))
    made = op.zeros(shape, "float32").struct_info
    assert made.shape is shape
    assert made.ndim == 2


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: op.full((2,), tensor((1,))), "`fill_value` must have rank 0"),
        (lambda: op.full((2,), tensor((1,)), "int8"), "`fill_value` must have rank 0"),
        (lambda: op.full(tensor((2,)), const(1)), "`shape` must be a shape"),
        (lambda: op.ones((2,), None), "`dtype` must be given"),
        (lambda: op.ones((-2,), "float32"), "must not be negative"),
        (lambda: op.zeros(2.5, "float32"), "parameter `shape`"),
        (lambda: op.arange(0, 5, 0), "`step` must not be 0"),
        (lambda: op.arange(tensor(())), "`end` must be a scalar"),
        (lambda: op.eye(2.5), "`n` must be an integer"),
        (lambda: op.eye(-1), "`n` must not be negative"),
        (lambda: op.eye_like(tensor((3,))), "`x` must have rank 2"),
        (lambda: op.tril(tensor((3,))), "`x` must have rank 2 or more"),
        (lambda: op.hamming_window(0, 0, 0.5, 0.5, "float32"), "`window_size` must be positive"),
        (lambda: op.hamming_window(5, 0, 0.5, 0.5, "int32"), "must be floating point"),
    ],
)
def test_errors(call, message):
    with pytest.raises((OpError, ValueError), match=message):
        call()


def test_the_value_to_fill_with_is_known_to_be_one() -> None:
    unknown = Var("v", TensorStructInfo(dtype="float32"))
    for make in (lambda: op.full((2,), unknown), lambda: op.full_like(unknown, unknown)):
        with pytest.raises(OpError, match=r"must be known to have rank 0.*match_cast"):
            make()
