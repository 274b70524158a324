"""Operators that write into a copy, against torch and numpy."""

from __future__ import annotations

import numpy as np
import pytest

from relax2xla import op, tir
from relax2xla.errors import OpError
from relax2xla.ir import TensorStructInfo, Var
from tests.op.harness import Case, check, tensor

torch = pytest.importorskip("torch")
N = tir.Var("n", "int64")
I64 = "int64"
TORCH = {"add": "sum", "mul": "prod", "mean": "mean", "max": "amax", "min": "amin"}


@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_scatter_elements(dtype):
    rng = np.random.default_rng(0)
    x = rng.integers(-9, 9, (4, 5)).astype(dtype)
    i = rng.integers(0, 5, (3, 7))
    u = rng.integers(-9, 9, (3, 7)).astype(dtype)
    t = torch.from_numpy
    cases = []
    for reduction, name in TORCH.items():
        want = t(x).scatter_reduce(1, t(i), t(u), name).numpy()
        make = lambda x, i, u, r=reduction: op.scatter_elements(x, i, u, 1, r)  # noqa: E731
        cases.append(Case(reduction, make, [x, i, u], want))
    once = np.array([[4, -5, 2], [1, 0, 3]])
    want = x.copy()
    np.put_along_axis(want[:2], once, u[:2, :3], 1)
    make = lambda x, i, u: op.scatter_elements(x, i, u, -1)  # noqa: E731
    cases.append(Case("update", make, [x, once, u[:2, :3]], want))
    outside = np.array([[7, 1]])
    want = x.copy()
    want[0, 1] = u[0, 1]
    cases.append(Case("out of bounds", make, [x, outside, u[:1, :2]], want))
    check(cases)


def test_scatter_nd():
    x = np.zeros((4, 3), np.float32)
    i = np.array([[1], [3], [1]])
    u = np.arange(9, dtype=np.float32).reshape(3, 3)
    added = x.copy()
    np.add.at(added, i[:, 0], u)
    j = np.array([[0, -1], [2, 1]], np.int32)
    points = x.copy()
    points[j[:, 0], j[:, 1]] = [5, 6]
    highest = x.copy()
    np.maximum.at(highest, i[:, 0], u)
    check(
        [
            Case("add", lambda *a: op.scatter_nd(*a, reduction="add"), [x, i, u], added),
            Case("max", lambda *a: op.scatter_nd(*a, reduction="max"), [x, i, u], highest),
            Case("points", op.scatter_nd, [x, j, np.array([5, 6], np.float32)], points),
        ]
    )


def test_index_put():
    x = np.zeros((4, 3), np.float32)
    i, j = np.array([0, 1, 1]), np.array([[2], [-1]])
    u = np.arange(1, 7, dtype=np.float32).reshape(2, 3)
    t = torch.from_numpy
    added = t(x).index_put((t(i), t(j)), t(u), accumulate=True).numpy()
    rows = x.copy()
    rows[[0, 2]] = 7
    check(
        [
            Case("add", lambda x, i, j, u: op.index_put(x, (i, j), u, True), [x, i, j, u], added),
            Case(
                "rows",
                lambda x, i, u: op.index_put(x, [i], u),
                [x, np.array([0, 2]), np.float32(7)],
                rows,
            ),
        ]
    )


@pytest.mark.parametrize(
    "bounds", [(0, 4, 1), (1, 3, 1), (1, 9, 2), (-3, -1, 1), (0, 5, 3), (2, 2, 1)]
)
def test_slice_scatter(bounds):
    x = np.zeros((2, 5), np.float32)
    want = x.copy()
    want[:, slice(*bounds)] = src = x[:, slice(*bounds)] + 3
    check([Case("slice", lambda x, s: op.slice_scatter(x, s, *bounds, axis=1), [x, src], want)])


def test_inference():
    x = tensor((N, 3))
    unknown = Var("i", TensorStructInfo(None, I64))
    assert op.scatter_elements(x, unknown, tensor((N, 2)), 1).struct_info == x.struct_info
    assert op.scatter_nd(x, unknown, tensor((N, 2))).struct_info == x.struct_info
    assert op.slice_scatter(x, tensor((N, 1)), 0, 1, 1, 1).struct_info == x.struct_info


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: op.scatter_elements(tensor((2, 3)), tensor((2, 2), I64), tensor((2, 3))),
            "shape of indices",
        ),
        (
            lambda: op.scatter_elements(tensor((2,)), tensor((2, 2), I64), tensor((2,))),
            "must have one rank",
        ),
        (lambda: op.scatter_elements(tensor((2,)), tensor((2,)), tensor((2,))), "got float32"),
        (
            lambda: op.scatter_elements(tensor((2,)), tensor((2,), I64), tensor((2,), I64)),
            "must have one dtype",
        ),
        (
            lambda: op.scatter_elements(tensor((2,)), tensor((2,), I64), tensor((2,)), 1),
            "out of range",
        ),
        (
            lambda: op.scatter_elements(tensor((2,)), tensor((2,), I64), tensor((2,)), 0, "or"),
            "`reduction` must",
        ),
        (lambda: op.scatter_nd(tensor((8,)), tensor((4, 2), I64), tensor((4,))), "too long for"),
        (
            lambda: op.scatter_nd(tensor((8, 4)), tensor((4, 1), I64), tensor((4,))),
            r"shape \(4, 4\)",
        ),
        (lambda: op.scatter_nd(tensor((8,)), tensor((), I64), tensor((4,))), "rank 1 or more"),
        (
            lambda: op.index_put(tensor((8,)), [tensor((3,), I64)], tensor((4,))),
            r"broadcast to \(3\)",
        ),
        (lambda: op.slice_scatter(tensor((8,)), tensor((4,)), 0, 3, 1), "size 3 on axis 0"),
        (lambda: op.slice_scatter(tensor((8,)), tensor((4,)), 0, 3, -1), "`step` must be positive"),
        (lambda: op.slice_scatter(tensor((8,)), tensor((4, 1)), 0, 3, 1), "`src` must have rank 1"),
    ],
)
def test_errors(call, message):
    with pytest.raises(OpError, match=message):
        call()
