"""``R.emit_te``: functions of te called inside of TVMScript."""

from __future__ import annotations

import textwrap

import numpy as np
import pytest

from relax2xla import VirtualMachine, build, ir, tir, topi
from relax2xla.builder import BlockBuilder
from relax2xla.errors import BuilderError, DiagnosticError
from relax2xla.script import from_source
from relax2xla.script import ir as I
from relax2xla.script import relax as R
from relax2xla.script.ir_builder import IRBuilder
from relax2xla.script.ir_builder import ir as BI
from relax2xla.script.ir_builder import relax as BR
from relax2xla.te import Tensor

VEC = ir.TensorStructInfo((3,), "float32")


def twice(x: Tensor) -> Tensor:
    return topi.add(x, x)


def test_functions_join_the_module() -> None:
    @I.ir_module
    class Module:
        @R.function
        def add(x: R.Tensor((3,), "float32")):
            a = R.emit_te(topi.add, x, x)
            b = R.emit_te(twice, a)
            c = R.emit_te(twice, b)
            d = R.emit_te(lambda y: y * 3.0, c, primfunc_name_hint="scale")
            return d

    bb, x = BlockBuilder(), ir.Var("x", VEC)
    # The names of the text are taken before functions join it.
    bb._global_names.reserve("add")  # pyright: ignore[reportPrivateUsage]
    with bb.function("main", [x]):
        a = bb.emit_te(topi.add, x, x)
        c = bb.emit_te(twice, bb.emit_te(twice, a))
        bb.emit_func_output(bb.emit_te(lambda y: y * 3.0, c, primfunc_name_hint="scale"))
    same = bb.get()
    for gvar, func in Module.items():
        if isinstance(func, tir.PrimFunc):
            ir.assert_structural_equal(func, same[gvar.name_hint])
    assert sorted(g.name_hint for g in Module.functions) == ["add", "add1", "scale", "twice"]
    ir.assert_structural_equal(from_source(Module.script()), Module)
    made = VirtualMachine(build(Module))["add"](np.arange(3, dtype=np.float32))
    np.testing.assert_array_equal(np.asarray(made), np.arange(3, dtype=np.float32) * 24)


def test_in_an_ir_builder() -> None:
    with IRBuilder() as builder, BI.ir_module(), BR.function():
        BR.func_name("main")
        x = BR.arg("x", VEC)
        y = BR.emit(BR.emit_te(twice, x))
        BR.func_ret_value(BR.emit(R.emit_te(twice, y)))
    mod = builder.get()
    assert isinstance(mod, ir.IRModule)
    assert sorted(g.name_hint for g in mod.functions) == ["main", "twice"]
    made = VirtualMachine(build(mod))["main"](np.ones(3, np.float32))
    np.testing.assert_array_equal(np.asarray(made), np.full(3, 4, np.float32))
    with pytest.raises(BuilderError, match=r"I\.ir_module"), IRBuilder(), BR.function():
        BR.emit_te(twice, x)


MODULE = """
@I.ir_module
class M:
    @R.function
    def main(x: R.Tensor((3,), "float32")):
        y = {}
        return y
"""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (MODULE.format("R.emit_te(f, x)"), "runs nothing but functions of relax2xla.topi"),
        (MODULE.format("R.emit_te(x)"), "takes a function over tensors of te first"),
        (MODULE.format("R.emit_te()"), "takes a function over tensors of te first"),
        (MODULE.format("R.emit_te(add, x, x, x, x, x)"), "add"),
        (
            textwrap.dedent(MODULE[MODULE.index("    @R") :]).format("R.emit_te(add, x, x)"),
            "write it in a class below @I.ir_module",
        ),
    ],
)
def test_errors(text: str, message: str) -> None:
    with pytest.raises(DiagnosticError, match=message):
        from_source(text, {"f": twice, "add": topi.add})


def test_a_text_may_call_topi() -> None:
    mod = from_source(MODULE.format("R.emit_te(add, x, x)"), {"add": topi.add})
    assert isinstance(mod, ir.IRModule)
    assert "add" in mod
