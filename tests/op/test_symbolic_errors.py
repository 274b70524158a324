"""Sizes that cannot agree, whatever their value, and what is no shape, are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from relax2xla import op, tir
from relax2xla.errors import TVMError
from relax2xla.ir import Expr
from tests.op.harness import tensor

N, M = tir.Var("n", "int64"), tir.Var("m", "int64")


def index(*shape: Any) -> Expr:
    return tensor(shape, "int64")


def f32(*shape: Any) -> Expr:
    return tensor(shape)


WRONG: dict[str, tuple[Callable[[], Expr], str]] = {
    "matmul": (lambda: op.matmul(f32(3, N), f32(N + 1, 5)), "multiplied with"),
    "conv1d, groups": (
        lambda: op.nn.conv1d(f32(M, N * 6, 28), f32(M * 6 + 4, N, 3), groups=6),
        "must divide",
    ),
    "conv1d_transpose, groups": (
        lambda: op.nn.conv1d_transpose(f32(M, N * 6 + 4, 9), f32(N * 6 + 4, M, 3), groups=6),
        "must divide",
    ),
    "batch_norm": (
        lambda: op.nn.batch_norm(f32(2, N, 8), f32(N + 2), f32(N), f32(N), f32(N), axis=1),
        "`gamma` must have",
    ),
    "layer_norm": (
        lambda: op.nn.layer_norm(f32(2, 4, N), f32(4, N), f32(4, N - 2), axes=[-2, -1]),
        "`beta` must have",
    ),
    "cross_entropy": (
        lambda: op.nn.cross_entropy_with_logits(f32(2, N), f32(2, N + 1)),
        "one shape",
    ),
    "scatter_elements": (
        lambda: op.scatter_elements(f32(4, 4), index(M, N), f32(M + 1, N)),
        "shape of indices",
    ),
    "scatter_nd": (lambda: op.scatter_nd(f32(4, N), index(M, 1), f32(M, N + 1)), "must have"),
    "slice_scatter": (
        lambda: op.slice_scatter(f32(8, N), f32(4, N + 1), 0, 4, 1, axis=0),
        "must have size",
    ),
    "reverse_sequence": (
        lambda: op.reverse_sequence(f32(8, N), index(N + 1), seq_axis=0, batch_axis=1),
        "one entry for each",
    ),
}


@pytest.mark.parametrize("label", WRONG)
def test_sizes_that_never_agree_are_refused(label: str) -> None:
    make, message = WRONG[label]
    with pytest.raises(TVMError, match=message):
        make()


def test_sizes_that_may_agree_are_taken() -> None:
    assert op.matmul(f32(3, N), f32(M, 5)).struct_info == f32(3, 5).struct_info
    assert (
        op.nn.conv1d(f32(2, 12, 9), f32(M, 2, 3), groups=6).struct_info == f32(2, M, 7).struct_info
    )
    made = op.scatter_elements(f32(4, 4), index(M, 2), f32(N, 2))
    assert made.struct_info == f32(4, 4).struct_info


@pytest.mark.parametrize("size", [4, N])
@pytest.mark.parametrize("make", [op.ones, op.zeros])
def test_a_size_is_no_shape(size: Any, make: Callable[..., Expr]) -> None:
    with pytest.raises(TVMError, match="expected a shape"):
        make(size, "float32")
    with pytest.raises(TVMError, match="sequence of dimensions"):
        op.reshape(f32(2, 2), size)
