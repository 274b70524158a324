"""Work on long and deep programs grows with their size: calls of Python are counted, not time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import relax2xla as rx
from relax2xla import op as R
from relax2xla.script import from_source
from tests.work import calls

F = rx.TensorStructInfo((2,), "float32")
X = np.array([1, 2], np.float32)


@pytest.fixture(autouse=True)
def packed() -> None:
    rx.register_func("scaling.double", lambda x: x + x, override=True)


def host(x: rx.Expr) -> rx.Call:
    return R.call_pure_packed("scaling.double", x, sinfo_args=F)


def bound(name: str, value: rx.Expr, *ahead: rx.VarBinding) -> rx.SeqExpr:
    var = rx.Var(name, F)
    return rx.SeqExpr([rx.BindingBlock([*ahead, rx.VarBinding(var, value)])], var)


def module(params: list[rx.Var], body: rx.SeqExpr) -> rx.IRModule:
    main = rx.Function(params, body, attrs={"global_symbol": "main"})
    return rx.IRModule({rx.GlobalVar("main"): main})


def branches(depth: int) -> rx.IRModule:
    """``if c: if c: ... packed(x)``."""
    x, c = rx.Var("x", F), rx.Var("c", rx.TensorStructInfo((), "bool"))
    body = bound("r", host(x))
    for _ in range(depth):
        body = bound("w", rx.If(c, body, rx.SeqExpr([], x)))
    return module([x, c], body)


def closures(depth: int) -> rx.IRModule:
    """Local functions in local functions; the innermost does host work on what they capture."""
    x = rx.Var("x", F)
    body = bound("r", host(x))
    for i in range(depth):
        func = rx.Function([rx.Var(f"a{i}", F)], body)
        var = rx.Var(f"f{i}", func.struct_info)
        body = bound("g", rx.Call(var, [x]), rx.VarBinding(var, func))
    return module([x], body)


def straight(length: int) -> rx.IRModule:
    """One packed call after the other, each between two regions."""
    x = rx.Var("x", F)
    builder = rx.BlockBuilder()
    with builder.function("main", [x]):
        y: rx.Expr = x
        for _ in range(length):
            y = builder.emit(R.negative(builder.emit(host(y))))
        builder.emit_func_output(y)
    return builder.get()


@pytest.mark.parametrize("make", [branches, closures, straight])
def test_a_program_twice_as_large_is_twice_the_work(make: Callable[[int], rx.IRModule]) -> None:
    small, large = make(40), make(80)

    def run(mod: rx.IRModule) -> None:
        rx.VirtualMachine(rx.build(mod)).function("main")

    run(small)  # what is imported and registered at first use
    assert calls(lambda: run(large)) < 2.2 * calls(lambda: run(small))


@pytest.mark.parametrize(
    ("make", "size", "args"), [(branches, 600, (X, True)), (closures, 600, (X,))]
)
def test_nests_are_deeper_than_python_allows(
    make: Callable[[int], rx.IRModule], size: int, args: tuple[Any, ...]
) -> None:
    main = rx.VirtualMachine(rx.build(make(size)))["main"]
    np.testing.assert_array_equal(main(*args), 2 * X)


def test_local_functions_call_themselves_as_deep_as_others() -> None:
    """A call of a known local function is a call of bytecode: no stack of C, no closure object."""
    vm = rx.VirtualMachine(
        rx.build(
            from_source("""
@I.ir_module
class M:
    @R.function
    def main(x: R.Tensor((), "int64")) -> R.Tensor((), "int64"):
        @R.function
        def go(a: R.Tensor((), "int64")) -> R.Tensor((), "int64"):
            c = R.equal(a, R.const(0, "int64"))
            if c:
                r = a
            else:
                b = R.subtract(a, R.const(1, "int64"))
                s: R.Tensor((), "int64") = go(b)
                r: R.Tensor((), "int64") = R.add(s, R.const(2, "int64"))
            return r
        z: R.Tensor((), "int64") = go(x)
        return z
""")
        )
    )
    # Where torch.compile has run in the process, Python 3.12 and later end at 10,000 frames of C.
    assert int(vm["main"](3000)) == 6000
    assert "make_closure" not in vm.executable.as_text()


def test_many_functions_of_one_name() -> None:
    """Local functions get names of their own, whose length does not grow with the nest."""
    executable = rx.build(closures(60))
    names = [f.name for f in executable.code.functions]
    assert len(set(names)) == len(names)
    assert max(map(len, names)) < 30
