"""ExecBuilder: TVM's own small programs, control flow, and mistakes."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import numpy as np
import pytest
import torch

import relax2xla as rx
from relax2xla.errors import BuilderError, BytecodeError, CallError, RunError, TVMError
from tests.work import calls

rx.register_func("eb.add", lambda a, b: a + b)
rx.register_func("eb.identity", lambda *a: a[0] if len(a) == 1 else a)
rx.register_func("eb.nothing", lambda: None)


def run(builder: rx.ExecBuilder, name: str, *args: Any) -> Any:
    return rx.VirtualMachine(builder.get(), rx.cpu())[name](*args)


def test_a_packed_function_on_arrays_and_numbers() -> None:
    ib = rx.ExecBuilder()
    with ib.function("f", num_inputs=2):
        ib.emit_call("eb.add", args=[ib.r(0), ib.r(1)], dst=ib.r(2))
        ib.emit_ret(ib.r(2))
    assert run(ib, "f", 2, 3) == 5
    for made in (np.asarray, torch.from_numpy, jax.device_put):
        result = run(ib, "f", made(np.ones(3, "f")), np.ones(3, "f"))
        assert isinstance(result, jax.Array)
        np.testing.assert_array_equal(np.asarray(result), np.full(3, 2, "f"))


def test_what_packed_functions_get_and_give() -> None:
    ib = rx.ExecBuilder()
    with ib.function("f", num_inputs=1, param_names=["x"]):
        constant = ib.convert_constant(np.arange(3, dtype=np.int64))
        args = [ib.r(0), constant, ib.imm(7), (2, 3), "text", rx.cpu is not None, ib.void_arg()]
        args[5] = ib.vm_state()
        ib.emit_call("eb.identity", args, dst=1)
        ib.emit_ret(ib.r(1))
    vm = rx.VirtualMachine(ib.get())
    x, array, seven, shape, text, state, void = vm["f"](x=np.float32(2.5))
    assert isinstance(x, jax.Array)
    assert float(x) == 2.5
    assert isinstance(array, jax.Array)
    assert array.dtype == np.int64
    assert (seven, shape, text, void) == (7, (2, 3), "text", None)
    assert state is vm


def test_if_and_goto() -> None:
    ib = rx.ExecBuilder()
    with ib.function("pick", num_inputs=3):
        ib.emit_if(ib.r(0), 3)
        ib.emit_call("eb.add", [ib.r(1), ib.r(2)], ib.r(3))
        ib.emit_goto(2)
        ib.emit_call("vm.builtin.mul", [ib.r(1), ib.r(2)], ib.r(3))
        ib.emit_ret(ib.r(3))
    assert run(ib, "pick", True, 3, 4) == 7
    assert run(ib, "pick", False, 3, 4) == 12
    assert run(ib, "pick", np.bool_(False), 3, 4) == 12


def loop(ib: rx.ExecBuilder, callee: str) -> None:
    with ib.function("loop", num_inputs=1):
        ib.emit_call("vm.builtin.copy", [ib.imm(0)], ib.r(1))
        ib.emit_call("vm.builtin.lt", [ib.r(1), ib.r(0)], ib.r(2))
        ib.emit_if(ib.r(2), 4)
        ib.emit_call(callee, [])
        ib.emit_call("vm.builtin.add", [ib.r(1), ib.imm(1)], ib.r(1))
        ib.emit_goto(-4)
        ib.emit_ret(ib.r(1))


def test_an_instruction_calls_nothing_but_its_packed_function() -> None:
    """What it takes in time is in ``benchmarks dispatch``."""
    ib = rx.ExecBuilder()
    loop(ib, "eb.nothing")
    f = rx.VirtualMachine(ib.get())["loop"]
    assert f(10) == 10
    assert calls(lambda: f(2000)) - calls(lambda: f(1000)) == 1000


def test_functions_call_each_other() -> None:
    ib = rx.ExecBuilder()
    ib.declare_function("twice", "vm")
    with ib.function("main", num_inputs=1):
        ib.emit_call("vm.builtin.make_closure", [ib.f("twice"), ib.r(0)], ib.r(1))
        ib.emit_call("vm.builtin.invoke_closure", [ib.r(1)], ib.r(2))
        ib.emit_call("twice", [ib.r(2)], ib.r(2))
        ib.emit_ret(ib.r(2))
    with ib.function("twice", num_inputs=1):
        ib.emit_call("eb.add", [0, 0], 1)
        ib.emit_ret(1)
    assert run(ib, "main", 3) == 12


def test_fibonacci() -> None:
    ib = rx.ExecBuilder()
    with ib.function("fib", num_inputs=1):
        ib.emit_call("vm.builtin.lt", [ib.r(0), ib.imm(2)], ib.r(1))
        ib.emit_if(ib.r(1), 2)
        ib.emit_ret(ib.r(0))
        ib.emit_call("vm.builtin.sub", [ib.r(0), ib.imm(1)], ib.r(2))
        ib.emit_call("fib", [ib.r(2)], ib.r(2))
        ib.emit_call("vm.builtin.sub", [ib.r(0), ib.imm(2)], ib.r(3))
        ib.emit_call("fib", [ib.r(3)], ib.r(3))
        ib.emit_call("vm.builtin.add", [ib.r(2), ib.r(3)], ib.r(4))
        ib.emit_ret(ib.r(4))
    assert run(ib, "fib", 20) == 6765
    with pytest.raises(RunError, match=r"recurses deeper than"):
        run(ib, "fib", 10**6)


def test_a_closure_that_calls_itself() -> None:
    """It takes more of Python's stack, and ends with an error, in other threads too."""
    ib = rx.ExecBuilder()
    with ib.function("go", num_inputs=2, param_names=["n", "itself"]):
        ib.emit_if(ib.r(0), 4)
        ib.emit_call("vm.builtin.sub", args=[ib.r(0), ib.imm(1)], dst=ib.r(2))
        ib.emit_call("vm.builtin.invoke_closure", args=[ib.r(1), ib.r(2), ib.r(1)], dst=ib.r(3))
        ib.emit_ret(ib.r(3))
        ib.emit_ret(ib.r(0))
    with ib.function("main", num_inputs=1, param_names=["n"]):
        ib.emit_call("vm.builtin.make_closure", args=[ib.f("go")], dst=ib.r(1))
        ib.emit_call("go", args=[ib.r(0), ib.r(1)], dst=ib.r(2))
        ib.emit_ret(ib.r(2))
    main = rx.VirtualMachine(ib.get())["main"]

    def deep() -> None:
        assert main(2000) == 0
        with pytest.raises(RunError, match="recurses deeper than"):
            main(10**6)

    limit = sys.getrecursionlimit()
    with ThreadPoolExecutor(1) as pool:
        deep()
        pool.submit(deep).result()
    assert main(2000) == 0
    assert sys.getrecursionlimit() == limit


def test_many_jumps() -> None:
    """Hundreds of basic blocks, every one of them reached."""
    ib = rx.ExecBuilder()
    with ib.function("f", num_inputs=1):
        ib.emit_call("vm.builtin.copy", [ib.imm(0)], ib.r(1))
        for i in range(400):
            ib.emit_call("vm.builtin.gt", [ib.r(0), ib.imm(i)], ib.r(2))
            ib.emit_if(ib.r(2), 2)
            ib.emit_call("vm.builtin.add", [ib.r(1), ib.imm(i)], ib.r(1))
        ib.emit_ret(ib.r(1))
    f = rx.VirtualMachine(ib.get())["f"]
    for n in (0, 1, 7, 399, 1000):
        assert f(n) == sum(range(min(n, 400)))


def test_literals_are_data() -> None:
    """Text and numbers of a program cannot become code of the generated function."""
    ib = rx.ExecBuilder()
    values = ["'); import os #", 'a"b\n\\', float("inf"), -1, True, None]
    with ib.function("f"):
        ib.emit_call("eb.identity", [ib.imm(v) for v in values], ib.r(0))
        ib.emit_ret(ib.r(0))
    assert list(run(ib, "f")) == values


def test_mistakes() -> None:
    ib = rx.ExecBuilder()
    for emit in (
        lambda: ib.emit_ret(ib.r(0)),
        lambda: ib.emit_call("eb.add", []),
        lambda: ib.emit_goto(1),
        lambda: ib.emit_if(ib.r(0), 1),
    ):
        with pytest.raises(ValueError, match="inside a function"):
            emit()
    with pytest.raises(ValueError, match="must be in a register"), ib.function("f"):
        ib.emit_if(ib.imm(1), 2)
    with pytest.raises(ValueError, match="no constant 3"):
        ib.c(3)
    with pytest.raises(ValueError, match="must not be negative"):
        ib.r(-1)
    with pytest.raises(TypeError, match="cannot make a constant of object"):
        ib.convert_constant(object())
    with pytest.raises(ValueError, match="2 inputs, but names"):
        ib.function("f", 2, ["x"])
    with pytest.raises(BuilderError, match="is still open"), ib.function("f"), ib.function("g"):
        pass
    with ib.function("f"):
        ib.emit_ret(ib.imm(1))
    with pytest.raises(BuilderError, match="there is a function 'f' already"):
        ib.function("f")
    with pytest.raises(ValueError, match="one of vm, xla"):
        ib.declare_function("g", "wasm")
    with pytest.raises(BuilderError, match="declared as vm already"):
        ib.declare_function("f", "packed")


def test_an_open_function_has_no_executable() -> None:
    ib = rx.ExecBuilder()
    with ib.function("f"):
        with pytest.raises(BuilderError, match="'f' is still open"):
            ib.get()
        ib.emit_ret(ib.imm(1))
    ib.declare_function("later", "vm")
    with pytest.raises(BytecodeError, match="later has no instructions"):
        ib.get()


def test_unknown_functions_are_errors_when_they_are_linked() -> None:
    ib = rx.ExecBuilder()
    with ib.function("f"):
        ib.emit_call("eb.unknown", [])
        ib.emit_ret(ib.imm(1))
    with pytest.raises(TVMError, match=r"no packed function 'eb.unknown'; register it"):
        run(ib, "f")
    with ib.function("g"):
        ib.emit_call("vm.builtin.unknown", [])
        ib.emit_ret(ib.imm(1))
    with pytest.raises(RunError, match=r"no builtin 'vm.builtin.unknown'"):
        run(ib, "g")


def test_calls_with_wrong_arguments_between_good_ones() -> None:
    ib = rx.ExecBuilder()
    with ib.function("f", num_inputs=2, param_names=["x", "y"]):
        ib.emit_call("eb.add", [ib.r(0), ib.r(1)], ib.r(2))
        ib.emit_ret(ib.r(2))
    f = rx.VirtualMachine(ib.get())["f"]
    assert f(1, y=2) == 3
    with pytest.raises(CallError, match=r"f takes 2 arguments \(x, y\); got 1"):
        f(1)
    with pytest.raises(CallError, match="no parameter 'z'"):
        f(1, z=2)
    with pytest.raises(CallError, match="x given twice"):
        f(1, 2, x=1)
    with pytest.raises(TypeError) as e:
        f(1, "a")
    assert e.value.__notes__ == [
        "  in the VM function f, instruction 0: call eb.add in: %0, %1 dst: %2"
    ]
    assert f(3, 4) == 7
    assert str(f.__signature__) == "(x, y)"


def test_nothing_states_what_parameters_are() -> None:
    ib = rx.ExecBuilder()
    for name, count in (("none", 0), ("one", 1)):
        with ib.function(name, count):
            ib.emit_ret(ib.imm(1))
    assert ib.get().params("none") == ()
    with pytest.raises(TVMError, match="written by hand"):
        ib.get().params("one")
    with pytest.raises(TVMError, match="it has none, one"):
        ib.get().params("other")


def test_equal_constants_are_one() -> None:
    ib = rx.ExecBuilder()
    a = [ib.convert_constant(np.array([1, 2], d)) for d in ("int32", "int32", "int64")]
    assert a[0] == a[1] != a[2]
    assert ib.convert_constant("x") == ib.convert_constant("x")
    assert ib.convert_constant((1, 2)) == ib.convert_constant(rx.ShapeExpr((1, 2)))
    assert len({ib.convert_constant(v).index for v in ((1, 2), (1, 3), 1, 1.0, True)}) == 5


def test_registers_are_numbered_in_order() -> None:
    texts: list[str] = []
    for first, second in ((100, 50), (2, 3)):
        ib = rx.ExecBuilder()
        with ib.function("f", num_inputs=2):
            ib.emit_call("eb.add", [ib.r(0), ib.r(1)], ib.r(first))
            ib.emit_call("eb.add", [ib.r(1), ib.r(first)], ib.r(second))
            ib.emit_ret(ib.r(second))
        texts.append(ib.get().as_text())
    assert texts[0] == texts[1]


def test_closures_and_functions_that_are_written_later() -> None:
    ib = rx.ExecBuilder()
    with ib.function("main", num_inputs=2):
        ib.emit_call("vm.builtin.make_closure", [ib.f("lifted"), ib.r(0), ib.r(1)], ib.r(2))
        ib.emit_ret(ib.r(2))
    with ib.function("lifted", num_inputs=4):
        ib.emit_call("eb.identity", [ib.r(i) for i in range(4)], ib.r(4))
        ib.emit_ret(ib.r(4))
    closure = run(ib, "main", 1, 2)
    assert closure(3, 4) == (3, 4, 1, 2)


def test_shapes() -> None:
    ib = rx.ExecBuilder()
    with ib.function("f", num_inputs=2):
        ib.emit_call("vm.builtin.tensor_to_shape", [ib.r(1)], ib.r(2))
        ib.emit_call("vm.builtin.reshape", [ib.r(0), ib.r(2)], ib.r(3))
        ib.emit_call("vm.builtin.shape_of", [ib.r(3)], ib.r(4))
        ib.emit_call("vm.builtin.make_tuple", [ib.r(3), ib.r(4)], ib.r(5))
        ib.emit_ret(ib.r(5))
    array, shape = run(ib, "f", np.arange(6), np.array([2, 3]))
    np.testing.assert_array_equal(np.asarray(array), np.arange(6).reshape(2, 3))
    assert shape == (2, 3)
