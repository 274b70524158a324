"""relax2xla.utils."""

from __future__ import annotations

import pytest

import relax2xla as rx
from relax2xla import ir, tir


def test_copies_have_variables_of_their_own() -> None:
    n = tir.Var("n")
    x = rx.Var("x", ir.TensorStructInfo((n,), "float32"))
    func = ir.Function([x], ir.Tuple([x]), attrs={"global_symbol": "f"})
    copy = rx.utils.copy_with_new_vars(func)
    ir.assert_structural_equal(copy, func)
    assert copy.params[0] is not x
    assert copy.params[0].struct_info.shape[0] is not n
    assert rx.utils.convert_to_expr("a").value == "a"


def test_arguments_arrive_as_expressions() -> None:
    def kinds(arg: ir.Expr, *args: ir.Expr | None, **kwargs: list[ir.Expr]) -> list[object]:
        return [type(x).__name__ for x in (arg, *args)] + [
            [type(y).__name__ for y in x] for x in kwargs.values()
        ]

    call = rx.utils.args_converter.auto(kinds)
    assert call(1, 2.5, None, "a", (1, 2), tir.Var("n"), other=(1, "b")) == [
        "PrimValue", "PrimValue", "NoneType", "StringImm", "Tuple", "PrimValue",
        ["PrimValue", "StringImm"],
    ]  # fmt: skip
    assert call(()) == ["Tuple"]
    named = rx.utils.args_converter.to_expr("arg")(kinds)
    assert named(1, 2) == ["PrimValue", "int"]
    listed = rx.utils.args_converter.to_list_expr("args")(kinds)
    assert listed("x", [1]) == ["str", "list"]
    with pytest.raises(TypeError, match="the argument args of kinds: expected a list or a tuple"):
        listed("x", 1)
    with pytest.raises(TypeError, match="the argument arg of kinds: cannot convert dict"):
        call({})
    with pytest.raises(TypeError, match="kinds has no parameter nothing"):
        rx.utils.args_converter.to_expr("nothing")(kinds)
    assert call.__name__ == "kinds"


def test_numbers_become_values() -> None:
    assert rx.utils.convert_to_expr(3).struct_info.dtype == "int64"
    assert rx.utils.convert_to_expr(1.5).struct_info.dtype == "float64"
