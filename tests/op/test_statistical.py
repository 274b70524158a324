"""Reductions and running sums against numpy and torch."""

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
FAMILY = [
    ("sum", np.sum),
    ("prod", np.prod),
    ("max", np.max),
    ("min", np.min),
    ("mean", np.mean),
    ("variance", np.var),
    ("std", np.std),
]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_axes(dtype):
    x = np.random.default_rng(0).uniform(0.5, 2, (3, 4, 5)).astype(dtype)
    cases = []
    for name, truth in FAMILY:
        for axis in (None, 1, -1, (0, 2), (-3, 1), ()):
            for keepdims in (False, True):
                want = truth(x.astype(np.float64), axis=axis, keepdims=keepdims).astype(dtype)
                make = lambda v, n=name, a=axis, k=keepdims: getattr(op, n)(v, a, k)  # noqa: E731
                cases.append(Case(f"{name} {axis}", make, [x], want, 1e-5, 1e-6))
    check(cases)


def test_nan_and_empty():
    x = np.array([[1, math.nan, 3], [4, 5, -math.inf]], np.float32)
    empty = np.zeros((0, 2), np.float32)
    check(
        [
            Case("max", lambda v: op.max(v, 1), [x], np.max(x, 1)),
            Case("min", lambda v: op.min(v, 1), [x], np.min(x, 1)),
            Case("sum", lambda v: op.sum(v, 0), [x], np.sum(x, 0)),
            Case("sum of none", lambda v: op.sum(v, 0), [empty], np.zeros(2, np.float32)),
            Case("prod of none", lambda v: op.prod(v, 0), [empty], np.ones(2, np.float32)),
            Case("mean of none", lambda v: op.mean(v), [empty], np.float32(math.nan)),
            Case("max of rows of none", lambda v: op.max(v, 1), [empty], np.zeros(0, np.float32)),
            Case("scalar", lambda v: op.sum(v), [np.float32(3)], np.float32(3)),
        ]
    )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves_accumulate_in_float32(dtype):
    x = np.full((5000,), 0.1, np.dtype(dtype))
    wide = x.astype(np.float32)
    check(
        [
            Case("sum", op.sum, [x], wide.sum().astype(x.dtype)),
            Case("mean", op.mean, [x], wide.mean().astype(x.dtype)),
            Case("variance", op.variance, [x], wide.var().astype(x.dtype), atol=1e-6),
            Case("cumsum", op.cumsum, [x], wide.cumsum().astype(x.dtype)),
        ]
    )


def test_integers_and_booleans():
    i = np.array([[100, 100, 100], [-7, 2, 0]], np.int8)
    u = np.array([2**63, 2**62], np.uint64)
    b = np.array([[True, False], [True, True]])
    check(
        [
            Case("sum wraps", lambda v: op.sum(v, 1), [i], i.sum(1, dtype=np.int8)),
            Case("prod wraps", lambda v: op.prod(v, 1), [i], i.prod(1, dtype=np.int8)),
            Case("mean truncates", lambda v: op.mean(v, 1), [i], np.array([100, -1], np.int8)),
            Case("mean of large", op.mean, [u], np.uint64(2**62 + 2**61)),
            Case("max", lambda v: op.max(v, 1), [i], i.max(1)),
            Case("variance", lambda v: op.variance(v, 1), [i[1:]], np.int8([14])),
            Case("sum of bool", lambda v: op.sum(v, 1), [b], b.any(1)),
            Case("prod of bool", lambda v: op.prod(v, 1), [b], b.all(1)),
            Case("max of bool", lambda v: op.max(v, 1), [b], b.any(1)),
            Case("min of bool", lambda v: op.min(v, 1), [b], b.all(1)),
        ]
    )


def test_variance_of_large_numbers_does_not_cancel():
    x = (1e4 + np.arange(6)).astype(np.float32)
    check([Case("variance", op.variance, [x], np.float32(np.var(np.arange(6.0))), 1e-5)])


def test_median():
    x = np.random.default_rng(0).normal(size=(3, 4, 6)).astype(np.float32)
    x[1, 2, 3] = math.nan
    i = np.array([[3, 1, 2, 2]], np.int32)
    t = torch.from_numpy(x)
    values, where = t.median(dim=-1)
    mid, mid_where = t.median(dim=1, keepdim=True)
    check(
        [
            Case("last", lambda v: op.median(v, -1), [x], (values.numpy(), where.numpy())),
            Case("keep", lambda v: op.median(v, 1, True), [x], (mid.numpy(), mid_where.numpy())),
            Case("all", op.median, [x[0]], t[0].median().numpy()),
            Case("int", op.median, [i], np.int32(2)),
            Case(
                "two axes",
                lambda v: op.median(v, (0, 2), True),
                [x],
                t.permute(1, 0, 2).reshape(4, 18).median(dim=1)[0].numpy()[None, :, None],
            ),
        ]
    )


@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_running(dtype):
    x = np.random.default_rng(0).integers(1, 4, (3, 4, 5)).astype(dtype)
    shifted = np.concatenate([np.zeros((3, 1, 5), dtype), x.cumsum(1, dtype)[:, :-1]], 1)
    b = x > 2
    check(
        [
            Case("sum", lambda v: op.cumsum(v, 1), [x], x.cumsum(1, dtype)),
            Case("sum -1", lambda v: op.cumsum(v, -1), [x], x.cumsum(-1, dtype)),
            Case("sum all", op.cumsum, [x[0]], x[0].cumsum(dtype=dtype)),
            Case("prod", lambda v: op.cumprod(v, 2), [x], x.cumprod(2, dtype)),
            Case("exclusive", lambda v: op.cumsum(v, 1, exclusive=True), [x], shifted),
            Case("unsaid", lambda v: op.cumsum(v, 1, exclusive=None), [x], x.cumsum(1, dtype)),
            Case("dtype", lambda v: op.cumsum(v, 1, "int64"), [x], x.cumsum(1, np.int64)),
            Case("bool", lambda v: op.cumsum(v, 0, "int32"), [b], b.cumsum(0, np.int32)),
            Case("none", lambda v: op.cumsum(v, 0), [x[:0]], x[:0]),
            Case("scalar", op.cumsum, [x[0, 0, 0]], x[0, 0, :1]),
        ]
    )


@pytest.mark.parametrize("size", [1000, 4097])
def test_long_running_sums(size):
    x = np.random.default_rng(0).uniform(size=(2, size))
    check([Case("cumsum", lambda v: op.cumsum(v, 1), [x], x.cumsum(1), 1e-12)])


@pytest.mark.parametrize("name", [n for n, _ in FAMILY])
def test_inference(name):
    f = getattr(op, name)
    unknown = Var("x", TensorStructInfo(None, "float32", ndim=3))
    nothing = Var("x", TensorStructInfo(None, "float32"))
    assert f(tensor((N, 3)), 1).struct_info == TensorStructInfo((N,), "float32")
    assert f(tensor((N, 3)), [1], True).struct_info == TensorStructInfo((N, 1), "float32")
    assert f(tensor((N, 3), "int32")).struct_info == TensorStructInfo((), "int32")
    assert f(unknown, 1).struct_info == TensorStructInfo(None, "float32", ndim=2)
    assert f(unknown, keepdims=True).struct_info == TensorStructInfo((1, 1, 1), "float32")
    assert f(nothing).struct_info == TensorStructInfo((), "float32")
    assert f(nothing, keepdims=True).struct_info == TensorStructInfo(None, "float32")


def test_inference_of_the_others():
    x = tensor((N, 3))
    both = op.median(x, 1).struct_info
    assert isinstance(both, TupleStructInfo)
    assert both.fields[1] == TensorStructInfo((N,), "int64")
    assert op.median(x, [0, 1]).struct_info == TensorStructInfo((), "float32")
    assert op.cumsum(x).struct_info == TensorStructInfo((N * 3,), "float32")
    assert op.cumprod(x, 1, "int32").struct_info == TensorStructInfo((N, 3), "int32")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: op.sum(tensor((2,)), 1),
            "axis 1 is out of range for a rank-1 tensor; valid: -1..0",
        ),
        (lambda: op.sum(tensor(()), 0), "a scalar has no axes"),
        (lambda: op.mean(tensor((2, 3)), (0, -2)), "names an axis twice"),
        (lambda: op.max(tensor((2,), "complex64")), "got complex64"),
        (lambda: op.sum(tensor((2,)), 0.5), "parameter `axis`"),
        (lambda: op.cumsum(tensor((2,)), 1), "out of range"),
        (lambda: op.median(tensor((2, 2)), 2), "out of range"),
    ],
)
def test_errors(call, message):
    with pytest.raises(OpError, match=message):
        call()
