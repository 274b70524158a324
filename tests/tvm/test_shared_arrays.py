"""Arrays of ``tvm.nd`` are memory that packed functions get themselves, and may write into."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relax2xla as rx
from relax2xla.errors import ArgumentTypeError, CallError
from relax2xla.runtime import ShapeTuple
from relax2xla.script import from_source
from relax2xla.tvm.runtime.arrays import array

WRITES = """
@R.function
def main(x: R.Tensor((3,), "float32"), y: R.Tensor((3,), "float32")):
    z = R.call_pure_packed("test.shared.write", x, y, sinfo_args=R.Tensor((3,), "float32"))
    return {}
"""


def machine(text: str) -> rx.VirtualMachine:
    return rx.VirtualMachine(rx.build(from_source(text)))


def write(source: Any, target: Any) -> None:
    target[:] = np.asarray(source) * 2


def test_a_packed_function_writes_into_the_callers_array() -> None:
    rx.register_func("test.shared.write", write, override=True)
    x, y = array(np.arange(3, dtype="float32")), array(np.zeros(3, "float32"))
    assert machine(WRITES.format("y"))["main"](x, y) is y
    np.testing.assert_array_equal(y.numpy(), [0, 2, 4])


def test_what_a_program_computes_of_such_an_array_is_its_own() -> None:
    rx.register_func("test.shared.write", write, override=True)
    x, y = array(np.ones(3, "float32")), array(np.zeros(3, "float32"))
    text = WRITES.format("w").replace("    return", "    w = R.add(x, x)\n    return")
    result = machine(text)["main"](x, y)
    x[:] = 7
    np.testing.assert_array_equal(np.asarray(result), [2, 2, 2])


def test_what_is_changed_in_its_place_is_the_callers_array() -> None:
    def add(a: Any, b: Any) -> Any:
        a.copyfrom(a.numpy() + b.numpy())
        return [a, array(2 * a.numpy())]

    rx.register_func("test.shared.add", add, override=True)
    text = """
@R.function
def main(x: R.Tensor((3,), "float32"), y: R.Tensor((3,), "float32")):
    z = R.call_inplace_packed("test.shared.add", x, y, inplace_indices=[0, -1],
        sinfo_args=[R.Tensor((3,), "float32"), R.Tensor((3,), "float32")])
    return z
"""
    x, y = array(np.ones(3, "float32")), array(np.full(3, 2, "float32"))
    changed, new = machine(text)["main"](x, y)
    assert changed is x
    np.testing.assert_array_equal(x.numpy(), [3, 3, 3])
    np.testing.assert_array_equal(np.asarray(new), [6, 6, 6])


IN_PLACE = """
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def both(a: T.handle, b: T.handle, c: T.handle):
        A = T.match_buffer(a, (3,), "float32")
        B = T.match_buffer(b, (3,), "float32")
        C = T.match_buffer(c, (3,), "float32")
        for i in range(3):
            with T.block("both"):
                vi = T.axis.spatial(3, i)
                A[vi] = A[vi] + B[vi]
                C[vi] = A[vi] * 2.0

    @R.function(private=True)
    def inner(y: R.Tensor((3,), "float32"), x: R.Tensor((3,), "float32")):
        cls = Module
        z = R.call_tir_inplace(cls.both, (x, y), [0, -1], [R.Tensor((3,), "float32")] * 2)
        return z

    @R.function(pure=False)
    def main(x: R.Tensor((3,), "float32"), y: R.Tensor((3,), "float32")):
        cls = Module
        z = cls.inner(y, x)
        w = z[0]
        {}
        return (z[1], w)
"""


def in_place(middle: str) -> rx.VMExecutable:
    return rx.build(from_source(IN_PLACE.replace("        {}\n", middle)))


@pytest.mark.parametrize("saved", [False, True])
@pytest.mark.parametrize(
    "middle", ["", '        R.call_packed("test.shared.nothing", y, sinfo_args=R.Tuple())\n']
)
def test_a_result_in_place_is_the_callers_array(middle: str, saved: bool, tmp_path: Path) -> None:
    rx.register_func("test.shared.nothing", lambda y: None, override=True)
    executable = in_place(middle)
    if saved:
        executable.export_library(tmp_path / "model.r2x")
        executable = rx.load_module(tmp_path / "model.r2x")
    vm = rx.VirtualMachine(executable)
    x, y = array(np.ones(3, "float32")), array(np.full(3, 2, "float32"))
    double, summed = vm["main"](x, y)
    assert summed is x
    assert double is not y
    np.testing.assert_array_equal(x.numpy(), [3, 3, 3])
    np.testing.assert_array_equal(y.numpy(), [2, 2, 2])
    np.testing.assert_array_equal(np.asarray(double), [6, 6, 6])
    vm.set_input("main", y=y, x=x)
    vm.invoke_stateful("main")
    assert vm.get_outputs("main")[1] is x
    np.testing.assert_array_equal(x.numpy(), [5, 5, 5])


def test_other_arrays_stay_as_they_are_after_a_call_in_place() -> None:
    x, y = np.ones(3, "float32"), array(np.ones(3, "float32"))
    _, summed = rx.VirtualMachine(in_place(""))["main"](x, y)
    np.testing.assert_array_equal(np.asarray(summed), [2, 2, 2])
    np.testing.assert_array_equal(x, 1)


def test_memory_that_would_be_two_results_is_none() -> None:
    text = IN_PLACE.replace("        {}\n", "        v = cls.inner(y, w)\n").replace(
        "z[1], w", "v[0], w"
    )
    x, y = array(np.ones(3, "float32")), array(np.ones(3, "float32"))
    twice, once = rx.VirtualMachine(rx.build(from_source(text)))["main"](x, y)
    np.testing.assert_array_equal(np.asarray(twice), [3, 3, 3])
    np.testing.assert_array_equal(np.asarray(once), [2, 2, 2])


def test_a_result_that_is_read_must_be_what_is_stated() -> None:
    rx.register_func("test.shared.write", write, override=True)
    with pytest.raises(CallError, match=r"result of test\.shared\.write.*NoneType"):
        machine(WRITES.format("z"))["main"](np.ones(3, "f"), array(np.zeros(3, "float32")))


def test_shapes_equal_lists_as_those_of_tvm_do() -> None:
    text = """
@R.function
def main(s: R.Shape(["m", "n"])):
    m = T.int64()
    n = T.int64()
    return R.shape([2 * m, 3 * n])
"""
    made = machine(text)["main"](ShapeTuple([2, 3]))
    assert made == [4, 9]
    assert made == (4, 9)
    assert made != [4, 8]
    assert hash(made) == hash((4, 9))


def test_a_list_that_is_no_such_array_is_of_another_kind() -> None:
    text = """
@R.function
def main(x: R.Tensor(("n", "m"), "float32")):
    return x
"""
    with pytest.raises(ArgumentTypeError, match=r"ndim 1, expected 2.*`x` was given as a list"):
        machine(text)["main"]([1.0])
