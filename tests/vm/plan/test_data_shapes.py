"""Sizes that depend on data bind a symbolic dimension, which later operators compute with."""

from __future__ import annotations

import textwrap
from typing import Any

import numpy as np
import pytest

import relax2xla as rx
from relax2xla.script import from_source

X = np.array([[3, -1, 0], [0, 5, -2], [4, 0, 3]], np.float32)


def overlap(a: np.ndarray, b: np.ndarray) -> float:
    low, high = np.maximum(a[:2], b[:2]), np.minimum(a[2:], b[2:])
    inside = np.prod(np.maximum(high - low, 0))
    return inside / (np.prod(a[2:] - a[:2]) + np.prod(b[2:] - b[:2]) - inside)


def suppressed(boxes: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Boxes that stay, the best first: greedy, as the definition says."""
    kept: list[int] = []
    for i in np.argsort(-scores, kind="stable"):
        if scores[i] > 0.1 and all(overlap(boxes[i], boxes[k]) <= 0.5 for k in kept):
            kept.append(int(i))
    return boxes[kept]


def counted(x: np.ndarray) -> np.ndarray:
    """Each value by how often it is there, and 10."""
    values, counts = np.unique(x, return_counts=True)
    return values * counts.astype(np.float32) + 10


BOXES = np.array([[0, 0, 2, 2], [0, 0, 2, 1.9], [5, 5, 6, 6], [0, 1, 2, 3]], np.float32)
SCORES = np.array([[0.8, 0.9, 0.05, 0.7], [0.9, 0.2, 0.6, 0.5], [0.0, 0.0, 0.0, 0.0]], np.float32)

# By case: a function, its arguments, and what numpy says.
CASES: dict[str, tuple[str, list[tuple[Any, ...]], Any]] = {
    "nonzero": (
        """
        @R.function
        def main(x: R.Tensor((3, 3), "float32")):
            k = T.int64()
            found = R.match_cast(R.nonzero(x), R.Tensor((2, k), "int64"))
            ones = R.full(R.shape([k, 2]), R.const(1, "int64"), dtype="int64")
            return R.add(R.permute_dims(found), ones)
        """,
        [(X,), (X[::-1] * 0,), (X + 9,)],
        lambda x: np.stack(np.nonzero(x)).T + 1,
    ),
    "unique": (
        """
        @R.function
        def main(x: R.Tensor((3, 3), "float32")):
            k = T.int64()
            u = R.unique(x, True, False, False, True)
            values = R.match_cast(u[0], R.Tensor((k,), "float32"))
            counts = R.match_cast(u[1], R.Tensor((k,), "int64"))
            size = R.full(R.shape([k]), R.const(10.0, "float32"), dtype="float32")
            return R.add(R.multiply(values, R.astype(counts, "float32")), size)
        """,
        [(X,), (X * 0,)],
        counted,
    ),
    "a mask of booleans": (
        """
        @R.function
        def main(x: R.Tensor((3, 3), "float32"), m: R.Tensor((3,), "bool")):
            k = T.int64()
            at = R.match_cast(R.nonzero(m), R.Tensor((1, k), "int64"))
            rows = R.take(x, R.reshape(at, R.shape([k])), axis=0)
            return R.matmul(rows, R.permute_dims(rows))
        """,
        [(X, np.array([True, False, True])), (X, np.array([False] * 3)), (X, np.array([True] * 3))],
        lambda x, m: x[m] @ x[m].T,
    ),
    "non-maximum suppression": (
        """
        @R.function
        def main(boxes: R.Tensor((1, 4, 4), "float32"), scores: R.Tensor((1, 1, 4), "float32")):
            k = T.int64()
            found = R.vision.all_class_non_max_suppression(
                boxes, scores, R.const(4, "int64"), R.const(0.5, "float32"), R.const(0.1, "float32")
            )
            rows, count = found[0], found[1]
            size = R.match_cast(R.tensor_to_shape(count), R.Shape([k]))
            kept = R.strided_slice(rows, axes=[0, 1], begin=[0, 2], end=[k, 3])
            return R.take(R.squeeze(boxes, axis=[0]), R.reshape(kept, R.shape([k])), axis=0)
        """,
        [(BOXES[None], s[None, None]) for s in SCORES],
        lambda boxes, scores: suppressed(boxes[0], scores[0, 0]),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_follows_has_the_size_of_the_data(case: str) -> None:
    text, calls, expected = CASES[case]
    source = "@I.ir_module\nclass M:\n" + textwrap.indent(textwrap.dedent(text), "    ")
    main = rx.VirtualMachine(rx.build(from_source(source)))["main"]
    sizes: set[int] = set()
    for args in calls:
        want = expected(*args)
        np.testing.assert_allclose(np.asarray(main(*args)), want, rtol=1e-6)
        sizes.add(want.shape[0])
    assert len(sizes) == len(calls)


def test_regions_of_a_lowered_module_are_well_formed() -> None:
    """Passes that run at a call see a function that has the name by which it is in its module."""
    text, calls, expected = CASES["nonzero"]
    source = "@I.ir_module\nclass M:\n" + textwrap.indent(textwrap.dedent(text), "    ")
    mod = rx.transform.LegalizeOps()(from_source(source))
    with rx.transform.PassContext(instruments=[rx.instrument.VerifyEachPass()]):
        main = rx.VirtualMachine(rx.build(mod))["main"]
        np.testing.assert_array_equal(np.asarray(main(*calls[0])), expected(*calls[0]))
