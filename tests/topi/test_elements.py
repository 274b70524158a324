"""Elementwise and broadcasting functions, and reductions, against numpy and torch."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pytest
import torch

from relax2xla import te, tir, topi
from tests.topi.harness import Case, check

RNG = np.random.default_rng(0)
X = RNG.uniform(-2, 2, (4, 7)).astype(np.float32)
X[0, 0], X[1, 1] = 0, -0.5
Y = RNG.uniform(0.5, 2, (7,)).astype(np.float32)
Z = RNG.uniform(-2, 2, (4, 1)).astype(np.float32)
UNIT = RNG.uniform(-0.9, 0.9, (3, 7)).astype(np.float32)
ODD = np.array([np.nan, np.inf, -np.inf, 1, 0, -2.5, 2.5], np.float32)
K = RNG.integers(-9, 9, (4, 7)).astype(np.int32)
J = np.array([1, 2, 3, -4, 5, -6, 7], np.int32)
S = np.array([1, 2, 3, 0, 2, 1, 2], np.int32)
B = RNG.integers(0, 2, (4, 7)).astype(bool)
C = RNG.integers(0, 2, (7,)).astype(bool)


def torch_of(name: str, x: Any) -> Any:
    return getattr(torch, name)(torch.from_numpy(x)).numpy()


ELEMENTS = [
    *(
        Case(n, getattr(topi, n), [UNIT], torch_of(n, UNIT))
        for n in [
            "exp",
            "erf",
            "tanh",
            "tan",
            "cos",
            "cosh",
            "sin",
            "sinh",
            "acos",
            "asin",
            "asinh",
            "atan",
            "atanh",
            "sigmoid",
        ]
    ),
    *(
        Case(f"fast_{n}", getattr(topi, f"fast_{n}"), [UNIT], torch_of(n, UNIT))
        for n in ["exp", "erf", "tanh"]
    ),
    *(
        Case(n, getattr(topi, n), [Y], torch_of(n, Y))
        for n in ["log", "log2", "log10", "sqrt", "rsqrt"]
    ),
    Case("acosh", topi.acosh, [Y + 1], np.arccosh(Y + 1)),
    *(
        Case(n, getattr(topi, n), [ODD[3:]], torch_of(n, ODD[3:]))
        for n in ["floor", "ceil", "trunc", "round", "abs", "sign"]
    ),
    *(
        Case(n, getattr(topi, n), [ODD], getattr(np, n)(ODD))
        for n in ("isnan", "isinf", "isfinite")
    ),
    Case("identity", topi.identity, [X], X),
    Case("negative", topi.negative, [X], -X),
    Case("abs_int", topi.abs, [K], abs(K)),
    Case("sign_int", topi.sign, [K], np.sign(K)),
    Case("cast", lambda x: topi.cast(x, "int32"), [X], X.astype(np.int32)),
    Case("cast_bool", lambda x: topi.cast(x, "bool"), [X], X.astype(bool)),
    Case("reinterpret", lambda x: topi.reinterpret(x, "int32"), [X], X.view(np.int32)),
    Case("clip", lambda x: topi.clip(x, -1, 0.5), [X], np.clip(X, -1, np.float32(0.5))),
    Case("logical_not", topi.logical_not, [B], ~B),
    Case("bitwise_not", topi.bitwise_not, [K], ~K),
    Case("elemwise_sum", lambda x: topi.elemwise_sum([x, x, x]), [X], 3 * X),
]

PAIRS = [
    *(
        Case(n, getattr(topi, n), [X, Y], getattr(np, n)(X, Y))
        for n in [
            "add",
            "subtract",
            "multiply",
            "divide",
            "maximum",
            "minimum",
            "greater",
            "less",
            "equal",
            "not_equal",
            "greater_equal",
            "less_equal",
        ]
    ),
    Case("columns", topi.add, [X, Z], X + Z),
    Case("outer", topi.multiply, [Z, Y], Z * Y),
    Case("number", lambda x: topi.add(x, 1.5), [X], X + np.float32(1.5)),
    Case("power", lambda y: topi.power(y, 3.0), [Y], Y**3),
    Case("divide_int", topi.divide, [K, J], np.trunc(K / J).astype(np.int32)),
    Case("floor_divide", topi.floor_divide, [K, J], K // J),
    Case("floor_divide_float", topi.floor_divide, [X, Y], X // Y),
    Case("mod", topi.mod, [K, J], np.fmod(K, J)),
    Case("mod_float", topi.mod, [X, Y], np.fmod(X, Y)),
    Case("floor_mod", topi.floor_mod, [K, J], K % J),
    Case("floor_mod_float", topi.floor_mod, [X, Y], X % Y),
    *(
        Case(n, getattr(topi, n), [K, S], getattr(np, n)(K, S))
        for n in ["left_shift", "right_shift", "bitwise_and", "bitwise_or", "bitwise_xor"]
    ),
    *(
        Case(n, getattr(topi, n), [B, C], getattr(np, n)(B, C))
        for n in ["logical_and", "logical_or", "logical_xor"]
    ),
    Case("broadcast_to", lambda y: topi.broadcast_to(y, (4, y.shape[0])), [Y], X * 0 + Y),
    Case("where", topi.where, [B, X, Y], np.where(B, X, Y)),
    Case("where_number", lambda b, x: topi.where(b, x, 0.0), [C, X], np.where(C, X, 0)),
    Case("operators", lambda x, y: (2.0 - x * y) / y + -x, [X, Y], (2 - X * Y) / Y - X),
    Case("operators_int", lambda i, j: i // j + i % j, [K, J], K // J + K % J),
]

ALL = (0, 1)
REDUCTIONS = [
    *(
        Case(f"{n}_{label}", fn, [X], want)
        for n in ("sum", "prod", "max", "min")
        for label, fn, want in [
            ("rows", lambda x, n=n: getattr(topi, n)(x, 1), getattr(np, n)(X, axis=1)),
            ("all", lambda x, n=n: getattr(topi, n)(x), getattr(np, n)(X)),
            (
                "kept",
                lambda x, n=n: getattr(topi, n)(x, axis=-2, keepdims=True),
                getattr(np, n)(X, axis=0, keepdims=True),
            ),
        ]
    ),
    Case("all_rows", lambda b: topi.all(b, 1), [B], B.all(1)),
    Case("any_columns", lambda b: topi.any(b, 0), [B], B.any(0)),
    Case("argmax", lambda x: topi.argmax(x, 1), [X], X.argmax(1)),
    Case("argmin", lambda x: topi.argmin(x, 0, True), [X], X.argmin(0)[None]),
    Case("argmax_all", lambda x: topi.argmax(x), [X], X.argmax()),
    Case("argmax_first", lambda b: topi.argmax(topi.cast(b, "int32"), 1), [B], B.argmax(1)),
    Case(
        "argmax_last",
        lambda b: topi.argmax(topi.cast(b, "int32"), 1, False, True),
        [B],
        6 - B[:, ::-1].argmax(1),
    ),
    Case("collapse", lambda x: topi.collapse_sum(x, (1, x.shape[1])), [X], X.sum(0)[None]),
    Case("collapse_front", lambda x: topi.collapse_sum(x, (x.shape[1],)), [X], X.sum(0)),
]


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("cases", [ELEMENTS, PAIRS, REDUCTIONS])
def test_values(cases: list[Case], symbolic: bool) -> None:
    check(cases, symbolic)


def test_numbers_are_scalars() -> None:
    n = tir.Var("n", "int64")
    assert str(topi.add(n, 1)) == "n + 1"
    assert topi.maximum(2, 3) == 3


def test_a_number_has_its_own_dtype() -> None:
    half = te.placeholder((3,), "float16", "half")
    assert topi.add(half, 1.0).dtype == "float32"
    assert topi.add(half, 1).dtype == "float16"
    assert operator.add(half, half).dtype == "float16"


def test_what_does_not_broadcast() -> None:
    a, b = te.placeholder((3,)), te.placeholder((4,))
    with pytest.raises(ValueError, match=r"topi.add: the sizes 3 and 4 do not broadcast"):
        topi.add(a, b)
    n, m = tir.Var("n", "int64"), tir.Var("m", "int64")
    with pytest.raises(ValueError, match="do not broadcast"):
        topi.add(te.placeholder((n,)), te.placeholder((m,)))
    with pytest.raises(ValueError, match="axis 2 of a tensor of 1 axes"):
        topi.sum(a, 2)
