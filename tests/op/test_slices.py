"""strided_slice and dynamic_strided_slice against Python's slices."""

from __future__ import annotations

import numpy as np
import pytest

from relax2xla import op, tir
from relax2xla.errors import LegalizeError
from relax2xla.ir import Constant, PrimValue, TensorStructInfo, Tuple
from tests.op.harness import Case, check, tensor

N, M = tir.Var("n", "int64"), tir.Var("m", "int64")
X = np.arange(60, dtype=np.float32).reshape(3, 4, 5)


SLICES = [
    (1, 7, 2), (0, 10, 1), (-1, -20, -2), (8, 3, 1), (8, 3, -1), (100, 200, 1), (-100, 100, 3),
    (9, 0, -3), (5, 5, 1), (-3, -1, 1), (0, 0, 1), (2, -1, 1), (9, -11, -1), (3, 2**31, 1),
]  # fmt: skip


def test_strided_slice():
    x = np.arange(20, dtype=np.int64).reshape(10, 2)
    cases = [
        Case(
            f"{b}:{e}:{s}",
            lambda x, b=b, e=e, s=s: op.strided_slice(x, [0], [b], [e], [s]),
            [x],
            x[b:e:s],
        )
        for b, e, s in SLICES
    ]
    cases += [
        Case("axes", lambda x: op.strided_slice(x, [-1, 0], [1, 2], [2, 6]), [x], x[2:6, 1:2]),
        Case("prims", lambda x: op.strided_slice(x, 0, PrimValueTuple(1), (4,)), [x], x[1:4]),
        Case("inbound", lambda x: op.strided_slice(x, [0], [1], [5], [3], True), [x], x[1:5:3]),
        Case("nothing", lambda x: op.strided_slice(x, [], [], []), [x], x),
        Case(
            "two back",
            lambda x: op.strided_slice(x, [0, 1], [8, 1], [1, -9], [-3, -1]),
            [x],
            x[8:1:-3, ::-1],
        ),
    ]
    check(cases)


def PrimValueTuple(*values):
    return Tuple([PrimValue(v) for v in values])


def test_dynamic_strided_slice():
    bounds = [Constant(np.array(v)) for v in ([0, 3, -1], [2, 0, 9], [1, -2, 1])]
    made = op.dynamic_strided_slice(tensor((N, 4, 5)), *bounds)
    assert made.struct_info == TensorStructInfo(None, "float32", ndim=3)
    known = op.dynamic_strided_slice(tensor(X.shape), *bounds)
    assert known.struct_info.dims == X[0:2, 3:0:-2, -1:9:1].shape
    lower = op.dynamic_strided_slice.lowering
    assert lower is not None
    assert lower(tensor(X.shape), *bounds).struct_info.dims == X[0:2, 3:0:-2, -1:9:1].shape
    with pytest.raises(LegalizeError, match="depends on data"):
        lower(tensor(X.shape), *[tensor((3,), "int64")] * 3)
