"""Expressions: constants, conversions, tuples, modules."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from relax2xla import op, tir
from relax2xla.errors import StructInfoError, TVMError
from relax2xla.ir import (
    Attrs,
    Constant,
    Function,
    GlobalVar,
    IRModule,
    PrimValue,
    ShapeExpr,
    StringImm,
    TensorStructInfo,
    Tuple,
    TupleGetItem,
    Var,
    const,
    convert_to_expr,
    get_shape_of,
)

INFO = TensorStructInfo((2, 3))


@pytest.mark.parametrize(
    ("value", "dtype", "expected"),
    [
        (True, None, "bool"),
        (1, None, "int32"),
        (1.5, None, "float32"),
        (1, "float16", "float16"),
        (1, "bfloat16", "bfloat16"),
        (np.int64(1), None, "int64"),
        (np.float64(1), None, "float64"),
        (np.arange(3), None, "int64"),
        (np.ones(2, "float32"), "int8", "int8"),
        (const(1), "float64", "float64"),
    ],
)
def test_const(value: Any, dtype: str | None, expected: str) -> None:
    made = const(value, dtype)
    assert made.struct_info == TensorStructInfo(np.shape(made.data), expected)
    assert made.data.dtype.name == expected


@pytest.mark.parametrize("value", ["a", None, object(), ["a"]])
def test_const_errors(value: Any) -> None:
    with pytest.raises(ValueError, match="cannot make a constant of"):
        const(value)


def test_an_integer_that_does_not_fit_is_refused() -> None:
    assert const(2**40, "int64").data == 2**40
    with pytest.raises(ValueError, match="1099511627776 does not fit int32; give const a wider"):
        const(2**40)
    with pytest.raises(ValueError, match="-1 does not fit uint8"):
        const(-1, "uint8")


def test_convert_to_expr() -> None:
    x = Var("x", INFO)
    assert convert_to_expr(x) is x
    assert isinstance(convert_to_expr(tir.Var("n")), PrimValue)
    assert isinstance(convert_to_expr("a"), StringImm)
    assert isinstance(convert_to_expr([x, (x,)]), Tuple)
    for bad in (1, 1.0, np.ones(2), tir.StringImm("a")):
        with pytest.raises(TypeError):
            convert_to_expr(bad)


def test_tuples() -> None:
    x = Var("x", INFO)
    t = Var("t", Tuple([x, x]).struct_info)
    assert [e.index for e in t] == [0, 1]  # type: ignore[attr-defined]
    assert t[-1].index == 1  # type: ignore[attr-defined]
    with pytest.raises(IndexError):
        t[2]
    with pytest.raises(StructInfoError, match="index 2 is out of range"):
        TupleGetItem(t, 2)
    with pytest.raises(StructInfoError, match="cannot take field 0 of x"):
        TupleGetItem(x, 0)
    with pytest.raises(TypeError, match=r"Use R\.take"):
        x[0]
    with pytest.raises(TypeError, match="only tuples of known length"):
        list(x)


def test_unknown_struct_info_raises() -> None:
    with pytest.raises(StructInfoError, match="Var x has no struct info yet"):
        _ = Var("x").struct_info


def test_shapes() -> None:
    n = tir.Var("n")
    x = Var("x", TensorStructInfo((n, 2)))
    assert get_shape_of(x) == ShapeExpr([n, 2]) == (n, 2)
    with pytest.raises(StructInfoError, match="needs a tensor"):
        get_shape_of(ShapeExpr([1]))


def test_operators_build_calls() -> None:
    x = Var("x", INFO)
    calls = [x + 1, 1 - x, x * x, x / 2, -x, x < 1, x >= x, x**2]
    names = ["add", "subtract", "multiply", "divide", "negative", "less", "greater_equal", "power"]
    assert [c.op.name for c in calls] == [f"relax.{s}" for s in names]  # type: ignore[attr-defined]
    assert isinstance(calls[1].args[0], Constant)
    assert calls[5].struct_info == TensorStructInfo((2, 3), "bool")


def test_function_attributes_and_copies() -> None:
    x = Var("x", INFO)
    f = Function([x], op.sin(x)).with_attr("a", [1, {"b": 2}])
    assert f.attrs["a"] == (1, Attrs(b=2))
    assert f.without_attr("a").attrs == {}
    assert f.with_attrs({"b": 1}).attrs.b == 1
    with pytest.raises(AttributeError, match="no attribute 'z'; present: a"):
        _ = f.attrs.z
    with pytest.raises(AttributeError, match="immutable"):
        f.attrs.a = 1


def test_modules() -> None:
    x = Var("x", INFO)
    f = Function([x], x)
    mod = IRModule({"main": f})
    gvar = mod.get_global_var("main")
    assert mod["main"] is mod[gvar] is f
    assert gvar.struct_info == f.struct_info
    with pytest.raises(KeyError, match="no function 'nope'; it has main"):
        mod.get_global_var("nope")
    with pytest.raises(TVMError, match="already has another function named 'main'"):
        mod[GlobalVar("main")] = f
    mod["p"] = tir.PrimFunc([], "pass")
    assert list(mod.relax_functions()) == [gvar]
    copy = mod.clone()
    del mod["p"]
    assert "p" in copy
    assert "p" not in mod
    assert mod.with_attr("a", 1).get_attr("a") == 1
    assert IRModule.from_expr(f.with_attr("global_symbol", "g"))["g"].params == (x,)
