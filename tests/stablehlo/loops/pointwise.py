# ruff: noqa: E501  (lines of kernels are as long as they are)
"""Kernels that compute element by element: operators, intrinsics, dtypes, broadcasts, layouts."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.stablehlo.loops.cases import Case, array, arrays, buffers, script

BODY = """
for i, j in T.grid(4, 6):
    with T.block("C"):
        vi, vj = T.axis.remap("SS", [i, j])
        C[vi, vj] = {value}
"""


def _element(
    name: str,
    value: str,
    expected: Callable[[np.ndarray, np.ndarray], Any],
    dtype: str = "float32",
    out: str = "",
    low: float = -2.0,
    high: float = 2.0,
    tolerance: float = 1e-5,
) -> Case:
    text = re.sub(r"\bx\b", "A[vi, vj]", value)
    text = re.sub(r"\by\b", "B[vi, vj]", text)
    out = out or dtype
    return Case(
        f"{name}_{dtype}",
        script(buffers(A=(4, 6, dtype), B=(4, 6, dtype), C=(4, 6, out)), BODY.format(value=text)),
        lambda rng: [
            array(rng, (4, 6, dtype), low, high),
            array(rng, (4, 6, dtype), low, high),
            np.zeros((4, 6), out),
        ],
        lambda a, b, c: np.asarray(expected(a, b)).astype(out),
        tolerance=tolerance,
    )


def _trunc_divide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.trunc(a / b).astype(a.dtype)


def _round_shift(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.right_shift(a.astype(np.int64) * b.astype(np.int64) + (1 << 3), 4)


FLOATS = [
    _element("add", "x + y", np.add),
    _element("subtract", "x - y", np.subtract),
    _element("multiply", "x * y", np.multiply),
    _element("divide", "x / y", np.divide, low=0.5),
    _element("max", "T.max(x, y)", np.maximum),
    _element("min", "T.min(x, y)", np.minimum),
    _element(
        "max_nan", "T.max(T.sqrt(x), y)", lambda a, b: np.where(np.sqrt(a) > b, np.sqrt(a), b)
    ),
    _element(
        "min_nan", "T.min(y, T.sqrt(x))", lambda a, b: np.where(b < np.sqrt(a), b, np.sqrt(a))
    ),
    _element("relu", "T.max(x, T.float32(0))", lambda a, b: np.maximum(a, 0)),
    _element("power", "T.pow(x, y)", np.power, low=0.2),
    _element("exp", "T.exp(x)", lambda a, b: np.exp(a)),
    _element("exp2", "T.exp2(x)", lambda a, b: np.exp2(a)),
    _element("exp10", "T.exp10(x)", lambda a, b: np.power(10.0, a), tolerance=1e-4),
    _element("log", "T.log(x)", lambda a, b: np.log(a), low=0.1),
    _element("log2", "T.log2(x)", lambda a, b: np.log2(a), low=0.1),
    _element("log10", "T.log10(x)", lambda a, b: np.log10(a), low=0.1),
    _element("log1p", "T.log1p(x)", lambda a, b: np.log1p(a), low=-0.5),
    _element("sqrt", "T.sqrt(x)", lambda a, b: np.sqrt(a), low=0.1),
    _element("rsqrt", "T.rsqrt(x)", lambda a, b: 1 / np.sqrt(a), low=0.1),
    _element("tanh", "T.tanh(x)", lambda a, b: np.tanh(a)),
    _element("sigmoid", "T.sigmoid(x)", lambda a, b: 1 / (1 + np.exp(-a))),
    _element("sin", "T.sin(x)", lambda a, b: np.sin(a)),
    _element("cos", "T.cos(x)", lambda a, b: np.cos(a)),
    _element("tan", "T.tan(x)", lambda a, b: np.tan(a), low=-1, high=1),
    _element("sinh", "T.sinh(x)", lambda a, b: np.sinh(a)),
    _element("cosh", "T.cosh(x)", lambda a, b: np.cosh(a)),
    _element("asin", "T.asin(x)", lambda a, b: np.arcsin(a), low=-0.9, high=0.9),
    _element("acos", "T.acos(x)", lambda a, b: np.arccos(a), low=-0.9, high=0.9),
    _element("atan", "T.atan(x)", lambda a, b: np.arctan(a)),
    _element("atan2", "T.atan2(x, y)", np.arctan2),
    _element("floor", "T.floor(x)", lambda a, b: np.floor(a)),
    _element("ceil", "T.ceil(x)", lambda a, b: np.ceil(a)),
    _element("trunc", "T.trunc(x)", lambda a, b: np.trunc(a)),
    _element("round", "T.round(x * T.float32(2)) ", lambda a, b: np.rint(a * 2)),
    _element("nearbyint", "T.nearbyint(x)", lambda a, b: np.rint(a)),
    _element("abs", "T.fabs(x)", lambda a, b: np.abs(a)),
    _element("copysign", "T.copysign(x, y)", np.copysign),
    _element("ldexp", 'T.ldexp(x, T.Cast("int32", y))', lambda a, b: np.ldexp(a, b.astype("i4"))),
    _element("hypot", "T.hypot(x, y)", np.hypot),
    _element("fmod", "T.fmod(x, y)", np.fmod, low=0.5),
    _element("isnan", "T.isnan(x / (x - x))", lambda a, b: np.zeros_like(a, bool), out="bool"),
    _element("compare", "x < y", np.less, out="bool"),
    _element("equal", "x == x", lambda a, b: a == a, out="bool"),
    _element("both", "x < y and y < T.float32(1)", lambda a, b: (a < b) & (b < 1), out="bool"),
    _element("either", "x < y or y < T.float32(-1)", lambda a, b: (a < b) | (b < -1), out="bool"),
    _element("not", "T.Not(x < y)", lambda a, b: ~(a < b), out="bool"),
    _element("select", "T.Select(x < y, x, y * x)", lambda a, b: np.where(a < b, a, b * a)),
    _element(
        "if_then_else",
        "T.if_then_else(x < y, T.exp(x), y)",
        lambda a, b: np.where(a < b, np.exp(a), b),
    ),
    _element("clip", "T.min(T.max(x, T.float32(-1)), T.float32(1))", lambda a, b: a.clip(-1, 1)),
    _element("to_int", "T.Cast('int32', x)", lambda a, b: np.trunc(a), out="int32"),
    _element("to_half", "T.Cast('float16', x)", lambda a, b: a, out="float16", tolerance=1e-2),
    _element("half", "x * y + x", lambda a, b: a * b + a, "float16", tolerance=1e-2),
    _element("double", "x * y + T.exp(x)", lambda a, b: a * b + np.exp(a), "float64"),
    _element("bits", "T.reinterpret('int32', x)", lambda a, b: a.view("int32"), out="int32"),
    _element(
        "silu_gate",
        "x * T.sigmoid(x) * y",
        lambda a, b: a / (1 + np.exp(-a)) * b,
    ),
    _element(
        "gelu",
        "x * T.float32(0.5) * (T.float32(1) + T.erf(x * T.float32(0.70710678)))",
        lambda a, b: a * 0.5 * (1 + np.vectorize(__import__("math").erf)(a * 0.70710678)),
    ),
]
_ANY: dict[str, Any] = {"low": -9, "high": 9}
_POSITIVE: dict[str, Any] = {"low": 1, "high": 9}
INTEGERS = [
    case
    for dtype in ("int32", "int64", "int8", "uint8")
    for case in (
        _element("add", "x + y", np.add, dtype, **_ANY),
        _element("wrap", "x * y * x", lambda a, b: a * b * a, dtype, **_ANY),
        _element("max", "T.max(x, y)", np.maximum, dtype, **_ANY),
        _element("floordiv", "x // y", np.floor_divide, dtype, **_POSITIVE),
        _element("floormod", "x % y", np.mod, dtype, **_POSITIVE),
        _element("and", "T.bitwise_and(x, y)", np.bitwise_and, dtype, **_ANY),
        _element("or", "T.bitwise_or(x, y)", np.bitwise_or, dtype, **_ANY),
        _element("xor", "T.bitwise_xor(x, y)", np.bitwise_xor, dtype, **_ANY),
        _element(
            "right",
            "T.shift_right(x, y % {}(4))".format("T." + dtype),
            lambda a, b: a >> (b % 4),
            dtype,
            **_ANY,
        ),
        _element(
            "left",
            "T.shift_left(x, y % {}(4))".format("T." + dtype),
            lambda a, b: a << (b % 4),
            dtype,
            **_ANY,
        ),
        _element("less", "x < y", np.less, dtype, out="bool", **_ANY),
    )
] + [
    _element("by_minus", "x // (T.int32(0) - y)", lambda a, b: a // -b, "int32", **_POSITIVE),
    _element("mod_minus", "x % (T.int32(0) - y)", lambda a, b: a % -b, "int32", **_POSITIVE),
    _element("floordiv_signs", "x // (y * 2 + 1)", lambda a, b: a // (b * 2 + 1), "int32", **_ANY),
    _element("floormod_signs", "x % (y * 2 + 1)", lambda a, b: a % (b * 2 + 1), "int32", **_ANY),
    _element(
        "truncdiv",
        "T.truncdiv(x, y * 2 + 1)",
        lambda a, b: _trunc_divide(a, b * 2 + 1),
        "int32",
        **_ANY,
    ),
    _element(
        "truncmod", "T.truncmod(x, y * 2 + 1)", lambda a, b: np.fmod(a, b * 2 + 1), "int32", **_ANY
    ),
    _element("by_four", "x // 4 + x % 4", lambda a, b: a // 4 + a % 4, "int32", **_ANY),
    _element("by_three", "x // 3 - x % 3", lambda a, b: a // 3 - a % 3, "int32", **_ANY),
    _element(
        "popcount",
        "T.popcount(x)",
        lambda a, b: np.vectorize(lambda v: bin(v).count("1"))(a),
        "int32",
        **_POSITIVE,
    ),
    _element(
        "clz",
        "T.clz(x)",
        lambda a, b: 32 - np.vectorize(int.bit_length)(a.astype(object)),
        "int32",
        **_POSITIVE,
    ),
    _element(
        "fixed_point", "T.q_multiply_shift(x, y, 31, 27)", _round_shift, "int32", low=0, high=99
    ),
    _element(
        "widened",
        "T.Cast('int32', x * y) + 1000",
        lambda a, b: (a * b).astype("int32") + 1000,
        "uint8",
        out="int32",
        low=0,
        high=250,
    ),
    _element("logic", "x and T.Not(y)", lambda a, b: a & ~b, "bool"),
]


def _layout(name: str, shapes: dict[str, Any], body: str, expected: Any, **more: Any) -> Case:
    *given, out = shapes.values()
    zeros = tuple(d for d in out if not isinstance(d, str))
    return Case(
        name,
        script(buffers(**shapes), body),
        lambda rng: [*arrays(*given)(rng), np.zeros(zeros, "float32")],
        lambda *args: expected(*args[:-1]),
        **more,
    )


LAYOUTS = [
    _layout(
        "broadcast",
        {"A": (4, 1), "B": (6,), "C": (4, 6)},
        """
        for i, j in T.grid(4, 6):
            C[i, j] = A[i, 0] + B[j]
        """,
        lambda a, b: a + b,
    ),
    _layout(
        "transpose",
        {"A": (4, 6), "C": (6, 4)},
        """
        for i, j in T.grid(6, 4):
            C[i, j] = A[j, i]
        """,
        lambda a: a.T,
    ),
    _layout(
        "flatten",
        {"A": (4, 6), "C": (24,)},
        """
        for i in range(24):
            C[i] = A[i // 6, i % 6]
        """,
        lambda a: a.reshape(24),
    ),
    _layout(
        "unflatten",
        {"A": (24,), "C": (4, 6)},
        """
        for i, j in T.grid(4, 6):
            C[i, j] = A[i * 6 + j]
        """,
        lambda a: a.reshape(4, 6),
    ),
    _layout(
        "reshape",
        {"A": (4, 6), "C": (8, 3)},
        """
        for i, j in T.grid(8, 3):
            C[i, j] = A[(i * 3 + j) // 6, (i * 3 + j) % 6]
        """,
        lambda a: a.reshape(8, 3),
    ),
    _layout(
        "reshape_odd",
        {"A": (5, 12), "C": (3, 4, 5)},
        """
        for i, j, k in T.grid(3, 4, 5):
            C[i, j, k] = A[(i * 20 + j * 5 + k) // 12, (i * 20 + j * 5 + k) % 12]
        """,
        lambda a: a.reshape(3, 4, 5),
    ),
    _layout(
        "fused_loop",
        {"A": (4, 6), "C": (4, 6)},
        """
        for f in T.parallel(24):
            C[f // 6, f % 6] = A[f // 6, f % 6] * T.float32(2)
        """,
        lambda a: a * 2,
    ),
    _layout(
        "split_loop",
        {"A": (24,), "C": (24,)},
        """
        for io in range(6):
            for ii in T.vectorized(4):
                C[io * 4 + ii] = A[io * 4 + ii] + T.float32(1)
        """,
        lambda a: a + 1,
    ),
    _layout(
        "split_with_tail",
        {"A": (22,), "C": (22,)},
        """
        for io, ii in T.grid(6, 4):
            if io * 4 + ii < 22:
                C[io * 4 + ii] = A[io * 4 + ii] + T.float32(1)
        """,
        lambda a: a + 1,
    ),
    _layout(
        "where_block",
        {"A": (22,), "C": (22,)},
        """
        for io, ii in T.grid(6, 4):
            with T.block("C"):
                v = T.axis.spatial(22, io * 4 + ii)
                T.where(io * 4 + ii < 22)
                C[v] = A[v] * A[v]
        """,
        lambda a: a * a,
    ),
    _layout(
        "packed_channels",
        {"A": (8, 5), "C": (2, 5, 4)},
        """
        for a, b, c in T.grid(2, 5, 4):
            C[a, b, c] = A[a * 4 + c, b]
        """,
        lambda a: a.reshape(2, 4, 5).transpose(0, 2, 1),
    ),
    _layout(
        "unpacked_channels",
        {"A": (2, 5, 4), "C": (8, 5)},
        """
        for a, b in T.grid(8, 5):
            C[a, b] = A[a // 4, b, a % 4]
        """,
        lambda a: a.transpose(0, 2, 1).reshape(8, 5),
    ),
    _layout(
        "reverse",
        {"A": (7,), "C": (7,)},
        """
        for i in range(7):
            C[i] = A[6 - i]
        """,
        lambda a: a[::-1],
    ),
    _layout(
        "every_second",
        {"A": (9,), "C": (4,)},
        """
        for i in range(4):
            C[i] = A[i * 2 + 1]
        """,
        lambda a: a[1:8:2],
    ),
    _layout(
        "write_every_second",
        {"A": (4,), "C": (9,)},
        """
        for i in range(4):
            C[i * 2 + 1] = A[i]
        """,
        lambda a: np.insert(np.zeros(5, "float32"), [1, 2, 3, 4], a),
    ),
    _layout(
        "write_reversed",
        {"A": (5,), "C": (5,)},
        """
        for i in range(5):
            C[4 - i] = A[i]
        """,
        lambda a: a[::-1],
    ),
    _layout(
        "interleave",
        {"A": (5,), "B": (5,), "C": (10,)},
        """
        for i in range(5):
            C[i * 2] = A[i]
            C[i * 2 + 1] = B[i]
        """,
        lambda a, b: np.stack([a, b], 1).reshape(10),
    ),
    _layout(
        "concat",
        {"A": (3, 2), "B": (3, 4), "C": (3, 6)},
        """
        for i, j in T.grid(3, 6):
            C[i, j] = T.if_then_else(j < 2, A[i, j], B[i, j - 2])
        """,
        lambda a, b: np.concatenate([a, b], 1),
    ),
    _layout(
        "pad",
        {"A": (3, 4), "C": (5, 7)},
        """
        for i, j in T.grid(5, 7):
            C[i, j] = T.if_then_else(1 <= i and i < 4 and 2 <= j and j < 6, A[i - 1, j - 2], T.float32(0))
        """,
        lambda a: np.pad(a, ((1, 1), (2, 1))),
        forms=("pad",),
    ),
    _layout(
        "pad_likely",
        {"A": (3,), "C": (6,)},
        """
        for i in range(6):
            C[i] = T.if_then_else(T.likely(i >= 2 and i < 5), A[i - 2], T.float32(7))
        """,
        lambda a: np.pad(a, (2, 1), constant_values=7),
    ),
    _layout(
        "mirror",
        {"A": (4,), "C": (6,)},
        """
        for i in range(6):
            C[i] = A[T.if_then_else(i < 1, 1 - i, T.if_then_else(i < 5, i - 1, 7 - i))]
        """,
        lambda a: np.pad(a, 1, mode="reflect"),
    ),
    _layout(
        "tile",
        {"A": (3, 4), "C": (6, 12)},
        """
        for i, j in T.grid(6, 12):
            C[i, j] = A[i % 3, j % 4]
        """,
        lambda a: np.tile(a, (2, 3)),
    ),
    _layout(
        "repeat",
        {"A": (3, 4), "C": (3, 12)},
        """
        for i, j in T.grid(3, 12):
            C[i, j] = A[i, j // 3]
        """,
        lambda a: np.repeat(a, 3, 1),
    ),
    _layout(
        "diagonal",
        {"A": (5, 5), "C": (5,)},
        """
        for i in range(5):
            C[i] = A[i, i]
        """,
        np.diagonal,
    ),
    _layout(
        "set_diagonal",
        {"A": (5,), "C": (5, 5)},
        """
        for i in range(5):
            C[i, i] = A[i]
        """,
        np.diag,
    ),
    _layout(
        "lower_triangle",
        {"A": (5, 6), "C": (5, 6)},
        """
        for i, j in T.grid(5, 6):
            C[i, j] = T.if_then_else(j <= i, A[i, j], T.float32(0))
        """,
        np.tril,
    ),
    _layout(
        "triangular_loop",
        {"A": (5, 5), "C": (5, 5)},
        """
        for i in range(5):
            for j in range(i + 1):
                C[i, j] = A[i, j]
        """,
        np.tril,
    ),
    _layout(
        "iota",
        {"C": (4, 6)},
        """
        for i, j in T.grid(4, 6):
            C[i, j] = T.Cast("float32", i * 6 + j)
        """,
        lambda: np.arange(24, dtype="float32").reshape(4, 6),
    ),
    _layout(
        "pixel_shuffle",
        {"A": (8, 3, 5), "C": (2, 6, 10)},
        """
        for c, y, x in T.grid(2, 6, 10):
            C[c, y, x] = A[c * 4 + y % 2 * 2 + x % 2, y // 2, x // 2]
        """,
        lambda a: a.reshape(2, 2, 2, 3, 5).transpose(0, 3, 1, 4, 2).reshape(2, 6, 10),
    ),
    _layout(
        "windows",
        {"A": (8,), "C": (6, 3)},
        """
        for i, j in T.grid(6, 3):
            C[i, j] = A[i + j]
        """,
        lambda a: np.lib.stride_tricks.sliding_window_view(a, 3),
    ),
    _layout(
        "scalar_buffer",
        {"A": (), "B": (5,), "C": (5,)},
        """
        for i in range(5):
            C[i] = A[()] * B[i]
        """,
        lambda a, b: a * b,
    ),
    _layout(
        "two_stages",
        {"A": (4, 6), "C": (4, 6)},
        """
        B = T.alloc_buffer((4, 6))
        for i, j in T.grid(4, 6):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * T.float32(2)
        for i, j in T.grid(4, 6):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = B[vi, vj] + T.float32(1)
        """,
        lambda a: a * 2 + 1,
    ),
    _layout(
        "swap_rows_in_place",
        {"A": (6,), "C": (6,)},
        """
        for i in range(6):
            C[i] = A[i]
        for i in range(3):
            C[i + 3] = C[i]
        """,
        lambda a: np.concatenate([a[:3], a[:3]]),
    ),
    _layout(
        "nested_scalar_let",
        {"A": (4, 6), "C": (4, 6)},
        """
        for i, j in T.grid(4, 6):
            t: T.float32 = A[i, j] * A[i, j]
            C[i, j] = t + t
        """,
        lambda a: 2 * a * a,
    ),
    _layout(
        "condition_on_data",
        {"A": (4, 6), "C": (4, 6)},
        """
        for i, j in T.grid(4, 6):
            if A[i, j] > T.float32(0):
                C[i, j] = A[i, j]
            else:
                C[i, j] = A[i, j] * T.float32(0.1)
        """,
        lambda a: np.where(a > 0, a, a * np.float32(0.1)),
    ),
    _layout(
        "rope",
        {"A": (5, 8), "C": (5, 8)},
        """
        for t, d in T.grid(5, 8):
            C[t, d] = A[t, d] * T.cos(T.Cast("float32", t) / T.pow(T.float32(100), T.Cast("float32", d % 4 * 2) / T.float32(8))) + T.if_then_else(d < 4, T.float32(-1) * A[t, d + 4], A[t, d - 4]) * T.sin(T.Cast("float32", t) / T.pow(T.float32(100), T.Cast("float32", d % 4 * 2) / T.float32(8)))
        """,
        lambda a: _rope(a),
    ),
]


def _rope(a: np.ndarray) -> np.ndarray:
    angle = np.arange(5)[:, None] / 100.0 ** (np.arange(8) % 4 * 2 / 8)
    turned = np.concatenate([-a[:, 4:], a[:, :4]], 1)
    return (a * np.cos(angle) + turned * np.sin(angle)).astype("float32")


CASES = [*FLOATS, *INTEGERS, *LAYOUTS]
