"""Binary operators, comparisons and ``where`` against numpy and torch."""

from __future__ import annotations

import math

import numpy as np
import pytest

from relax2xla import op, tir
from relax2xla.errors import OpError
from relax2xla.ir import PrimStructInfo, PrimValue, ShapeExpr, TensorStructInfo, Tuple, Var, const
from tests.op.harness import Case, check, tensor

VALUES = [0.0, -0.0, 1.0, -1.0, 2.5, -2.5, 7.0, -7.0, 0.1, 1e20, math.inf, -math.inf, math.nan]
COMPARISONS = [
    ("equal", np.equal),
    ("not_equal", np.not_equal),
    ("less", np.less),
    ("less_equal", np.less_equal),
    ("greater", np.greater),
    ("greater_equal", np.greater_equal),
]
ARITHMETIC = [
    ("add", np.add),
    ("subtract", np.subtract),
    ("multiply", np.multiply),
    ("maximum", np.maximum),
    ("minimum", np.minimum),
]


def grid(values, dtype):
    """Every pair of values, by broadcasting."""
    # uint64 has values that neither int64 nor float64 holds.
    x = np.array(values, dtype) if np.dtype(dtype).kind in "iu" else np.array(values).astype(dtype)
    return x[:, None], x[None, :]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_floats(dtype):
    a, b = grid(VALUES, dtype)
    with np.errstate(all="ignore"):
        cases = [Case(n, getattr(op, n), [a, b], t(a, b), 0) for n, t in ARITHMETIC + COMPARISONS]
        cases += [
            Case("divide", op.divide, [a, b], a / b),
            Case("floor_divide", op.floor_divide, [a, b], np.floor_divide(a, b)),
            Case("mod", op.mod, [a, b], np.fmod(a, b)),
            Case("floor_mod", op.floor_mod, [a, b], np.mod(a, b)),
            Case("power", op.power, [a, b], np.power(a, b)),
            Case("atan2", op.atan2, [a, b], np.arctan2(a, b)),
            Case("log_add_exp", op.log_add_exp, [a, b], np.logaddexp(a, b)),
        ]
        for n in ("and", "or", "xor"):
            want = getattr(np, f"logical_{n}")(a, b).astype(dtype)
            cases.append(Case(n, getattr(op, f"logical_{n}"), [a, b], want))
        check(cases)


def test_floor_division_does_not_round_up():
    # 1 // 0.1 is 9 and 1 % 0.1 nearly 0.1, because 0.1 is a little more than a tenth.
    rng = np.random.default_rng(1)
    a, b = rng.uniform(-50, 50, (2, 200))
    a[:3], b[:3] = [1.0, 0.6, -0.6], [0.1, 0.2, 0.2]
    f, g = a.astype(np.float16), b.astype(np.float16)
    check(
        [
            Case("floor_divide", op.floor_divide, [a, b], a // b, 0),
            Case("mod", op.mod, [a, b], np.fmod(a, b), 0),
            Case("half", op.floor_divide, [f, g], f // g, 0),
        ]
    )


def test_zeros_of_division_have_signs():
    a, b = grid([0.0, -0.0, 1.0, -1.0, 3.0], np.float32)
    with np.errstate(all="ignore"):
        check(
            [
                Case(
                    name,
                    lambda one, x, y, name=name: op.divide(one, getattr(op, name)(x, y)),
                    [np.float32(1), a, b],
                    np.float32(1) / truth(a, b),
                    0,
                )
                for name, truth in (("floor_mod", np.mod), ("floor_divide", np.floor_divide))
            ]
        )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves(dtype):
    a, b = grid([0.5, -2.0, 3.0, 100.0], np.dtype(dtype))
    cases = [Case(n, getattr(op, n), [a, b], t(a, b)) for n, t in ARITHMETIC + COMPARISONS]
    cases.append(Case("divide", op.divide, [a, b], a / b))
    cases.append(Case("mod", op.mod, [a, b], np.fmod(a, b)))
    check(cases)


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint8", "uint32", "uint64"])
def test_integers(dtype):
    info = np.iinfo(dtype)
    values = [info.min, info.max, 1, 2, 3, 7, info.max - 1] + ([-1, -2, -7] if info.min else [])
    a, b = grid(values, dtype)
    low, high = grid([v for v in values if v != info.min or not info.min], dtype)
    nonzero = high[:, (high != 0)[0]]
    with np.errstate(all="ignore"):
        cases = [Case(n, getattr(op, n), [a, b], t(a, b)) for n, t in ARITHMETIC + COMPARISONS]
        trunc = np.array(
            [[_truncdiv(int(x), int(y)) for y in nonzero.ravel()] for x in low.ravel()], object
        ).astype(dtype)
        cases += [
            Case("divide", op.divide, [low, nonzero], trunc),
            Case("floor_divide", op.floor_divide, [low, nonzero], low // nonzero),
            Case("mod", op.mod, [low, nonzero], np.fmod(low, nonzero)),
            Case("bitwise_and", op.bitwise_and, [a, b], a & b),
            Case("bitwise_or", op.bitwise_or, [a, b], a | b),
            Case("bitwise_xor", op.bitwise_xor, [a, b], a ^ b),
            Case("logical_and", op.logical_and, [a, b], np.logical_and(a, b).astype(dtype)),
        ]
        bits = np.arange(info.bits, dtype=dtype)[None, :]
        cases += [
            Case("left_shift", op.left_shift, [a, bits], np.left_shift(a, bits)),
            Case("right_shift", op.right_shift, [a, bits], np.right_shift(a, bits)),
        ]
        small = np.array([0, 1, 2, 3], dtype)
        cases.append(Case("power", op.power, [a, small], np.power(a, small)))
        check(cases)


def _truncdiv(a: int, b: int) -> int:
    q = abs(a) // abs(b)
    return q if (a < 0) == (b < 0) else -q


def test_integer_division_by_zero_does_not_trap():
    a, zero = np.array([0, 1, -1, 2**31 - 1, -(2**31)], np.int32), np.zeros(5, np.int32)
    least, minus = np.array([-(2**31)], np.int32), np.array([-1], np.int32)
    check(
        [
            Case("divide", op.divide, [a, zero], zero - 1),
            Case("floor_divide", op.floor_divide, [a, zero], zero - 1),
            Case("overflow", op.divide, [least, minus], least),
            Case("floor overflow", op.floor_divide, [least, minus], least),
            Case("mod overflow", op.mod, [least, minus], minus + 1),
        ]
    )


def test_booleans():
    a, b = grid([True, False], np.bool_)
    truths = [
        ("add", a | b),
        ("multiply", a & b),
        ("maximum", a | b),
        ("minimum", a & b),
        ("bitwise_xor", a ^ b),
        ("logical_and", a & b),
        ("logical_or", a | b),
        ("logical_xor", a ^ b),
        *((n, t(a, b)) for n, t in COMPARISONS),
    ]
    check([Case(n, getattr(op, n), [a, b], want) for n, want in truths])


def test_complex():
    x = np.array([1 + 2j, -0.5j, 3], np.complex64)
    y = np.array([2 - 1j, 1 + 1j, 3], np.complex64)
    check(
        [
            Case("add", op.add, [x, y], x + y),
            Case("multiply", op.multiply, [x, y], x * y),
            Case("divide", op.divide, [x, y], x / y),
            Case("equal", op.equal, [x, y], x == y),
        ]
    )


def test_three_operands():
    c = np.array([[True], [False]])
    a, b = np.array([1.0, math.nan], np.float32), np.array(7.0, np.float32)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    m = x > 2
    check(
        [
            Case("where", op.where, [c, a, b], np.where(c, a, b)),
            Case("ewise_fma", op.ewise_fma, [x, x, x], x * x + x),
            Case(
                "masked_fill",
                lambda x, m: op.masked_fill(x, m, -1),
                [x, m],
                np.where(m, np.float32(-1), x),
            ),
        ]
    )


def test_numbers_take_the_dtype_they_meet():
    i, f = np.array([1, 2], np.int64), np.array([1, 2], np.float16)
    check(
        [
            Case("int", lambda x: x + 1, [i], i + 1),
            Case("reversed", lambda x: 2**40 - x, [i], 2**40 - i),
            Case("float", lambda x: x * 0.5, [f], f / 2),
            Case("int on float", lambda x: 1 / x, [f], 1 / f),
            Case("prim", lambda x: op.add(x, PrimValue(3)), [i], i + 3),
            Case("mod", lambda x: x % 2, [i], np.fmod(i, 2)),
            Case("power", lambda x: x**2, [i], i**2),
        ]
    )


def test_empty():
    x = np.zeros((0, 3), np.float32)
    y = np.zeros((1, 3), np.float32)
    check([Case("add", op.add, [x, y], x), Case("less", op.less, [x, y], x < y)])


N, M = tir.Var("n", "int64"), tir.Var("m", "int64")


@pytest.mark.parametrize(
    ("a", "b", "want"),
    [
        ((N, 3), (3,), TensorStructInfo((N, 3), "float32")),
        ((N, 1), (1, M), TensorStructInfo((N, M), "float32")),
        ((N, 3), (M, 3), TensorStructInfo(None, "float32", ndim=2)),
        # The dimension may turn out to be 1.
        ((N, 3), (4, 3), TensorStructInfo(None, "float32", ndim=2)),
        ((N + 1,), (N + 1,), TensorStructInfo((N + 1,), "float32")),
        (2, (N, 3), TensorStructInfo(None, "float32", ndim=2)),
        (1, (N, 3), TensorStructInfo(None, "float32", ndim=2)),
        (-1, (N, 3), TensorStructInfo(None, "float32")),
    ],
)
def test_inference(a, b, want):
    x, y = (
        Var("x", TensorStructInfo(None, "float32", ndim=s)) if isinstance(s, int) else tensor(s)
        for s in (a, b)
    )
    assert op.add(x, y).struct_info == want
    assert op.add(y, x).struct_info == want
    assert op.less(x, y).struct_info.dtype == "bool"


def test_inference_of_scalars():
    assert op.add(PrimValue(1), PrimValue(2)).struct_info == PrimStructInfo("int64")
    assert op.less(PrimValue(1), PrimValue(2)).struct_info == PrimStructInfo("bool")
    x = Var("x", TensorStructInfo((2,), None))
    assert op.add(x, tensor((2,))).struct_info == TensorStructInfo((2,), None)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: op.add(tensor((2,)), tensor((2,), "int32")),
            "`x1` is float32, `x2` is int32; use R.astype",
        ),
        (lambda: op.add(tensor((2, 3)), tensor((4,))), r"\(2, 3\) and \(4\) cannot be broadcast"),
        (lambda: op.subtract(tensor((2,), "bool"), tensor((2,), "bool")), "`x1` must be one of"),
        (lambda: op.left_shift(tensor((2,)), tensor((2,))), "got float32"),
        (lambda: op.less(tensor((2,), "complex64"), tensor((2,), "complex64")), "got complex64"),
        (lambda: op.add(tensor((2,), "int32"), 0.5), "`x2` is the float 0.5"),
        (lambda: op.add(tensor((2,)), "y"), "`x2` must be a tensor"),
        (lambda: op.add(tensor((2,)), Tuple([])), "`x2` must be a tensor or a scalar"),
        (lambda: op.add(tensor((2,)), None), "`x2` must be a Relax expression"),
        (lambda: op.where(tensor((2,)), const(1), const(2)), "`condition` must be one of bool"),
        (lambda: op.ewise_fma(tensor((2,)), tensor((2, 2)), tensor((2,))), "must have one rank"),
        (lambda: op.ewise_fma(tensor((2,)), tensor((3,)), tensor((2,))), "must have one shape"),
    ],
)
def test_errors(call, message):
    with pytest.raises(OpError, match=message):
        call()


def test_operands_that_do_not_go_together_are_a_type_error() -> None:
    x = Var("x", TensorStructInfo((2,), "float32"))
    y = Var("y", TensorStructInfo((2,), "int32"))
    for wrong in (y, ShapeExpr([2])):
        with pytest.raises(TypeError):
            op.add(x, wrong)
        with pytest.raises(OpError):
            op.add(x, wrong)


def test_a_condition_of_an_unknown_dtype_is_none() -> None:
    x = Var("x", TensorStructInfo((2, 3), "float32"))
    unknown = Var("c", TensorStructInfo((2, 3), ""))
    with pytest.raises(OpError, match=r"`condition` must be bool; the dtype of .* is not known"):
        op.where(unknown, x, x)
