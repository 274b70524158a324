"""TVM's machine: instruments and profiles see operators, and sessions of ``rpc`` are local."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relax2xla as rx
from relax2xla.errors import UnsupportedError
from relax2xla.runtime.registry import register_func, remove_global_func
from relax2xla.script import from_source
from relax2xla.tvm.runtime import rpc
from relax2xla.tvm.runtime.machine import VirtualMachine
from relax2xla.tvm.testing.lib_comparator import LibCompareVMInstrument
from relax2xla.vm import VMInstrumentReturnKind
from relax2xla.vm.save.executable import VMExecutable

X = np.linspace(-1, 1, 256, dtype="float32").reshape(16, 16)


def network() -> VMExecutable:
    weights = [rx.const(X + i, "float32") for i in range(2)]
    x = rx.Var("x", rx.TensorStructInfo((16, 16), "float32"))
    bb = rx.BlockBuilder()
    with bb.function("main", [x]):
        value: Any = x
        for w in weights:
            value = bb.emit(rx.op.nn.relu(bb.emit(rx.op.matmul(value, w))))
        bb.emit_func_output((value, (value,)))
    return rx.build(bb.get())


def test_an_instrument_sees_operators() -> None:
    vm = VirtualMachine(network())
    seen: list[tuple[str, bool]] = []
    vm.set_instrument(lambda f, name, before, value, *args: seen.append((name, before)))
    made = vm["main"](X)
    names = [name for name, before in seen if before and not name.startswith("vm.builtin.")]
    assert names == ["matmul", "relu", "matmul", "relu"]
    assert ("vm.builtin.make_tuple", True) in seen
    vm.set_instrument(None)
    seen.clear()
    np.testing.assert_allclose(np.asarray(vm["main"](X)[0]), np.asarray(made[0]), rtol=1e-6)
    assert not seen


def test_what_an_instrument_leaves_out_gives_zeros() -> None:
    vm = VirtualMachine(network())

    def skip(func: Any, name: str, before: bool, value: Any, *args: Any) -> Any:
        return VMInstrumentReturnKind.SKIP_RUN if name == "matmul" else None

    vm.set_instrument(skip)
    assert not np.asarray(vm["main"](X)[0]).any()


def test_functions_with_packed_calls() -> None:
    register_func("test_machine.plus", lambda a: np.asarray(a) + 1)
    try:
        built = rx.build(
            from_source(
                "@I.ir_module\nclass Module:\n    @R.function(pure=False)\n"
                "    def main(x: R.Tensor((16, 16), 'float32')):\n"
                "        a = R.exp(x)\n"
                "        b = R.call_packed('test_machine.plus', a,"
                " sinfo_args=R.Tensor((16, 16), 'float32'))\n"
                "        return R.negative(b)\n"
            )
        )
        vm = VirtualMachine(built)
        seen: list[str] = []
        vm.set_instrument(lambda f, name, before, *args: seen.append(name) if before else None)
        np.testing.assert_allclose(np.asarray(vm["main"](X)), -np.exp(X) - 1, rtol=1e-5)
        called = [s for s in seen if not s.startswith("vm.builtin.")]
        assert called == ["exp", "test_machine.plus", "negative"]
    finally:
        remove_global_func("test_machine.plus")


def test_other_weights() -> None:
    x = rx.Var("x", rx.TensorStructInfo((2, 16), "float32"))
    weight = rx.Constant(np.ones((16, 16), "float32"), span=rx.ir.Span(name="w"))
    bb = rx.BlockBuilder()
    with bb.function("main", [x]):
        bb.emit_func_output(bb.emit(rx.op.matmul(x, weight)))
    vm = VirtualMachine(rx.build(bb.get()))
    vm.set_instrument(lambda *args: None)
    ones = np.ones((2, 16), "float32")
    np.testing.assert_array_equal(np.asarray(vm["main"](ones)), np.full((2, 16), 16.0))
    vm.set_params({"w": np.full((16, 16), 2.0, "float32")})
    np.testing.assert_array_equal(np.asarray(vm["main"](ones)), np.full((2, 16), 32.0))


def test_a_profile_by_operator() -> None:
    vm = VirtualMachine(network(), profile=True)
    report = vm.profile("main", X)
    counts = {row.name: row.count for row in report.calls}
    assert counts["matmul"] == counts["relu"] == 2
    head, *_ = str(report).splitlines()
    assert head.split() == ["Name", "Duration", "(us)", "Percent", "Count"]
    vm.set_input("main", X)
    assert "vm.builtin.make_tuple" in str(vm.profile("main"))


class Logged(LibCompareVMInstrument):
    """Leaves relu out."""

    def skip_instrument(
        self, func: Any, name: str, before_run: bool, ret_val: Any, *args: Any
    ) -> bool:
        return name == "relu"


def test_operators_of_two_machines_are_compared(caplog: pytest.LogCaptureFixture) -> None:
    vm, other = VirtualMachine(network()), VirtualMachine(network())
    (library,) = other.imported_modules
    assert other.module is other
    assert len(other.imports) == 1
    with pytest.raises(AttributeError, match="no operator 'tanh'; the program has matmul, relu"):
        library.get_function("tanh")
    with pytest.raises(TypeError, match="relu takes 1 operands and 1 arrays"):
        library["relu"](X)
    compare = LibCompareVMInstrument(library, rx.cpu(), verbose=False)
    vm.set_instrument(compare)
    vm["main"](X)
    assert compare.counter == 4
    chosen = Logged(library, rx.cpu())
    vm.set_instrument(chosen)
    with caplog.at_level(logging.INFO, "relax2xla.tvm"):
        vm["main"](X)
    assert chosen.counter == 2
    assert "Validating matmul, passed" in caplog.text


def test_a_wrong_library_is_told() -> None:
    class Wrong:
        def get_function(self, name: str, query_imports: bool) -> Any:
            if name != "relu":
                raise AttributeError(name)
            return lambda x, out: None  # leaves zeros

    vm = VirtualMachine(network())
    vm.set_instrument(LibCompareVMInstrument(Wrong(), rx.cpu()))
    with pytest.raises(AssertionError):
        vm["main"](X)


def test_a_local_session(tmp_path: Path) -> None:
    network().export_library(tmp_path / "model.r2x")
    session = rpc.LocalSession()
    session.upload(tmp_path / "model.r2x")
    session.upload(b"abc", "note")
    assert session.listdir() == ["model.r2x", "note"]
    assert session.download("note") == b"abc"
    session.remove("note")
    assert session.listdir() == ["model.r2x"]
    vm = VirtualMachine(session.load_module("model.r2x"), session.cpu(), profile=True)
    assert "matmul" in str(vm.profile("main", X))
    with pytest.raises(ValueError, match="outside of the session's folder"):
        session.download("../secret")
    with pytest.raises(ValueError, match="bytes need a name"):
        session.upload(b"abc")


def test_servers_are_those_of_the_process() -> None:
    server = rpc.Server("127.0.0.1")
    second = rpc.Server("127.0.0.1")
    assert second.port != server.port
    assert isinstance(rpc.connect(server.host, server.port), rpc.LocalSession)
    for s in (server, second):
        s.terminate()
    with pytest.raises(UnsupportedError, match=r"no server 127\.0\.0\.1:\d+ in this process"):
        rpc.connect(server.host, server.port)
