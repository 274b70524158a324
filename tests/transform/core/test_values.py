"""What is known of values."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import relax2xla as rx
from relax2xla.kernels.native import Tensor
from relax2xla.transform.core.values import number_of, tensor_of


@pytest.mark.parametrize(
    ("array", "number"),
    [
        (np.float32(2.5), 2.5),
        (np.full((1, 1), -3, "int64"), -3.0),
        (np.bool_(1), 1.0),
        (np.array(0.5, ml_dtypes.bfloat16), 0.5),
        (np.complex64(2 + 0j), None),
        (np.complex128(1j), None),
        (np.zeros(2, "float32"), None),
        (np.zeros(0, "float32"), None),
    ],
    ids=str,
)
def test_the_real_number_of_a_constant(array: np.ndarray, number: float | None) -> None:
    assert number_of(rx.const(np.asarray(array))) == number


def test_variables_hold_no_number_and_their_kinds_are_known_with_their_sizes() -> None:
    known = rx.Var("x", rx.TensorStructInfo((2, 3), "int8"))
    assert number_of(known) is None
    assert tensor_of(known) == Tensor((2, 3), "int8")
    for info in (
        rx.TensorStructInfo((2, rx.tir.Var("n")), "int8"),
        rx.TensorStructInfo(ndim=2, dtype="int8"),
        rx.ShapeStructInfo((2,)),
    ):
        assert tensor_of(rx.Var("x", info)) is None
