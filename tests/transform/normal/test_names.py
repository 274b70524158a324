"""NormalizeGlobalVar, AttachGlobalSymbol, BindSymbolicVars."""

from __future__ import annotations

import pytest

from relax2xla import tir
from relax2xla.analysis import check_well_formed, well_formed
from relax2xla.errors import BuilderError, TransformError, TVMError
from relax2xla.ir import (
    BindingBlock,
    Call,
    Function,
    GlobalVar,
    IRModule,
    SeqExpr,
    TensorStructInfo,
    Var,
    VarBinding,
)
from relax2xla.script import from_source
from relax2xla.tir import PrimFunc
from relax2xla.transform import AttachGlobalSymbol, BindSymbolicVars, NormalizeGlobalVar

from .compare import becomes, module, stays

INFO = TensorStructInfo((2,), "float32")


def identity(symbol: str | None = None) -> Function:
    x = Var("x", INFO)
    return Function([x], x, attrs={"global_symbol": symbol} if symbol else None)


def caller(gvar: GlobalVar, symbol: str) -> Function:
    x, y = Var("x", INFO), Var("y", INFO)
    body = SeqExpr([BindingBlock([VarBinding(y, Call(gvar, [x]))])], y)
    return Function([x], body, attrs={"global_symbol": symbol})


def test_a_public_function_takes_its_name() -> None:
    private = GlobalVar("f", identity().struct_info)
    mod = IRModule({private: identity(), GlobalVar("other"): caller(private, "f")})
    new = NormalizeGlobalVar()(mod)
    assert [g.name_hint for g in new] == ["f1", "f"]
    call = new["f"].body.blocks[0].bindings[0].value
    assert call.op is new.get_global_var("f1")
    assert NormalizeGlobalVar()(new) is new
    twice = IRModule({"a": identity("f"), "b": identity("f")})
    with pytest.raises(BuilderError, match="two functions have the global_symbol 'f'"):
        NormalizeGlobalVar()(twice)


def test_what_a_renamed_function_gives_is_inferred_anew() -> None:
    mod = from_source(
        "@I.ir_module(check_well_formed=False)\n"
        "class Module:\n"
        "    @R.function(private=True)\n"
        "    def f() -> R.Tensor((1,), 'int32'):\n"
        "        return R.const([0], 'int32')\n"
        "    @R.function\n"
        "    def g():\n"
        "        R.func_attr({'global_symbol': 'f'})\n"
        "        gv: R.Tensor((), 'int32') = Module.f()\n"
        "        return gv\n"
    )
    assert isinstance(mod, IRModule)
    assert not well_formed(mod)
    new = NormalizeGlobalVar()(mod)
    check_well_formed(new)
    assert new["f"].ret_struct_info == TensorStructInfo((1,), "int32")


def test_every_function_is_public() -> None:
    private = GlobalVar("f", identity().struct_info)
    mod = IRModule({private: identity(), GlobalVar("main"): caller(private, "x")})
    new = AttachGlobalSymbol()(mod)
    assert [f.attrs["global_symbol"] for f in new.values()] == ["f", "main"]
    assert AttachGlobalSymbol()(new) is new


def test_loops_have_a_prefix() -> None:
    loop = PrimFunc((), tir.Evaluate(tir.const(0, "int32")))
    mod = IRModule({"loop": loop, "main": identity("main")}, {"system_lib_prefix": "lib_"})
    new = AttachGlobalSymbol()(mod)
    assert new["lib_loop"].attrs["global_symbol"] == "lib_loop"
    mod = IRModule({"loop": loop, "lib_loop": identity()}, {"system_lib_prefix": "lib_"})
    with pytest.raises(TransformError, match="'lib_loop', which is the name of another"):
        AttachGlobalSymbol()(mod)


BOTH = """
@R.function
def f(x: R.Tensor(("n", "m"), "float32")):
    return x

@R.function
def g(x: R.Tensor(("n",), "float32")):
    return R.add(x, x)
"""


def test_sizes_by_name() -> None:
    expected = BOTH.replace('"n"', "3")
    becomes(BindSymbolicVars({"n": 3}), BOTH, expected)
    becomes(BindSymbolicVars({"n": 3}, "g"), BOTH, BOTH.replace('(("n",)', "((3,)"))


def test_sizes_that_no_function_has() -> None:
    mod = module(BOTH)
    with pytest.raises(TVMError, match="no function has the symbolic variables k"):
        BindSymbolicVars({"k": 1})(mod)
    with pytest.raises(TVMError, match="'g' has not the symbolic variables m"):
        BindSymbolicVars({"m": 1}, "g")(mod)
    n = mod["g"].params[0].struct_info.dims[0]
    with pytest.raises(TVMError, match="is bound twice"):
        BindSymbolicVars({"n": 1, n: 1}, "g")(mod)
    with pytest.raises(TVMError, match="not defined by any parameter"):
        BindSymbolicVars({n: tir.Var("k") * 2})(mod)
    stays(BindSymbolicVars({}), mod)
