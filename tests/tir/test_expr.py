"""Nodes and operators: what folds, what compares equal, what is refused."""

from __future__ import annotations

import math
import pickle

import pytest

from relax2xla import tir
from relax2xla.errors import DiagnosticError
from relax2xla.script import from_source
from relax2xla.tir.convert import as_expr

n, m = tir.Var("n"), tir.Var("m")
i32, f32 = tir.Var("i", "int32"), tir.Var("f", "float32")


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        (n + 0, "n"), (0 + n, "n"), (n - 0, "n"), (n * 1, "n"), (1 * n, "n"), (n // 1, "n"),
        (n * 0, "0"), (0 * n, "0"), (n % 1, "0"), (0 // n, "0"), (0 % n, "0"),
        (n - n, "n - n"), (0 - n, "0 - n"), (-n, "n * -1"), (n + 1 + 1, "n + 1 + 1"),
        (tir.const(7) // -2, "-4"), (tir.const(7) % -2, "-1"),
        (tir.truncdiv(-7, 2), "-3"), (tir.truncmod(-7, 2), "-1"),
        (tir.ceildiv(n, 2), "(n + 2 - 1) // 2"), (tir.ceildiv(7, 2), "4"),
        (tir.max(n, n), "n"), (tir.max(2, 3), "3"), (tir.min(n, 3), "T.min(n, 3)"),
        (n < 3, "n < 3"), (tir.const(2) < 3, "T.bool(True)"), (n.equal(n), "n == n"),
        (tir.if_then_else(True, n, m), "n"), (tir.all(n < 3, True), "n < 3"),
        (tir.any(n < 3, m < 4), "n < 3 or m < 4"), (n << 2, "T.shift_left(n, 2)"),
        (~n, "T.bitwise_not(n)"), (tir.const(6) & 3, "2"), (tir.const(1) << 4, "16"),
        (n + i32, 'n + T.Cast("int64", i)'), (i32 + 2, "i + T.int32(2)"),
        (n + 1.5, 'T.Cast("float32", n) + T.float32(1.5)'), (f32 / 2, "f / T.float32(2.0)"),
        (i32 + 2**40, 'T.Cast("int64", i) + 1099511627776'),
        (tir.const(3).astype("int32"), "T.int32(3)"), (n.astype("int64"), "n"),
        (tir.const(300).astype("int8"), "T.int8(44)"),
        (tir.const(2.5, "float32"), "T.float32(2.5)"),
    ],
    ids=str,
)  # fmt: skip
def test_operators_fold_what_tvm_folds(expr: tir.PrimExpr, text: str) -> None:
    assert str(expr) == text


def test_functions_of_scalars() -> None:
    """They are te's, which is made of tir."""
    assert str(tir.exp(f32)) == "T.exp(f)"
    word = tir.Var("w", "uint32")
    assert str(tir.bitwise_and(tir.shift_right(word, 4), 15)) == str((word >> 4) & 15)
    with pytest.raises(AttributeError, match=r"'relax2xla\.tir' has no attribute 'nothing'"):
        tir.nothing  # noqa: B018


def test_constructors_do_not_fold() -> None:
    assert str(tir.Add(n, 0)) == "n + 0"
    assert str(tir.Mul(2, n)) == "2 * n"


def test_equality_is_structural_and_variables_are_themselves() -> None:
    assert n + 1 == n + 1
    assert hash(n + 1) == hash(n + 1)
    assert n + 1 != n + 2
    assert n != tir.Var("n")
    assert tir.Var("n") + 1 != n + 1
    assert n + m != m + n
    assert (n * 2, 3) == (n * 2, 3)
    assert {n + 1: "a"}[n + 1] == "a"
    assert n != 2
    assert tir.const(2) == 2
    assert hash(tir.const(2)) == hash(2)
    assert tir.const(2) != tir.const(2, "int32")
    assert tir.EQ(n, m) == n.equal(m)
    assert tir.const(float("nan"), "float32") == tir.const(float("nan"), "float32")


def test_a_symbolic_condition_has_no_truth() -> None:
    with pytest.raises(ValueError, match="cannot decide the truth of the symbolic expression"):
        bool(n < 3)
    assert bool(tir.const(2) < 3)


def test_nodes_are_immutable() -> None:
    with pytest.raises(AttributeError, match="immutable"):
        n.name = "m"  # type: ignore[misc]
    with pytest.raises(AttributeError, match="immutable"):
        del n.name


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda: n / 2, TypeError, "ambiguous"),
        (lambda: n // 0, ZeroDivisionError, "literal 0"),
        (lambda: n % 0, ZeroDivisionError, "literal 0"),
        (lambda: tir.const(1) // 0, ZeroDivisionError, "literal 0"),
        (lambda: f32 // 2, TypeError, "expected integer operands"),
        (lambda: n + "a", TypeError, "got str"),
        (lambda: tir.Add(n, i32), TypeError, "one dtype"),
        (lambda: tir.Not(n), TypeError, "expected a bool operand"),
        (lambda: tir.And(n, m), TypeError, "expected bool operands"),
        (lambda: tir.Select(n, n, m), TypeError, "expected a bool condition"),
        (lambda: tir.IntImm("int8", 300), ValueError, "does not fit int8"),
        (lambda: tir.const(2**62) * 4, ValueError, "does not fit int64"),
        (lambda: tir.IntImm("float32", 1), ValueError, "expected an integer dtype"),
        (lambda: tir.const(1.5, "int64"), ValueError, "not a value of int64"),
        (lambda: tir.Var(3), TypeError, "name must be a str"),
        (lambda: tir.StringImm("a") + n, TypeError, "no arithmetic"),
    ],
)
def test_refused(build: object, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        build()  # type: ignore[operator]


def test_dims() -> None:
    assert type(tir.as_dim(tir.const(3))) is int
    assert tir.as_dim(n) is n
    assert isinstance(tir.as_dim(tir.const(3, "int32")), tir.IntImm)
    assert tir.as_prim_expr(3).dtype == "int64"
    assert tir.as_prim_expr(n) is n
    with pytest.raises(TypeError, match="got str"):
        tir.as_prim_expr("n")  # type: ignore[arg-type]


def test_float_literals_round_to_their_dtype() -> None:
    assert tir.const(0.1, "float32").value == pytest.approx(0.1, abs=1e-8)  # type: ignore[attr-defined]
    assert tir.FloatImm("float32", 0.1).value != 0.1
    assert tir.FloatImm("float64", 0.1).value == 0.1
    assert str(tir.FloatImm("float32", float("inf"))) == 'T.float32("inf")'


@pytest.mark.parametrize(
    ("dtype", "a", "b", "total"),
    [("int8", 127, 1, -128), ("uint32", 1, 2**32 - 1, 0), ("int32", -(2**31), -1, 2**31 - 1)],
)
def test_narrow_literals_wrap(dtype: str, a: int, b: int, total: int) -> None:
    assert tir.Add.make(tir.const(a, dtype), tir.const(b, dtype)) == tir.const(total, dtype)


def test_a_float_literal_does_not_become_infinite() -> None:
    with pytest.raises(ValueError, match=r'would be -inf: write T.float32\("-inf"\)'):
        tir.const(-3.5e38, "float32")
    for value in ("T.float16(70000.0)", "70000.0"):
        with pytest.raises(DiagnosticError, match=r"literal 70000\.0 does not fit float16"):
            from_source(f'@T.prim_func\ndef f(A: T.Buffer((1,), "float16")):\n    A[0] = {value}')
    for value in ("T.float64(1e300)", "1e300", "A[()] * 1e300"):
        func = from_source(f'@T.prim_func\ndef f(A: T.Buffer((), "float64")):\n    A[()] = {value}')
        assert f"T.float64({int(1e300)}.0)" in str(func)
    # What is computed may be.
    assert tir.Mul.make(*[tir.const(3e30, "float32")] * 2) == tir.const(math.inf, "float32")
    assert tir.const(1e39, "float64").astype("float32") == tir.const(math.inf, "float32")


def test_pickle() -> None:
    x, y = pickle.loads(pickle.dumps((n, tir.max(n + 1, 2))))
    assert y == tir.max(x + 1, 2)


def test_prim_func() -> None:
    func = tir.PrimFunc([n], tir.Evaluate(tir.IntImm("int32", 0)), attrs={"global_symbol": "f"})
    assert func.with_attr("tir.noalias", True).attrs == {"global_symbol": "f", "tir.noalias": True}
    assert func.without_attr("global_symbol").attrs == {}
    assert func.params == (n,)
    with pytest.raises(AttributeError, match="with_attr"):
        func.body = ""  # type: ignore[misc]


# What TVM 0.25 gives.
@pytest.mark.parametrize(
    ("a", "b", "result"),
    [
        ("int32", "uint32", "uint32"),
        ("uint32", "int32", "uint32"),
        ("uint32", "int64", "int64"),
        ("uint64", "int32", "uint64"),
        ("uint8", "int8", "uint8"),
        ("bool", "int32", "int32"),
    ],
)
def test_the_dtype_of_signed_and_unsigned(a: str, b: str, result: str):
    assert (tir.Var("a", a) + tir.Var("b", b)).dtype == result


def test_short_names_of_dtypes():
    x = tir.Var("x", "int")
    assert (x + 1).dtype == "int32"
    assert x.astype("float").dtype == "float32"
    assert tir.const(4.0, "float32").astype("int") == tir.const(4, "int32")
    assert tir.const(3, "uint").dtype == "uint32"
    assert tir.FloatImm("float", 0.5).dtype == "float32"


def test_floats_that_only_a_float64_holds():
    x = tir.Var("x", "int32")
    for made in (tir.const(-3.402e39), as_expr(3.402e39), tir.as_prim_expr(3.402e39, "int32")):
        assert made.dtype == "float64"
    assert tir.const(3.402e38).dtype == tir.const(float("inf")).dtype == "float32"
    assert (x * 2.5).dtype == "float32"
