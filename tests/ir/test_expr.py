"""Expressions: constants, conversions, tuples, modules."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import relax2xla
from relax2xla import ir, op, tir
from relax2xla.analysis import check_well_formed
from relax2xla.errors import StructInfoError, TVMError
from relax2xla.ir import (
    Attrs,
    Call,
    Constant,
    FuncStructInfo,
    Function,
    GlobalVar,
    If,
    IRModule,
    ObjectStructInfo,
    PrimStructInfo,
    PrimValue,
    ShapeExpr,
    ShapeStructInfo,
    StringImm,
    TensorStructInfo,
    TensorType,
    Tuple,
    TupleGetItem,
    TupleStructInfo,
    Var,
    const,
    convert_to_expr,
    extern,
    get_shape_of,
)
from relax2xla.ir.op import is_op
from relax2xla.script import from_source

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
    assert isinstance(convert_to_expr(1), PrimValue)
    for bad in (None, np.ones(2), tir.StringImm("a")):
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
    mod["p"] = tir.PrimFunc([], tir.Evaluate(tir.IntImm("int32", 0)))
    assert list(mod.relax_functions()) == [gvar]
    copy = mod.clone()
    del mod["p"]
    assert "p" in copy
    assert "p" not in mod
    assert mod.with_attr("a", 1).get_attr("a") == 1
    assert IRModule.from_expr(f.with_attr("global_symbol", "g"))["g"].params == (x,)


def test_shapes_that_are_not_known() -> None:
    """The shape as a variable if there is one, else a call that asks when the program runs."""
    held = Var("s", ShapeStructInfo(ndim=2))
    assert get_shape_of(Var("x", TensorStructInfo(held, "float32"))) is held
    asked = get_shape_of(Var("x", TensorStructInfo(None, "float32", ndim=2)))
    assert is_op(asked, "relax.shape_of")
    assert asked.struct_info == ShapeStructInfo(ndim=2)


def test_extern() -> None:
    f = extern("f")
    assert f.global_symbol == "f"
    assert f.struct_info == FuncStructInfo.opaque_func(ret=ObjectStructInfo(), purity=False)
    info = FuncStructInfo([INFO], INFO)
    assert extern("f", info).struct_info is info
    assert Call(extern("f", info), [Var("x", INFO)]).struct_info == INFO


def test_functions_without_a_body() -> None:
    x = Var("x", INFO)
    f = Function.create_empty([x], INFO, is_pure=False, attrs={"a": 1})
    assert f.struct_info == FuncStructInfo([INFO], INFO, purity=False)
    assert f.ret_struct_info == INFO
    assert f.attrs == {"a": 1}


def test_same_as_is_structural_and_is_base_of_goes_one_way() -> None:
    known, rank = TensorStructInfo((2, 3)), TensorStructInfo(ndim=2)
    assert known.same_as(TensorStructInfo((2, 3)))
    assert not known.same_as(rank)
    assert rank.is_base_of(known)
    assert not known.is_base_of(rank)
    assert TensorStructInfo().is_base_of(rank)
    assert not rank.is_base_of(TensorStructInfo())
    for info in (known, rank, FuncStructInfo([known], rank)):
        assert ObjectStructInfo().is_base_of(info)
        assert not info.is_base_of(ObjectStructInfo())


def test_scalars_are_constants_of_rank_0() -> None:
    for value in (True, 1, 2.5):
        assert const(value).struct_info.ndim == 0  # type: ignore[attr-defined]


def test_branches_have_what_both_have() -> None:
    c, x = Var("c", TensorStructInfo((), "bool")), Var("x", INFO)
    y = Var("y", TensorStructInfo((4, 3)))
    assert If(c, x, x).struct_info == INFO
    assert If(c, x, y).struct_info == TensorStructInfo(ndim=2)
    assert If(c, Tuple([x, y]), Tuple([x, x])).struct_info == TupleStructInfo(
        [INFO, TensorStructInfo(ndim=2)]
    )
    assert If(c, x, Tuple([x])).struct_info == ObjectStructInfo()


PROGRAMS = """
from relax2xla.script import ir as I, relax as R, tir as T
@I.ir_module
class Module:
    @R.function
    def square(x: R.Object) -> R.Tensor(ndim=2, dtype="float32"):
        n = T.int64()
        y = R.match_cast(x, R.Tensor((n, n), "float32"))
        return y
    @R.function
    def both(x: R.Tensor(ndim=1, dtype="float32"), y: R.Tensor(ndim=1, dtype="float32")) -> R.Shape:
        n = T.int64()
        a = R.match_cast(x, R.Tensor((n,), "float32"))
        b = R.match_cast(y, R.Tensor((n + 1,), "float32"))
        return R.shape([n, n + 1])
    @R.function
    def tuples(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
        t = ((x, (x, x)), (R.sin(x),))
        a = t[0]
        b = a[1]
        c = b[1]
        d = t[1]
        e = d[0]
        f = R.add(c, e)
        return f
    @R.function
    def closure(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
        @R.function
        def inner(y: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
            z = R.add(x, y)
            return z
        w = inner(R.sin(x))
        return w
    @R.function
    def factorial(n: R.Tensor((), "int64")) -> R.Tensor((), "int64"):
        cls = Module
        cond = R.less(n, R.const(2, "int64"))
        if cond:
            r = R.const(1, "int64")
        else:
            m = R.subtract(n, R.const(1, "int64"))
            f = cls.factorial(m)
            r = R.multiply(n, f)
        return r
"""


def test_casts_closures_recursion_and_tuples_run() -> None:
    """A symbol is bound where it first occurs and asserted everywhere else."""
    mod = from_source(PROGRAMS)
    check_well_formed(mod)
    vm = relax2xla.VirtualMachine(relax2xla.build(mod), relax2xla.cpu())
    ones = np.ones
    assert vm["square"](ones((3, 3), "float32")).shape == (3, 3)
    assert tuple(vm["both"](ones(3, "float32"), ones(4, "float32"))) == (3, 4)
    for name, args, reason in [
        ("square", [ones((3, 4), "float32")], "4"),
        ("square", [ones(3, "float32")], "ndim|rank|axes|dimensions"),
        ("square", [ones((3, 3), "int8")], "int8"),
        ("both", [ones(3, "float32"), ones(3, "float32")], r"n \+ 1|4"),
    ]:
        with pytest.raises(TVMError, match=reason):
            vm[name](*args)
    x = np.array([0.5, 1], "float32")
    np.testing.assert_allclose(vm["tuples"](x), x + np.sin(x), rtol=1e-6)
    np.testing.assert_allclose(vm["closure"](x), x + np.sin(x), rtol=1e-6)
    assert int(vm["factorial"](np.int64(20))) == math.factorial(20)


def test_types_and_identity() -> None:
    x = Var("x", TensorStructInfo((2, 3), "int8"))
    assert x.checked_type == TensorType(2, "int8") == x._checked_type_
    assert Var("y")._checked_type_ is None
    assert x.same_as(x)
    assert not x.same_as(Var("x", x.struct_info))


def test_indices_out_of_range() -> None:
    with pytest.raises(IndexError, match="Tuple index out of range"):
        Tuple([Var("a"), Var("b")])[2]
    with pytest.raises(IndexError, match="ShapeExpr index out of range"):
        ShapeExpr([1, 2])[-3]


def test_struct_info_of_the_wrong_kind() -> None:
    with pytest.raises(TVMError, match="of one scalar"):
        PrimStructInfo([1])
    with pytest.raises(TVMError, match="list of struct infos"):
        TupleStructInfo(1)  # pyright: ignore[reportArgumentType]


def test_programs_print_as_scripts_and_show_briefly() -> None:
    """``print(func)`` is TVM's text; what stands in an error message is one line."""
    x = Var("x", TensorStructInfo((2,), "float32"))
    y = Var("y", x.struct_info)
    block = ir.DataflowBlock([ir.VarBinding(y, op.nn.relu(x))])
    func = Function([x], ir.SeqExpr([block], y))
    for node in (func, func.body, block):
        assert str(node) == node.script()
        assert "R.nn.relu(x)" in str(node)
        assert "\n" not in repr(node)
    assert repr(block) == "<DataflowBlock of 1 binding>"
    assert repr(func.body) == "<1 binding, then y>"
    branch = ir.SeqExpr([], x)
    assert repr(ir.If(Var("c", TensorStructInfo((), "bool")), branch, branch)) == "<if c>"
