"""Gathers against numpy and torch."""

from __future__ import annotations

import math

import numpy as np
import pytest

from relax2xla import op, tir
from relax2xla.errors import LegalizeError, OpError
from relax2xla.ir import PrimStructInfo, PrimValue, TensorStructInfo, Tuple, Var
from tests.op.harness import Case, check, tensor

torch = pytest.importorskip("torch")
N, M = tir.Var("n", "int64"), tir.Var("m", "int64")
X = np.arange(60, dtype=np.float32).reshape(3, 4, 5)


def unknown(ndim=-1):
    return Var("x", TensorStructInfo(None, "float32", ndim=ndim))


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint8", "uint32"])
def test_take(dtype):
    i = np.array([[0, 2], [1, 1]]).astype(dtype)
    check(
        [
            Case("axis 1", lambda x, i: op.take(x, i, 1), [X, i], X.take(i, 1)),
            Case("axis -1", lambda x, i: op.take(x, i, -1), [X, i], X.take(i, -1)),
            Case("axis 0", lambda x, i: op.take(x, i, 0, "clip"), [X, i], X.take(i, 0)),
            Case("vector", op.take, [X[0, 0], i], X[0, 0][i]),
            Case("scalar", lambda x, i: op.take(x, i, 1), [X, i[1, 0]], X[:, 1]),
            Case("none", lambda x, i: op.take(x, i, 1), [X, i[:0]], X.take(i[:0], 1)),
        ]
    )


def test_take_out_of_bounds():
    i = np.array([-5, -1, 0, 3, 4, 100], np.int64)
    nan = X[:, [0, 0, 0, 3, 0, 0]].copy()
    nan[:, [0, 1, 4, 5]] = math.nan
    check(
        [
            Case("clip", lambda x, i: op.take(x, i, 1, "clip"), [X, i], X.take(i, 1, mode="clip")),
            Case("wrap", lambda x, i: op.take(x, i, 1, "wrap"), [X, i], X.take(i, 1, mode="wrap")),
            Case("nan", lambda x, i: op.take(x, i, 1, "nan"), [X, i], nan),
            Case("prim", lambda x: op.take(x, PrimValue(2), 0), [X], X[2]),
            Case(
                "large axis",
                lambda x, i: op.take(x, i, 0),
                [np.arange(1000), np.array([127, 255], np.uint8)],
                np.array([127, 255]),
            ),
        ]
    )


def test_gathers():
    rng = np.random.default_rng(0)
    i = rng.integers(-4, 4, (2, 6, 5))
    j = rng.integers(0, 3, (7, 2)).astype(np.int32)
    b = rng.integers(0, 4, (3, 2, 1))
    t = torch.from_numpy
    elements = torch.gather(t(X[:2]), 1, t(i % 4)).numpy()
    check(
        [
            Case("elements", lambda x, i: op.gather_elements(x, i, 1), [X, i], elements),
            Case(
                "elements same",
                lambda x, i: op.gather_elements(x, i, -1),
                [X, (X % 5).astype(np.int64)],
                np.take_along_axis(X, (X % 5).astype(np.int64), -1),
            ),
            Case("nd", op.gather_nd, [X, j], X[j[:, 0], j[:, 1]]),
            Case("nd negative", op.gather_nd, [X, j - 3], X[j[:, 0] - 3, j[:, 1] - 3]),
            Case(
                "nd batch", lambda x, i: op.gather_nd(x, i, 1), [X, b], np.take_along_axis(X, b, 1)
            ),
            Case("nd full", op.gather_nd, [X, np.array([1, 2, 3])], X[1, 2, 3]),
            Case(
                "tensors",
                lambda x, i, j: op.index_tensor(x, (i, j)),
                [X, j[:, 0], j[:2, :1] - 2],
                X[j[:, 0], j[:2, :1] - 2],
            ),
            Case("one tensor", lambda x, i: op.index_tensor(x, [i]), [X, j], X[j]),
        ]
    )


def test_nothing_is_taken_of_an_axis_without_elements():
    e, i = np.zeros((0, 4), np.float32), np.zeros((0,), np.int64)
    pairs, cells = np.zeros((0, 2), np.int64), np.zeros((0, 4), np.int64)
    check(
        [
            Case("take", lambda x, i: op.take(x, i, 0), [e, i], e.take(i, 0)),
            Case("wrap", lambda x, i: op.take(x, i, 0, "wrap"), [e, i], e.take(i, 0)),
            Case("nan", lambda x, i: op.take(x, i, 0, "nan"), [e, i], e.take(i, 0)),
            Case("elements", op.gather_elements, [e, cells], np.take_along_axis(e, cells, 0)),
            Case(
                "batch",
                lambda x, i: op.gather_elements(x, i, 1),
                [e, pairs],
                np.take_along_axis(e, pairs, 1),
            ),
            Case("nd", op.gather_nd, [e, pairs], e[pairs[:, 0], pairs[:, 1]]),
            Case("rows", lambda x, i: op.index_tensor(x, [i]), [e, i], e[i]),
            Case("values", lambda x, i: op.index_tensor(x, [i, i]), [e, i], e[i, i]),
            Case("bool", lambda x, i: op.take(x, i, 0), [e > 0, i], e > 0),
        ]
    )
    one = tensor((1,), "int64", "i")
    for rule, given in ((op.take, one), (op.gather_elements, one), (op.index_tensor, Tuple([one]))):
        assert rule.lowering is not None
        with pytest.raises(LegalizeError, match=r"axis 0 .* has no elements to take"):
            rule.lowering(tensor((0,)), given)


def test_one_hot():
    i = np.array([[0, 2, 5], [-1, 1, 1]], np.int64)
    hot = (i[..., None] == np.arange(4)).astype(np.float32)
    check(
        [
            Case("last", lambda i: op.one_hot(i, PrimValue(1.0), PrimValue(0.0), 4), [i], hot),
            Case("int", lambda i: op.one_hot(i, 5, -1, 4), [i], np.where(hot, 5, -1)),
            Case(
                "first",
                lambda i: op.one_hot(i, 1, 0, 4, 0),
                [i],
                np.moveaxis(hot, -1, 0).astype(np.int64),
            ),
            Case(
                "uint8",
                lambda i: op.one_hot(i, 1, 0, 300),
                [np.uint8([200])],
                np.eye(1, 300, 200, np.int64),
            ),
        ]
    )


@pytest.mark.parametrize(
    ("make", "want"),
    [
        (lambda: op.take(tensor((N, 3)), tensor((2, M), "int64"), 1), (N, 2, M)),
        (lambda: op.take(tensor((N, 3)), PrimValue(1), 0), (3,)),
        (lambda: op.take(unknown(2), tensor((2, 2), "int64"), 1), 3),
        (lambda: op.take(tensor((N, 3)), Var("i", TensorStructInfo(None, "int64")), 1), -1),
        (lambda: op.strided_slice(tensor((10, N)), [0], [1], [7], [2]), (3, N)),
        (lambda: op.strided_slice(tensor((10, N)), [1], [0], [N]), (10, N)),
        (lambda: op.strided_slice(tensor((10, N)), [1], [0], [2**63 - 1]), (10, N)),
        (lambda: op.strided_slice(tensor((10, N)), [1], [0], [N], [2]), (10, (N + 1) // 2)),
        (lambda: op.strided_slice(tensor((10, N)), [1], [1], [N]), (10, tir.max(N - 1, 0))),
        (lambda: op.strided_slice(tensor((10, N)), [1], [-1], [N]), (10, tir.min(N, 1))),
        (lambda: op.strided_slice(tensor((10, N)), [0], [M], [M + 2], [1], True), (2, N)),
        (lambda: op.strided_slice(tensor((10, N)), [1], [1], [7], [2], True), (10, 3)),
        (
            lambda: op.strided_slice(
                tensor((10, N)), [0], [Var("p", PrimStructInfo("int64"))], [5]
            ),
            2,
        ),
        (lambda: op.strided_slice(unknown(), [0], [0], [5]), -1),
        (lambda: op.gather_elements(tensor((N, 3)), tensor((N, 2), "int64"), 1), (N, 2)),
        (lambda: op.gather_nd(tensor((N, 3, 4)), tensor((5, 2), "int64")), (5, 4)),
        (lambda: op.gather_nd(tensor((N, 3, 4)), tensor((N, 5, 2), "int64"), 1), (N, 5)),
        (
            lambda: op.index_tensor(
                tensor((N, 3, 4)), [tensor((5,), "int64"), tensor((2, 1), "int64")]
            ),
            (2, 5, 4),
        ),
        (lambda: op.index_tensor(unknown(3), [tensor((5,), "int64")]), 3),
    ],
)
def test_inference(make, want):
    info = make().struct_info
    if isinstance(want, int):
        assert info == TensorStructInfo(None, "float32", ndim=want)
    else:
        assert info.ndim == len(want)
        assert all(tir.can_prove_equal(a, b) for a, b in zip(info.dims, want, strict=True)), info


I64 = "int64"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: op.take(tensor((2, 3)), tensor((2,), I64)), "take needs `axis`"),
        (lambda: op.take(tensor((2,)), tensor((2,))), "`indices` must be integers; got float32"),
        (lambda: op.take(tensor((2,)), tensor((2,), I64), 0, "up"), "`mode` must be one of"),
        (lambda: op.take(tensor((2,), I64), tensor((2,), I64), 0, "nan"), "needs floating point"),
        (lambda: op.take(tensor((2,)), tensor((2,), I64), 1), "out of range"),
        (lambda: op.strided_slice(tensor((2,)), [1], [0], [1]), "axes 1 is out of range"),
        (lambda: op.strided_slice(tensor((2,)), [0, 0], [0, 0], [1, 1]), "names an axis twice"),
        (lambda: op.strided_slice(tensor((2,)), [0], [0], [1], [0]), "stride must not be 0"),
        (lambda: op.strided_slice(tensor((2,)), [0], [0, 1], [1]), "must be as many; got 1, 2, 1"),
        (lambda: op.strided_slice(tensor((2,)), [N], [0], [1]), "`axes` must be numbers"),
        (lambda: op.strided_slice(tensor((2,)), [0], [0.5], [1]), "`begin` must be an integer"),
        (
            lambda: op.strided_slice(tensor((2,)), [0], tensor((1,)), [1]),
            "must be a tuple of scalars",
        ),
        (
            lambda: op.dynamic_strided_slice(tensor((2,)), *[tensor((2,), I64)] * 3),
            "one entry an axis",
        ),
        (
            lambda: op.gather_elements(tensor((2, 3)), tensor((2,), I64)),
            "rank 2, but indices rank 1",
        ),
        (lambda: op.gather_elements(tensor((2, 3)), tensor((3, 3), I64), 1), "size 3 on axis 0"),
        (lambda: op.gather_elements(tensor((2,)), tensor((2,))), "got float32"),
        (lambda: op.gather_nd(tensor((2,)), tensor((3, 2), I64)), "do not fit"),
        (lambda: op.gather_nd(tensor((2,)), tensor((3, 1), I64), -1), "must not be negative"),
        (
            lambda: op.index_tensor(tensor((2,)), [tensor((1,), I64)] * 2),
            "2 index tensors are too many",
        ),
        (
            lambda: op.index_tensor(tensor((2,)), [tensor((1,))]),
            r"`indices\[0\]` must be a tensor of int",
        ),
        (lambda: op.index_tensor(tensor((2,)), []), "needs at least one"),
        (
            lambda: op.one_hot(tensor((2,), I64), PrimValue(1), PrimValue(0.0), 3),
            "must have one dtype",
        ),
        (lambda: op.one_hot(tensor((2,), I64), 1, 0, 0), "`depth` must be positive"),
        (lambda: op.one_hot(tensor((2,)), 1, 0, 3), "got float32"),
    ],
)
def test_errors(call, message):
    with pytest.raises(OpError, match=message):
        call()
