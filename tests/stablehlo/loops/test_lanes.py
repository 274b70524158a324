"""Kernels that store vectors: each lane as the interpreter of the tree has it."""

from __future__ import annotations

import numpy as np
import pytest

from relax2xla import tir
from relax2xla.errors import LegalizeError
from relax2xla.script import from_source
from relax2xla.tir.kernel.interpret import interpret
from tests.stablehlo.loops.test_kernels import run

SCRIPT = """@T.prim_func
def main(a: T.handle, B: T.Buffer((8,), "int32"), C: T.Buffer((4, 8), "float32")):
    A = T.match_buffer(a, (4, 8), "float32")
    for i in range(4):
        {}
"""


def both(body: str) -> list[np.ndarray]:
    """The results of a kernel, which are those of the interpreter; and what it became."""
    text = SCRIPT.format(body)
    rng = np.random.default_rng(1)
    args = [
        rng.integers(-4, 5, (4, 8)).astype("float32"),
        rng.permutation(8).astype("int32"),
        np.zeros((4, 8), "float32"),
    ]
    func = from_source("from relax2xla.script import tir as T\n" + text)
    assert isinstance(func, tir.PrimFunc)
    expected = [a.copy() for a in args]
    interpret(func, *expected)
    results, made = run(text, args)
    assert not made.loops
    for at, got in zip(sorted(made.written), results, strict=True):
        np.testing.assert_array_equal(got, expected[at])
    return results


@pytest.mark.parametrize(
    "body",
    [
        "C[i, 0:8] = A[i, 0:8]",
        "C[i, 2:6] = A[i, 0:4] * T.Broadcast(A[i, 7], 4) + T.float32(1)",
        "C[i, T.ramp(7, -2, 4)] = T.Cast('float32x4', B[0:4])",
        "C[i, 0:4] = A[i, B[T.ramp(0, 1, 4)]]",
        "C[i, B[T.ramp(0, 1, 8)]] = T.exp(A[i, T.ramp(0, 1, 8)] * T.Broadcast(T.float32(0), 8))",
        "C[i, 0:8] = C[i, 0:8] + A[i, 0:8]",
        "C[i, 0:4] = T.Select(A[i, 0:4] > A[i, 4:8], A[i, 0:4], T.fabs(A[i, 4:8]))",
        "C[i, 0:2] = T.Broadcast(A[i, i], 2)",
    ],
)
def test_a_store_of_a_vector(body: str) -> None:
    (result,) = both(body)
    assert result.any()


def test_lanes_that_are_read_before_any_is_written_are_refused() -> None:
    with pytest.raises(LegalizeError, match=r"line 6: the expression `T\.Ramp.*cannot be lowered"):
        both("C[i, 1:8] = C[i, 0:7] + A[i, 0:7]")


def test_lanes_beyond_the_end() -> None:
    with pytest.raises(LegalizeError, match=r"line 6: the index .*lane.* of C runs from 4 to 11"):
        run(
            SCRIPT.format("C[i, 4:12] = A[i, 0:8]"),
            [np.zeros((4, 8), "f"), np.zeros(8, "int32"), np.zeros((4, 8), "f")],
        )
