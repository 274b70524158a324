"""Unary operators against numpy and torch."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from relax2xla import op, tir
from relax2xla.errors import OpError
from relax2xla.ir import PrimValue, TensorStructInfo, Var
from tests.op.harness import Case, check, tensor

torch = pytest.importorskip("torch")

SPECIAL = [0.0, -0.0, 0.5, -0.5, 1.5, 2.5, -1.5, 1.0, -1.0, 3.7, -7.2, 100.25, 1e30, -1e30]
NONFINITE = [math.inf, -math.inf, math.nan]


def _erf(x):
    return torch.erf(torch.from_numpy(x)).numpy()


def _sigmoid(x):
    return 1 / (1 + np.exp(-x))


# name, truth, domain of the random part
FLOATS = [
    ("acos", np.arccos, (-1, 1)),
    ("acosh", np.arccosh, (1, 9)),
    ("asin", np.arcsin, (-1, 1)),
    ("asinh", np.arcsinh, (-5, 5)),
    ("atan", np.arctan, (-5, 5)),
    ("atanh", np.arctanh, (-0.9, 0.9)),
    ("cos", np.cos, (-10, 10)),
    ("cosh", np.cosh, (-5, 5)),
    ("erf", _erf, (-3, 3)),
    ("exp", np.exp, (-10, 10)),
    ("log", np.log, (0.01, 10)),
    ("rsqrt", lambda x: 1 / np.sqrt(x), (0.01, 10)),
    ("sigmoid", _sigmoid, (-8, 8)),
    ("sin", np.sin, (-10, 10)),
    ("sinh", np.sinh, (-5, 5)),
    ("sqrt", np.sqrt, (0, 10)),
    ("tan", np.tan, (-1.4, 1.4)),
    ("tanh", np.tanh, (-5, 5)),
]
EXACT = [
    ("abs", np.abs),
    ("ceil", np.ceil),
    ("floor", np.floor),
    ("round", np.round),
    ("trunc", np.trunc),
    ("negative", np.negative),
    ("sign", lambda x: np.where(x != x, 0, np.sign(x)).astype(x.dtype)),
    ("square", np.square),
    ("isnan", np.isnan),
    ("isinf", np.isinf),
    ("isfinite", np.isfinite),
]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_float_functions(dtype):
    rng = np.random.default_rng(0)
    cases = []
    for name, truth, (low, high) in FLOATS:
        x = rng.uniform(low, high, (5, 7)).astype(np.dtype(dtype))
        want = truth(x.astype(np.float64)).astype(x.dtype)
        # float32: XLA's own approximations of the slowest functions are some units off.
        rtol = {"float32": 4e-6, "float64": 1e-12}.get(dtype)
        cases.append(Case(name, getattr(op, name), [x], want, rtol, atol=1e-6))
    check(cases)


def test_float_functions_at_the_ends():
    x = np.array([0.0, -0.0, *NONFINITE], np.float32)
    names = [n for n, _, _ in FLOATS]
    with np.errstate(all="ignore"):
        check([Case(n, getattr(op, n), [x], t(x)) for n, t, _ in FLOATS if n in names])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_exact_functions(dtype):
    with np.errstate(all="ignore"):
        x = np.array(SPECIAL + NONFINITE, np.float64).astype(np.dtype(dtype))
        check([Case(n, getattr(op, n), [x], t(x), rtol=0) for n, t in EXACT])


def test_zeros_keep_their_sign():
    x = np.array([0.0, -0.0, -0.3, 0.3, -0.5], np.float32)
    names = ("ceil", "floor", "round", "trunc", "negative")
    truth = dict(EXACT)
    with np.errstate(all="ignore"):
        check(
            [
                Case(
                    n,
                    lambda one, v, n=n: op.divide(one, getattr(op, n)(v)),
                    [np.float32(1), x],
                    np.float32(1) / truth[n](x),
                    rtol=0,
                )
                for n in names
            ]
        )


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint8", "uint64"])
def test_integers(dtype):
    info = np.iinfo(dtype)
    x = np.array([info.min, info.max, 0, 1, 5], dtype)
    cases = [Case("bitwise_not", op.bitwise_not, [x], ~x)]
    for name, truth in EXACT:
        want = truth(x)
        if name in ("ceil", "floor", "round", "trunc"):
            want = x
        cases.append(Case(name, getattr(op, name), [x], want))
    cases.append(Case("logical_not", op.logical_not, [x], (x == 0).astype(dtype)))
    with np.errstate(all="ignore"):
        check(cases)


def test_booleans():
    x = np.array([True, False])
    check(
        [
            Case("logical_not", op.logical_not, [x], ~x),
            Case("bitwise_not", op.bitwise_not, [x], ~x),
            Case("abs", op.abs, [x], x),
            Case("sign", op.sign, [x], x),
            Case("square", op.square, [x], x),
            Case("floor", op.floor, [x], x),
            Case("isnan", op.isnan, [x], x & False),
            Case("isfinite", op.isfinite, [x], x | True),
        ]
    )


def test_complex():
    x = np.array(
        [1 + 2j, -3 - 0.5j, 0.25j, complex(math.inf, 1), complex(0, math.nan)], np.complex64
    )
    y = x[:3]
    check(
        [
            Case("abs", op.abs, [y], np.abs(y)),
            Case("exp", op.exp, [y], np.exp(y)),
            Case("tanh", op.tanh, [y], np.tanh(y), 1e-5),
            Case("negative", op.negative, [y], -y),
            Case("isnan", op.isnan, [x], np.isnan(x)),
            Case("isinf", op.isinf, [x], np.isinf(x)),
            Case("isfinite", op.isfinite, [x], np.isfinite(x)),
        ]
    )


def test_clip():
    f = np.array([-3.0, -0.5, 0.2, 5.0, math.nan, math.inf, -math.inf], np.float32)
    i = np.array([-128, -3, 0, 3, 127], np.int8)
    big = np.array([2**53 + 1, -(2**53) - 1, 7], np.int64)
    check(
        [
            Case("float", lambda x: op.clip(x, -1, 2.5), [f], np.clip(f, -1, 2.5)),
            Case("reversed", lambda x: op.clip(x, 2, 1), [f], np.clip(f, 2, 1)),
            Case("inwards", lambda x: op.clip(x, -2.5, 2.5), [i], np.clip(i, -2, 2)),
            Case("beyond", lambda x: op.clip(x, -1000, 1e9), [i], i),
            Case("open", lambda x: op.clip(x, -math.inf, 3), [i], np.minimum(i, 3)),
            Case(
                "int64",
                lambda x: op.clip(x, -(2**53) - 1, 2**53),
                [big],
                np.clip(big, -(2**53) - 1, 2**53),
            ),
            Case(
                "tensors",
                lambda x, a: op.clip(x, a, PrimValue(1)),
                [f, np.float32(-0.25)],
                np.clip(f, -0.25, 1),
            ),
        ]
    )


def test_astype():
    f = np.array([1.9, -1.9, 0.0, 255.0, 3e9, -3e9, math.nan, math.inf], np.float32)
    i = np.array([-1, 0, 1, 300, 2**31 - 1], np.int32)
    check(
        [
            Case("truncates", lambda x: op.astype(x, "int32"), [f[:4]], f[:4].astype(np.int32)),
            Case(
                "stops at the limits",
                lambda x: op.astype(x, "int32"),
                [f[4:]],
                np.array([2**31 - 1, -(2**31), 0, 2**31 - 1], np.int32),
            ),
            Case("to bool", lambda x: op.astype(x, "bool"), [f], f != 0),
            Case("half to bool", lambda x: op.astype(x, "bool"), [f[:3] / 4], f[:3] != 0),
            Case("wraps", lambda x: op.astype(x, "uint8"), [i], i.astype(np.uint8)),
            Case("exact", lambda x: op.astype(x, "int64"), [i], i.astype(np.int64)),
            Case(
                "from bool", lambda x: op.astype(x, "float16"), [f > 1], (f > 1).astype(np.float16)
            ),
            Case("bf16", lambda x: op.astype(x, "bfloat16"), [f], f.astype(ml_dtypes.bfloat16)),
            Case(
                "real part",
                lambda x: op.astype(x, "float32"),
                [np.array([1 + 2j], np.complex64)],
                np.array([1], np.float32),
            ),
            Case(
                "wrap_param",
                lambda x: op.wrap_param(x, "float16"),
                [f[:3]],
                f[:3].astype(np.float16),
            ),
            Case("nothing", lambda x: op.astype(x, "int32"), [i], i),
        ]
    )


def test_inference_keeps_what_is_known():
    n = tir.Var("n", "int64")
    for shape in ((n, 3), ()):
        assert op.exp(tensor(shape)).struct_info == TensorStructInfo(shape, "float32")
    unknown = Var("x", TensorStructInfo(None, "float16", ndim=3))
    assert op.exp(unknown).struct_info == unknown.struct_info
    assert op.isnan(unknown).struct_info == TensorStructInfo(None, "bool", ndim=3)
    nothing = Var("x", TensorStructInfo(None, None))
    assert op.tanh(nothing).struct_info == nothing.struct_info
    assert op.astype(nothing, "int8").struct_info == TensorStructInfo(None, "int8")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: op.exp(tensor((2,), "int32")),
            r"`x` must be one of .*float32.*; got int32.*astype",
        ),
        (lambda: op.negative(tensor((2,), "bool")), "got bool"),
        (lambda: op.bitwise_not(tensor((2,), "complex64")), "got complex64"),
        (lambda: op.floor(tensor((2,), "complex64")), "got complex64"),
        (lambda: op.abs(PrimValue(1)), "`x` must be a tensor"),
        (lambda: op.clip(tensor((2,)), tensor((2,)), PrimValue(1)), "`min` must be a number"),
        (lambda: op.astype(tensor((2,)), None), "`dtype` must be given"),
        (lambda: op.astype(tensor((2,)), "float33"), "parameter `dtype`: unknown dtype"),
    ],
)
def test_errors(call, message):
    with pytest.raises(OpError, match=message):
        call()


def test_wrong_arguments_name_the_signature():
    with pytest.raises(TypeError, match=r"relax.exp\(x: 'Expr'\)"):
        op.exp()  # pyright: ignore
