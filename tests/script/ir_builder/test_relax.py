"""IRBuilder against the same programs as TVMScript, and its order of calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import relax2xla
from relax2xla import ir
from relax2xla.analysis import well_formed
from relax2xla.errors import BuilderError, StructInfoError
from relax2xla.ir import assert_structural_equal
from relax2xla.script import from_source
from relax2xla.script import relax as script_r
from relax2xla.script.ir_builder import IRBuilder
from relax2xla.script.ir_builder import ir as I
from relax2xla.script.ir_builder import relax as R

HEAD = (
    "from relax2xla.script import ir as I\n"
    "from relax2xla.script import relax as R\n"
    "from relax2xla.script import tir as T\n"
)
VEC = ir.TensorStructInfo((4,), "float32")


def same(made: Any, text: str) -> None:
    assert_structural_equal(made, from_source(HEAD + text))


def test_function_with_dataflow() -> None:
    with IRBuilder() as builder, R.function():
        R.func_name("main")
        R.func_attr({"k": 1})
        x = R.arg("x", VEC)
        R.func_ret_struct_info(ir.TensorStructInfo(dtype="float32", ndim=1))
        with R.dataflow() as block:
            a = R.emit(R.nn.relu(x))
            y = R.arg("y", VEC)  # a parameter may come late
            b = IRBuilder.name("b", R.emit(R.add(a, y)))
            R.output(b)
        (b,) = block.output_vars
        R.func_ret_value(b)
    func = builder.get()
    same(
        func,
        """
@R.function
def main(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
    R.func_attr({"k": 1})
    with R.dataflow():
        a = R.nn.relu(x)
        b = R.add(a, y)
        R.output(b)
    return b
""",
    )
    assert func.body.body.name_hint == "b"
    assert not isinstance(b, ir.DataflowVar)
    assert well_formed(func)


def test_statements_of_script_work_in_a_builder() -> None:
    with IRBuilder() as builder, R.function():
        script_r.func_name("main")
        x = script_r.arg("x", script_r.Tensor((4,), "float32"))
        with script_r.dataflow() as block:
            script_r.output(script_r.emit(script_r.nn.relu(x)))
        script_r.func_ret_value(block.output_vars[0])
    assert well_formed(builder.get())
    with pytest.raises(TypeError, match=r"R\.emit works only in TVMScript"):
        script_r.emit(x)


def test_bindings() -> None:
    n = relax2xla.tir.Var("n", "int64")
    with IRBuilder() as builder, R.function(is_private=True):
        x = R.arg("x", ir.TensorStructInfo(dtype="float32", ndim=1))
        cast = R.emit_match_cast(x, ir.TensorStructInfo((n,), "float32"))
        mine = ir.Var("mine", ir.TensorStructInfo((n,), "float32"))
        assert R.emit_var_binding(ir.VarBinding(mine, cast)) is mine
        weak = R.emit(R.nn.relu(mine), ir.TensorStructInfo(dtype="float32", ndim=1))
        with pytest.raises(StructInfoError, match="ndim 1, expected 2"):
            R.emit(R.nn.relu(mine), ir.TensorStructInfo(dtype="float32", ndim=2))
        R.func_ret_value((weak, R.shape([n])))
    same(
        builder.get(),
        """
@R.function(private=True)
def main(x: R.Tensor(ndim=1, dtype="float32")):
    n = T.int64()
    cast = R.match_cast(x, R.Tensor((n,), "float32"))
    mine = cast
    weak: R.Tensor(ndim=1, dtype="float32") = R.nn.relu(mine)
    return weak, R.shape([n])
""",
    )


def test_branches_run() -> None:
    with IRBuilder() as builder, I.ir_module(), R.function():
        R.func_name("main")
        c = R.arg("c", ir.TensorStructInfo((), "bool"))
        x = R.arg("x", VEC)
        with R.If(c) as choice:
            with R.Then():
                h = R.emit(R.add(x, x))
                IRBuilder.name("y", R.emit(R.add(h, x)))
            with R.Else():
                IRBuilder.name("y", R.emit(x))
        assert choice.var is not None
        R.func_ret_value(choice.var)
    mod = builder.get()
    same(
        mod,
        """
@I.ir_module
class Module:
    @R.function
    def main(c: R.Tensor((), "bool"), x: R.Tensor((4,), "float32")):
        if c:
            h = R.add(x, x)
            y = R.add(h, x)
        else:
            y = x
        return y
""",
    )
    assert choice.var.name_hint == "y"
    machine = relax2xla.VirtualMachine(relax2xla.build(mod), relax2xla.cpu())
    data = np.arange(4, dtype="float32")
    np.testing.assert_array_equal(machine["main"](np.array(True), data), 3 * data)
    np.testing.assert_array_equal(machine["main"](np.array(False), data), data)


def test_modules() -> None:
    with IRBuilder() as builder, I.ir_module():
        I.module_attrs({"a": 1})
        I.module_set_attr("b", 2)
        I.module_global_infos({"vdevice": [I.vdevice("cpu", 0), I.vdevice("cuda", 0)]})
        assert I.lookup_vdevice("cuda", 0).kind == "cuda"
        assert I.lookup_vdevice("vdevice", 1).kind == "cuda"
        with pytest.raises(BuilderError, match="no cuda:1"):
            I.lookup_vdevice("cuda", 1)
        x = ir.Var("x", VEC)
        helper = I.decl_function("helper", ir.Function.create_empty([x], VEC))
        with R.function():
            R.func_name("main")
            x = R.arg("x", VEC)
            R.func_ret_value(R.emit(helper(x)))
        with R.function(is_private=True):
            R.func_name("helper")
            x = R.arg("x", VEC)
            R.func_ret_value(R.emit(R.nn.relu(x)))
    mod = builder.get()
    assert dict(mod.attrs) == {"a": 1, "b": 2}
    assert [d.kind for d in mod.global_infos["vdevice"]] == ["cpu", "cuda"]
    assert well_formed(mod)
    assert mod["helper"].body.blocks[0].bindings[0].value.op.name == "relax.nn.relu"


def _after_output() -> None:
    with R.function(), R.dataflow():
        R.output(R.emit(R.const(1.0, "float32")))
        R.emit(R.const(1.0, "float32"))


def _no_result() -> None:
    with R.function():
        R.arg("x", VEC)


def _local_result() -> None:
    with R.function():
        x = R.arg("x", VEC)
        with R.dataflow():
            a = R.emit(R.nn.relu(x))
            R.output(a)
        R.func_ret_value(a)


def _nested_blocks() -> None:
    with R.function(), R.dataflow(), R.dataflow():
        pass


def _no_else() -> None:
    with R.function():
        c = R.arg("c", ir.TensorStructInfo((), "bool"))
        with R.If(c), R.Then():
            R.emit(R.const(1.0, "float32"))


def _other_names() -> None:
    with R.function():
        c = R.arg("c", ir.TensorStructInfo((), "bool"))
        with R.If(c):
            with R.Then():
                IRBuilder.name("a", R.emit(R.const(1.0, "float32")))
            with R.Else():
                IRBuilder.name("b", R.emit(R.const(1.0, "float32")))


def _foreign_output() -> None:
    with R.function():
        x = R.arg("x", VEC)
        with R.dataflow():
            R.output(x)


def _wrong_result() -> None:
    with R.function():
        R.func_ret_struct_info(ir.TensorStructInfo((5,), "float32"))
        R.func_ret_value(R.arg("x", VEC))


def _nameless() -> None:
    with I.ir_module(), R.function():
        R.func_ret_value(R.arg("x", VEC))


def _two_functions() -> None:
    for _ in range(2):
        with R.function():
            R.func_ret_value(R.arg("x", VEC))


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (_after_output, r"after R\.output"),
        (_no_result, r"without R\.func_ret_value"),
        (_local_result, "only in its dataflow block"),
        (_nested_blocks, "do not nest"),
        (_no_else, r"without R\.Else"),
        (_other_names, "'a', the other 'b'"),
        (_foreign_output, "not bound in this dataflow block"),
        (_wrong_result, "is declared as"),
        (_nameless, "needs a name"),
        (_two_functions, "one function or module"),
    ],
)
def test_out_of_order(build: Callable[[], None], says: str) -> None:
    with IRBuilder(), pytest.raises((BuilderError, StructInfoError), match=says):
        build()


def test_without_a_builder() -> None:
    with pytest.raises(ValueError, match="no IRBuilder is open"):  # as in TVM
        R.arg("x", VEC)
    with IRBuilder() as builder, pytest.raises(BuilderError, match=r"outside of a R\.function"):
        R.arg("x", VEC)
    with pytest.raises(BuilderError, match="nothing has been built"):
        builder.get()
