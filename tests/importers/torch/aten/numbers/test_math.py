"""Element-wise operators against eager torch: values, promotion, rounding, NaN."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional as F  # noqa: E402

from tests.importers.torch.helpers import check, check_table, imported, run  # noqa: E402

g = torch.Generator().manual_seed(0)
X = torch.randn(3, 5, generator=g)
Y = torch.randn(3, 5, generator=g)
POSITIVE = X.abs() + 0.1
UNIT = torch.tanh(X) * 0.9
INTS = torch.tensor([[-7, -3, 0], [2, 5, 9]])
J = torch.tensor([[2, -2, 3], [-4, 3, 2]])
B = torch.tensor([[True, False, True], [False, True, True]])
C = torch.tensor([[True, True, False], [False, True, False]])
ODD = torch.tensor([math.nan, math.inf, -math.inf, 0.0, -0.0, 1.5, 2.5, -0.5, -2.5, 1e30])
SCALAR = torch.tensor(2.5, dtype=torch.float64)

ON_POSITIVE = (
    torch.log,
    torch.log2,
    torch.log10,
    torch.log1p,
    torch.sqrt,
    torch.rsqrt,
    torch.lgamma,
)
ON_UNIT = (torch.acos, torch.asin, torch.atanh, torch.erfinv)
ON_ALL = (
    *(torch.sin, torch.cos, torch.tan, torch.sinh, torch.cosh, torch.tanh, torch.asinh, torch.atan),
    *(torch.exp, torch.exp2, torch.expm1, torch.erf, torch.erfc, torch.sigmoid, torch.sinc),
    *(torch.neg, torch.abs, torch.sign, torch.sgn, torch.square, torch.reciprocal, torch.signbit),
    *(torch.ceil, torch.floor, torch.round, torch.trunc, torch.fix, torch.frac),
    *(F.relu, F.relu6, F.silu, F.mish, F.gelu, F.selu, F.elu, F.celu, F.hardswish, F.hardsigmoid),
    *(F.hardtanh, F.logsigmoid, F.softsign, F.tanhshrink, F.softshrink, F.hardshrink, F.softplus),
)
ROUNDINGS = (torch.ceil, torch.floor, torch.round, torch.trunc, torch.sign, torch.abs, torch.relu)
TESTS = (torch.isnan, torch.isinf, torch.isfinite, torch.signbit, torch.nan_to_num)


def test_one_operand() -> None:
    table: dict[str, tuple[Any, ...]] = {}
    for f in ON_ALL:
        table[f.__name__] = (f, X)
    for f in ON_POSITIVE:
        table[f.__name__] = (f, POSITIVE)
    for f in ON_UNIT:
        table[f.__name__] = (f, UNIT)
    table["acosh"] = (torch.acosh, POSITIVE + 1)
    table["digamma"] = (torch.digamma, POSITIVE)
    for f in (torch.exp, torch.sqrt, torch.sigmoid, torch.erf, torch.reciprocal, torch.cos):
        table[f"{f.__name__} of integers"] = (f, INTS.abs() + 1)
    for f in (*ROUNDINGS, torch.neg, torch.bitwise_not, torch.logical_not, torch.square):
        table[f"{f.__name__} of int64"] = (f, INTS)
    for f in (torch.bitwise_not, torch.logical_not, torch.abs):
        table[f"{f.__name__} of bool"] = (f, B) if f is not torch.abs else (f, INTS.int())
    for f in (*ROUNDINGS, *TESTS, torch.exp, torch.tanh, torch.logical_not, F.softplus):
        table[f"{f.__name__} at the edges"] = (f, ODD)
    # Eager torch's gelu of an infinity is another one on AVX2 and on AVX-512.
    table["gelu at the edges"] = (F.gelu, ODD[~ODD.isinf()])
    for f in TESTS:
        table[f"{f.__name__} of int64"] = (f, INTS)
    table["round to decimals"] = (lambda x: (x.round(decimals=2), x.round(decimals=-1)), X * 30)
    check_table(table)


def test_two_operands() -> None:
    table: dict[str, tuple[Any, ...]] = {
        "add with alpha": (lambda a, b: torch.add(a, b, alpha=2), X, Y),
        "add of integers with alpha": (lambda a, b: torch.add(a, b, alpha=-3), INTS, J),
        "add of booleans": (torch.add, B, C),
        "mul of booleans": (torch.mul, B, C),
        "sub with alpha": (lambda a, b: torch.sub(a, b, alpha=0.5), X, Y),
        "rsub": (lambda a: (3 - a, torch.rsub(a, 2, alpha=4)), X),
        "mul": (torch.mul, X, Y),
        "div": (torch.div, X, Y),
        "div of integers": (torch.div, INTS, J),
        "div by a number": (lambda a: (a / 3, 2 / a), X),
        "div floor": (lambda a, b: torch.div(a, b, rounding_mode="floor"), X, Y),
        "div trunc": (lambda a, b: torch.div(a, b, rounding_mode="trunc"), X, Y),
        "div floor of integers": (lambda a, b: torch.div(a, b, rounding_mode="floor"), INTS, J),
        "div trunc of integers": (lambda a, b: torch.div(a, b, rounding_mode="trunc"), INTS, J),
        "floor_divide": (lambda a: (a // 0.1, a // 3), torch.tensor([1.0, -1.0, 0.35])),
        "floor_divide of integers": (lambda a, b: (a // b, a // 3), INTS, J),
        "remainder": (lambda a, b: (a % b, a % 2, 3 % b), X, Y),
        "remainder of integers": (lambda a, b: (a % b, a % -4), INTS, J),
        "fmod": (lambda a, b: (torch.fmod(a, b), torch.fmod(a, 0.7)), X, Y),
        "fmod of integers": (torch.fmod, INTS, J),
        "pow": (lambda a, b: (a**b, a**2, a**3, a**0.5, a**-1, a**1, a**2.5, 2**b), POSITIVE, Y),
        "pow of integers": (lambda a, b: (a**b, a**2, a**3), INTS, J.abs()),
        "atan2": (torch.atan2, X, Y),
        "hypot": (torch.hypot, X, Y),
        "hypot at the edges": (lambda a: torch.hypot(a, a[:, None]), ODD),
        "powers of a half": (lambda a: (a**0.5, a**-0.5), ODD),
        "logaddexp": (torch.logaddexp, X, Y),
        "maximum": (torch.maximum, X, Y),
        "minimum": (torch.minimum, ODD, ODD.flip(0)),
        "fmax": (torch.fmax, ODD, ODD.flip(0)),
        "fmin": (torch.fmin, ODD, ODD.flip(0)),
        "maximum of integers": (torch.maximum, INTS, J),
        "bits": (lambda a, b: (a & b, a | b, a ^ b, a & 3, a | 8), INTS, J),
        "bits of booleans": (lambda a, b: (a & b, a | b, a ^ b), B, C),
        "shifts": (lambda a, b: (a << b, a >> b, a >> 1), INTS, J.abs()),
        "logic": (
            lambda a, b: (torch.logical_and(a, b), torch.logical_or(a, b), torch.logical_xor(a, b)),
            INTS,
            J - 2,
        ),
        "isclose": (lambda a: (torch.isclose(a, a + 1e-9), torch.isclose(a, a * 1.1)), X),
        "isclose with nan": (lambda a: torch.isclose(a, a, equal_nan=True), ODD),
    }
    for f in (torch.eq, torch.ne, torch.lt, torch.le, torch.gt, torch.ge):
        table[f.__name__] = (lambda a, b, f=f: (f(a, b), f(a, 0), f(a, 0.5)), INTS, J)
        table[f"{f.__name__} of floats"] = (lambda a, b, f=f: (f(a, b), f(a, 1)), ODD, ODD.flip(0))
        table[f"{f.__name__} of booleans"] = (f, B, C)
    check_table(table)


def test_promotion_is_torchs() -> None:
    kinds = [torch.bool, torch.uint8, torch.int32, torch.int64, torch.float16, torch.float32]
    kinds += [torch.bfloat16, torch.float64]
    table: dict[str, tuple[Any, ...]] = {}
    for a in kinds:
        x = torch.ones(2, 3).to(a)
        for b in kinds:
            y = torch.full((3,), 3).to(b)
            table[f"{a} + {b}"] = (lambda x, y: (x + y, x * y.sum(), x < y), x, y)
            zero = torch.tensor(3).to(b)
            table[f"{a} + 0-d {b}"] = (lambda x, y: (x + y, torch.where(x > 0, x, y)), x, zero)
        table[f"{a} with numbers"] = (lambda x: (x + 1, x * 2.5, x / 2, x > 0.5, x == 1), x)
    check_table(table)


def test_three_operands() -> None:
    table: dict[str, tuple[Any, ...]] = {
        "where": (torch.where, B, INTS, J),
        "where with numbers": (
            lambda c, x: (torch.where(c, x, 0), torch.where(c, 1.5, x)),
            B,
            INTS,
        ),
        "where promotes": (torch.where, B, INTS, J.float()),
        "masked_fill": (lambda x, m: (x.masked_fill(m, -1), x.masked_fill(m, SCALAR)), X, X > 0),
        "masked_fill with infinity": (lambda x, m: x.masked_fill(m, -math.inf), X, X > 0),
        "clamp": (lambda x: (x.clamp(-1, 1), x.clamp(min=0), x.clamp(max=0.5)), ODD),
        "clamp with crossed bounds": (lambda x: x.clamp(2, 1), X),
        "clamp by tensors": (lambda x, y: torch.clamp(x, y, y + 1), X, Y),
        "clamp of integers": (lambda x: (x.clamp(-2, 3), x.clamp(-1.5, 3.0)), INTS),
        "clamp_min": (lambda x: (torch.clamp_min(x, 0.2), torch.clamp_max(x, 0.2)), X),
        "addcmul": (lambda a, b: torch.addcmul(a, a, b, value=0.5), X, Y),
        "addcdiv": (lambda a, b: torch.addcdiv(a, a, b, value=2), X, POSITIVE),
        "lerp": (lambda a, b: (torch.lerp(a, b, 0.3), torch.lerp(a, b, 0.9)), X, Y),
        "lerp by a tensor": (torch.lerp, X, Y, POSITIVE),
        "nan_to_num": (lambda x: torch.nan_to_num(x, 1.0, 2.0, -3.0), ODD),
    }
    check_table(table)


def test_activations_with_arguments() -> None:
    table: dict[str, tuple[Any, ...]] = {
        "gelu tanh": (lambda x: F.gelu(x, approximate="tanh"), X),
        "leaky_relu": (lambda x: (F.leaky_relu(x), F.leaky_relu(x, 0.3)), X),
        "elu": (lambda x: F.elu(x, 0.7), X),
        "celu": (lambda x: F.celu(x, 0.7), X),
        "softplus": (lambda x: F.softplus(x, 2.0, 1.0), X),
        "hardtanh": (lambda x: F.hardtanh(x, -0.3, 0.6), X),
        "threshold": (lambda x: F.threshold(x, 0.1, 20.0), X),
        "softshrink": (lambda x: F.softshrink(x, 0.3), X),
        "hardshrink": (lambda x: F.hardshrink(x, 0.3), X),
        "prelu": (F.prelu, torch.randn(2, 3, 4, generator=g), torch.tensor([0.1, 0.2, 0.3])),
        "prelu with one weight": (F.prelu, X, torch.tensor([0.1])),
        "glu": (lambda x: F.glu(x, 1), torch.randn(3, 6, generator=g)),
    }
    check_table(table)


def test_a_symbolic_integer_meets_a_tensor() -> None:
    n = torch.export.Dim("n", min=2, max=9)
    x, y = torch.randn(4, 3, generator=g), torch.randn(7, 3, generator=g)
    check(lambda x: (x / x.shape[0], x * x.shape[0] + 1), [x], [{0: n}], [[y]])


def test_double_and_int64_stay_exact() -> None:
    big = torch.tensor([2**53 + 1, -(2**62) + 3])
    small = torch.tensor([1e-300, 1.0 + 2**-50], dtype=torch.float64)
    check_table({"int64": (lambda x: x + 1, big), "float64": (lambda x: x * 3, small)})


def test_numbers_too_large_for_whole_numbers_wrap_around() -> None:
    small = torch.tensor([0, 5, 253, 255], dtype=torch.uint8)
    check_table(
        {
            str(n): (
                lambda x, n=n: (
                    x + n,
                    n - x,
                    x * n,
                    x == n,
                    x < n,
                    x & n,
                ),
                small,
            )
            for n in (-3, -256, 300)
        }
    )


def test_numbers_meet_16_bit_tensors_with_all_their_digits() -> None:
    """Also those that float16 cannot hold; a tensor of rank 0 is such a number."""
    x = torch.linspace(-3, 3, 101)
    half, narrow = x.half(), x.bfloat16()

    def f(half: Any, narrow: Any, one: Any) -> list[Any]:
        made = [half * 70000.0, half * 6 / 70000.0, 1e5 / (half.abs() + 2), 2048 * half * 1e-8]
        return [*made, half * 1.0003, narrow * 1.003, narrow / 1.003, narrow * one, narrow / one]

    inputs = [half, narrow, torch.tensor(1.003)]
    for got, want in zip(run(imported(f, inputs), inputs), f(*inputs), strict=True):
        np.testing.assert_array_equal(got.astype(np.float32), want.float().numpy())


def test_masks_times_nan_are_nan() -> None:
    """XLA makes of a product with a converted mask a choice between the other factor and 0."""
    check_table(
        {
            "a mask": (lambda x, y: (x > 0) * y, X, X / 0 * 0),
            "as numbers": (lambda x, y: (x > 0).float() * y, X, X / 0),
        }
    )
    x = torch.tensor([1.0, math.nan, 2.0], requires_grad=True)
    least = lambda x: x.aminmax().min  # noqa: E731
    slopes = [
        torch.autograd.grad(f(x), x)[0] for f in (least, torch.compile(least, backend="relax2xla"))
    ]
    np.testing.assert_array_equal(*slopes)  # not one element is the least: 0 / 0


def test_complex_numbers_with_nan_and_infinite_parts() -> None:
    odd = torch.tensor([complex(math.nan, 1), complex(1, math.inf), complex(-math.inf, math.nan)])
    plain = torch.tensor([3 + 4j, 0j, -2j])
    near = torch.tensor([3.00001 + 4j, 1e-9 + 0j, -2.1j])
    check_table(
        {
            "nan_to_num": (lambda x: (x.nan_to_num(), x.nan_to_num(2.0, 3.0, 4.0)), odd),
            "logarithms": (lambda x: (x.log2(), x.log10()), plain),
            "isclose": (torch.isclose, plain, near),
            "isclose of nan": (lambda x: torch.isclose(x, x, equal_nan=True), odd),
        }
    )


def test_rounding_to_decimals_counts_all_digits_of_float32() -> None:
    x = (torch.randn(1000, generator=g) * 10).half()
    check(lambda x: (x.round(decimals=2), x.round(decimals=-1)), [x])
