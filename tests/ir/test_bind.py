"""bind_params and bind_symbolic_vars."""

from __future__ import annotations

import numpy as np
import pytest

from relax2xla import op, tir
from relax2xla.analysis import check_well_formed
from relax2xla.errors import TVMError
from relax2xla.ir import Constant, Function, IRModule, TensorStructInfo, TupleStructInfo, Var, const
from relax2xla.script import from_source

n, m = tir.Var("n"), tir.Var("m")


def func() -> Function:
    x, w = Var("x", TensorStructInfo((n, m))), Var("w", TensorStructInfo((n, m)))
    from relax2xla.builder import BlockBuilder

    return BlockBuilder().normalize(Function([x, w], op.add(x, w)))  # type: ignore[return-value]


@pytest.mark.parametrize("key", ["w", 1])
@pytest.mark.parametrize("value", [np.ones((2, 3), "float32"), const(np.ones((2, 3), "float32"))])
def test_bind_params(key: str | int, value: object) -> None:
    f = func()
    new = f.bind_params({f.params[key] if isinstance(key, int) else key: value})
    check_well_formed(new)
    assert [p.name_hint for p in new.params] == ["x"]
    # The value's shape decides the other parameter's.
    assert new.params[0].struct_info == TensorStructInfo((2, 3))
    call = new.body.blocks[0].bindings[0].value
    assert isinstance(call.args[1], Constant)  # type: ignore[attr-defined]
    assert new.ret_struct_info == TensorStructInfo((2, 3))
    assert len(f.params) == 2


def test_bind_torch_tensors() -> None:
    torch = pytest.importorskip("torch")
    new = func().bind_params({"w": torch.ones(2, 3, requires_grad=True)})
    assert new.params[0].struct_info == TensorStructInfo((2, 3))


@pytest.mark.parametrize(
    ("binding", "message"),
    [
        ({"nope": 1}, "the parameter 'nope' must occur exactly once, but occurs not at all"),
        ({Var("x"): 1}, "the function has no parameter x; it has x, w"),
        ({"w": np.ones((2, 3))}, "its value has dtype float64, expected float32"),
        ({"w": np.ones(2, "float32")}, "its value has ndim 1, expected 2"),
    ],
)
def test_bind_params_errors(binding: dict[object, object], message: str) -> None:
    with pytest.raises(TVMError, match=message):
        func().bind_params(binding)  # type: ignore[arg-type]


def test_bind_params_errors_between_values() -> None:
    one, two = np.ones((2, 3), "float32"), np.ones((2, 4), "float32")
    with pytest.raises(TVMError, match=r"4 in dimension 1, expected 3 \(m\)"):
        func().bind_params({"x": one, "w": two})
    x = Var("x", TensorStructInfo((n,)))
    twice = Function([x, Var("x", TensorStructInfo((n,)))], x)
    with pytest.raises(TVMError, match="'x' must occur exactly once, but occurs 2 times"):
        twice.bind_params({"x": one})


def test_bind_symbolic_vars() -> None:
    new = func().bind_symbolic_vars({"n": 3, m: m + 1})
    assert [p.struct_info for p in new.params] == [TensorStructInfo((3, m + 1))] * 2
    assert new.ret_struct_info == TensorStructInfo((3, m + 1))
    with pytest.raises(TVMError, match="'k' must occur exactly once, but occurs not at all"):
        func().bind_symbolic_vars({"k": 1})
    with pytest.raises(TVMError, match="no symbolic variable k; it has n, m"):
        func().bind_symbolic_vars({tir.Var("k"): 1})
    x = Var("x", TensorStructInfo((n, tir.Var("n"))))
    with pytest.raises(TVMError, match="'n' must occur exactly once, but occurs 2 times"):
        Function([x], x).bind_symbolic_vars({"n": 1})


def test_bind_a_tuple() -> None:
    t = Var("t", TupleStructInfo([TensorStructInfo((n,)), TensorStructInfo((), "int32")]))
    new = Function([t], t).bind_params({"t": (np.ones(3, "float32"), 1)})
    assert new.params == ()
    assert IRModule({"main": new})["main"].struct_info.ret == TupleStructInfo(
        [TensorStructInfo((3,)), TensorStructInfo((), "int32")]
    )


def test_what_is_said_of_a_bound_parameter_goes_with_it() -> None:
    said = func().with_attr(
        "arg_attrs", {p.name_hint: {"k": i} for i, p in enumerate(func().params)}
    )
    first, second = (p.name_hint for p in said.params)
    new = said.bind_params({first: np.ones((2, 3), "float32")})
    assert dict(new.attrs["arg_attrs"]) == {second: {"k": 1}}


def test_bound_values_say_more_than_parameters() -> None:
    func = from_source(
        """
@R.function
def main(x: R.Tensor("float32", ndim=1)):
    y = x
    z: R.Tensor("float32") = R.add(y, y)
    return y
"""
    )
    assert isinstance(func, Function)
    bound = func.bind_params({"x": np.zeros(4, "float32")})
    y, z = (b.var.struct_info for b in bound.body.blocks[0].bindings)
    assert y == TensorStructInfo((4,), "float32") == bound.ret_struct_info
    assert z == TensorStructInfo((4,), "float32")  # as in TVM, more than the user declares
