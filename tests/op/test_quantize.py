"""quantize and dequantize against numpy."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from relax2xla import op, tir
from relax2xla.errors import OpError
from relax2xla.ir import TensorStructInfo, const
from tests.op.harness import Case, check, tensor

N = tir.Var("n", "int64")
X = np.array([[0.5, 1.5, 2.5], [-1000, 1000, -0.7]], np.float32)
S = np.array([1.0, 0.5, 0.25], np.float32)


def quantized(x, scale, zero, dtype):
    info = np.iinfo(dtype)
    return np.clip(np.rint(x / scale) + zero.astype(float), info.min, info.max).astype(dtype)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32"])
def test_integers(dtype):
    zero = np.array([3, 0, 7], dtype)
    one = dtype_scalar(5, dtype)
    q = quantized(X, S, zero, dtype)
    back = ((q.astype(np.int64) - zero.astype(np.int64)).astype(np.float32) * S).astype(np.float32)
    check(
        [
            Case("q", lambda x, s, z: op.quantize(x, s, z, 1, dtype), [X, S, zero], q),
            Case(
                "q of one scale",
                lambda x: op.quantize(x, const(0.5), const(one), out_dtype=dtype),
                [X],
                quantized(X, np.float32(0.5), one, dtype),
            ),
            Case(
                "q axis 0",
                lambda x, s, z: op.quantize(x, s, z, 0, dtype),
                [X, S[:2], zero[:2]],
                quantized(X, S[:2, None], zero[:2, None], dtype),
            ),
            Case("back", lambda q, s, z: op.dequantize(q, s, z), [q, S, zero], back),
            Case(
                "half",
                lambda q, s, z: op.dequantize(q, s, z, -1, "float16"),
                [q // 4, S, zero],
                ((q // 4).astype(np.float32) - zero)
                .astype(np.float32)
                .__mul__(S)
                .clip(-6e4, 6e4)
                .astype(np.float16),
            )
            if dtype != "int32"
            else Case("again", lambda q, s, z: op.dequantize(q, s, z), [q, S, zero], back),
        ]
    )


def dtype_scalar(value, dtype):
    return np.array(value, dtype)


def test_float8_is_not_rounded_to_integers():
    x = np.array([0.3, 1.7, 1e6, -1e6], np.float32)
    e4m3 = ml_dtypes.float8_e4m3fn
    want = x.clip(-448, 448).astype(e4m3)
    make = lambda x: op.quantize(x, const(1.0), const(0.0), out_dtype="float8_e4m3fn")  # noqa: E731
    back = lambda q: op.dequantize(q, const(2.0), const(0, "int8"))  # noqa: E731
    check([Case("q", make, [x], want), Case("back", back, [want], want.astype(np.float32) * 2)])


def test_nan_becomes_zero():
    x = np.array([math.nan, math.inf], np.float32)
    make = lambda x: op.quantize(x, const(1.0), const(0, "int8"))  # noqa: E731
    check([Case("q", make, [x], np.array([0, 127], np.int8))])


def test_inference():
    x, q = tensor((N, 3)), tensor((N, 3), "int8")
    s, z = tensor((3,)), tensor((3,), "int8")
    assert op.quantize(x, s, z, 1).struct_info == TensorStructInfo((N, 3), "int8")
    assert op.dequantize(q, s, z, 1, "float16").struct_info == TensorStructInfo((N, 3), "float16")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: op.quantize(tensor((2,), "int8"), const(1.0), const(1)), "`data` must be one of"),
        (lambda: op.quantize(tensor((2,)), const(1.0), const(1), 0, "int64"), "`out_dtype` must"),
        (lambda: op.quantize(tensor((2,)), tensor((3,)), const(1)), "`scale` must have 2 entries"),
        (
            lambda: op.quantize(tensor((2,)), tensor((2, 2)), const(1)),
            "`scale` must have rank 0 or 1",
        ),
        (lambda: op.quantize(tensor((2,)), const(1), const(1)), "`scale` must be one of"),
        (lambda: op.dequantize(tensor((2,), "int8"), const(1.0), const(1), 5), "out of range"),
        (
            lambda: op.dequantize(tensor((2,), "int8"), const(1.0), const(1), 0, "int32"),
            "`out_dtype` must be one of",
        ),
    ],
)
def test_errors(call, message):
    with pytest.raises(OpError, match=message):
        call()
