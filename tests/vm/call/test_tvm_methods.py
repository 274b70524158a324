"""Saved functions, set inputs, instruments: the contracts of TVM's machine, for both kinds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import relax2xla as rx
from relax2xla.errors import CallError, TVMError
from relax2xla.runtime.registry import register_func, remove_global_func
from relax2xla.script import from_source
from relax2xla.vm import VMInstrumentReturnKind

# ``compiled`` is one XLA program, ``hosted`` bytecode around a packed function; both compute x - y.
SOURCE = """
@I.ir_module
class Module:
    @R.function
    def compiled(x: R.Tensor((2,), "float32"), y: R.Tensor((2,), "float32")):
        return R.subtract(x, y)

    @R.function(pure=False)
    def hosted(x: R.Tensor((2,), "float32"), y: R.Tensor((2,), "float32")):
        z = R.call_packed("test_calls.count", x, sinfo_args=R.Tensor((2,), "float32"))
        return R.subtract(z, y)

    @R.function
    def nested(
        x: R.Tensor((2,), "float32"), p: R.Tuple(R.Tensor((2,), "float32"), R.Shape(ndim=1))
    ):
        return (x, ((R.add(x, p[0]), R.shape([3, 4])), R.negative(x)))

    @R.function(pure=False)
    def nested_hosted(
        x: R.Tensor((2,), "float32"), p: R.Tuple(R.Tensor((2,), "float32"), R.Shape(ndim=1))
    ):
        _ = R.assert_op(R.const(True), format="")
        return (x, ((R.add(x, p[0]), R.shape([3, 4])), R.negative(x)))

    @R.function
    def nothing():
        return R.const([1.0, 2.0], "float32")

    @R.function(pure=False)
    def nothing_hosted():
        z = R.call_packed("test_calls.make", sinfo_args=R.Tensor((2,), "float32"))
        return z
"""

KINDS = pytest.mark.parametrize("name", ["compiled", "hosted"])
X, Y = np.array([5.0, 7.0], np.float32), np.array([1.0, 2.0], np.float32)


class Counter:
    """How often the packed function has run, and what it raises."""

    calls = 0
    error: BaseException | None = None


@pytest.fixture
def counter() -> Iterator[Counter]:
    state = Counter()

    def count(x: Any) -> Any:
        state.calls += 1
        if state.error is not None:
            raise state.error
        return x

    register_func("test_calls.count", count)
    register_func("test_calls.make", lambda: np.array([1.0, 2.0], np.float32))
    yield state
    remove_global_func("test_calls.count")
    remove_global_func("test_calls.make")


@pytest.fixture
def vm(counter: Counter) -> rx.VirtualMachine:
    return rx.VirtualMachine(rx.build(from_source(SOURCE)), rx.cpu())


# ---- save_function
@KINDS
def test_a_saved_function_has_its_arguments(vm: rx.VirtualMachine, name: str) -> None:
    x = X.copy()
    vm.save_function(name, "saved", x, Y)
    x[:] = 0  # the machine has its own copy
    np.testing.assert_array_equal(vm["saved"](), X - Y)
    np.testing.assert_array_equal(vm.module["saved"](), X - Y)
    with pytest.raises(TypeError, match=f"has given them to {name}"):
        vm["saved"](X)
    vm.save_function(name, "saved", y=X, x=Y)
    np.testing.assert_array_equal(vm["saved"](), Y - X)
    vm.save_function(name, "quiet", X, Y, include_return=False)
    assert vm["quiet"]() is None


@KINDS
def test_a_saved_function_never_replaces_one_of_the_program(
    vm: rx.VirtualMachine, name: str
) -> None:
    for taken in ("compiled", "hosted"):
        with pytest.raises(TVMError, match=f"'{taken}' is a function of the program"):
            vm.save_function(name, taken, X, Y)
    with pytest.raises(TVMError, match="function of the machine itself"):
        vm.save_function(name, "invoke_stateful", X, Y)
    with pytest.raises(TVMError, match="no function 'other'"):
        vm.save_function("other", "saved", X, Y)
    with pytest.raises(CallError, match="takes 2 arguments"):
        vm.save_function(name, "saved", X)
    with pytest.raises(TVMError, match="no function 'saved'"):
        vm["saved"]
    np.testing.assert_array_equal(vm[name](X, Y), X - Y)


@KINDS
def test_a_saved_function_is_run_as_others_are(vm: rx.VirtualMachine, name: str) -> None:
    vm.save_function(name, "before", X, Y)
    seen: list[bool] = []

    def instrument(_f: Any, _symbol: str, before_run: bool, *_: Any) -> None:
        seen.append(before_run)

    vm.set_instrument(instrument)
    vm.save_function(name, "after", X, Y)
    for saved in ("before", "after"):
        seen.clear()
        np.testing.assert_array_equal(vm[saved](), X - Y)
        assert seen.count(True) == seen.count(False) > 0
    vm.set_instrument(None)
    seen.clear()
    for saved in ("before", "after"):
        np.testing.assert_array_equal(vm[saved](), X - Y)
    assert not seen


def test_saved_functions_are_no_closures(vm: rx.VirtualMachine) -> None:
    vm.save_function("compiled", "saved", X, Y)
    with pytest.raises(TypeError, match=r'call it as vm\["saved"\]\(\)'):
        vm.invoke_closure(vm["saved"])
    with pytest.raises(TVMError, match="saved function already"):
        vm.save_function("saved", "again")


def test_closures_are_invoked() -> None:
    source = """
@I.ir_module
class Module:
    @R.function(private=True)
    def add(x: R.Tensor((), "float32"), y: R.Tensor((), "float32")) -> R.Tensor((), "float32"):
        return R.add(x, y)

    @R.function
    def main(y: R.Tensor((), "float32")) -> R.Object:
        cls = Module
        clo = R.make_closure(cls.add, (y,))
        return clo
"""
    vm = rx.VirtualMachine(rx.build(from_source(source)))
    closure = vm["main"](2.0)
    assert float(vm.invoke_closure(closure, np.float32(3.0))) == 5.0
    with pytest.raises(TypeError, match="takes a closure; got int"):
        vm.invoke_closure(3)


# ---- set_input, invoke_stateful, get_outputs
@KINDS
def test_inputs_are_set_then_run_then_fetched(
    vm: rx.VirtualMachine, counter: Counter, name: str
) -> None:
    direct = vm[name]
    np.testing.assert_array_equal(direct(X, Y), X - Y)
    with pytest.raises(CallError, match=f"invoke_stateful: no inputs are set for {name}"):
        vm.invoke_stateful(name)
    with pytest.raises(CallError, match=f"get_outputs: {name} has not run"):
        vm.get_outputs(name)
    x = X.copy()
    vm.set_input(name, x, Y)
    x[:] = 0
    with pytest.raises(CallError, match=f"get_outputs: {name} has not run"):
        vm.get_outputs(name)
    for call in (direct, vm[name]):
        with pytest.raises(CallError, match="must be called with invoke_stateful"):
            call(X, Y)
        with pytest.raises(CallError, match="must be called with invoke_stateful"):
            call(x=X, y=Y)
    assert vm.invoke_stateful(name) is None
    np.testing.assert_array_equal(vm.get_outputs(name), X - Y)
    np.testing.assert_array_equal(vm.get_outputs(name), X - Y)
    vm.invoke_stateful(name)
    assert counter.calls == (3 if name == "hosted" else 0)


@KINDS
def test_an_instrument_does_not_lift_the_order(vm: rx.VirtualMachine, name: str) -> None:
    vm.set_input(name, X, Y)
    for instrument in (lambda *_: None, None):
        vm.set_instrument(instrument)
        with pytest.raises(CallError, match="must be called with invoke_stateful"):
            vm[name](X, Y)
    vm.invoke_stateful(name)
    np.testing.assert_array_equal(vm.get_outputs(name), X - Y)


@KINDS
def test_inputs_by_position_by_name_and_both(vm: rx.VirtualMachine, name: str) -> None:
    for args, kwargs in [((), {"y": X, "x": Y}), ((Y,), {"y": X}), ((Y.tolist(), X), {})]:
        vm.set_input(name, *args, **kwargs)
        vm.invoke_stateful(name)
        np.testing.assert_array_equal(vm.get_outputs(name), Y - X)
    with pytest.raises(CallError, match="no parameter 'z'"):
        vm.set_input(name, X, z=Y)
    with pytest.raises(CallError):
        vm.set_input(name, X)
    # What was set before is still there.
    vm.invoke_stateful(name)
    np.testing.assert_array_equal(vm.get_outputs(name), Y - X)


def test_state_is_of_each_function(vm: rx.VirtualMachine) -> None:
    vm.set_input("compiled", X, Y)
    vm.invoke_stateful("compiled")
    with pytest.raises(CallError):
        vm.invoke_stateful("hosted")
    with pytest.raises(CallError):
        vm.get_outputs("hosted")
    np.testing.assert_array_equal(vm["hosted"](X, Y), X - Y)
    vm.set_input("hosted", Y, X)
    vm.invoke_stateful("hosted")
    np.testing.assert_array_equal(vm.get_outputs("compiled"), X - Y)
    np.testing.assert_array_equal(vm.get_outputs("hosted"), Y - X)
    other = rx.VirtualMachine(vm.executable)
    np.testing.assert_array_equal(other["compiled"](X, Y), X - Y)
    for method in (vm.set_input, vm.invoke_stateful, vm.get_outputs):
        with pytest.raises(TVMError, match="no function 'other'"):
            method("other")


@pytest.mark.parametrize("name", ["nothing", "nothing_hosted"])
def test_inputs_are_to_be_set_even_where_there_are_none(vm: rx.VirtualMachine, name: str) -> None:
    with pytest.raises(CallError, match="also where it takes none"):
        vm.invoke_stateful(name)
    np.testing.assert_array_equal(vm[name](), [1.0, 2.0])
    vm.set_input(name)
    with pytest.raises(CallError, match="must be called with invoke_stateful"):
        vm[name]()
    vm.invoke_stateful(name)
    np.testing.assert_array_equal(vm.get_outputs(name), [1.0, 2.0])


@pytest.mark.parametrize("name", ["nested", "nested_hosted"])
def test_nested_tuples_in_and_out(vm: rx.VirtualMachine, name: str) -> None:
    vm.set_input(name, X, (Y, (9,)))
    vm.invoke_stateful(name)
    found = vm.get_outputs(name)
    first, ((second, shape), third) = found
    np.testing.assert_array_equal(first, X)
    np.testing.assert_array_equal(second, X + Y)
    np.testing.assert_array_equal(third, -X)
    assert shape == (3, 4)
    assert {type(found), type(found[1]), type(found[1][0])} == {tuple}
    with pytest.raises(CallError, match=r"`p`.* must be a tuple of 2"):
        vm.set_input(name, X, (Y,))


def test_methods_are_functions_of_the_module(vm: rx.VirtualMachine) -> None:
    vm.module["set_input"]("compiled", X, Y)
    vm["invoke_stateful"]("compiled")
    np.testing.assert_array_equal(vm["get_outputs"]("compiled"), X - Y)


def test_bytecode_calls_a_function_whose_inputs_are_set() -> None:
    source = """
@I.ir_module
class Module:
    @R.function
    def inner(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
        return R.negative(x)

    @R.function(pure=False)
    def main(x: R.Tensor((2,), "float32")):
        cls = Module
        _ = R.print(x, format="{}")
        return cls.inner(x)
"""
    vm = rx.VirtualMachine(rx.build(from_source(source)))
    vm.set_input("inner", X)
    np.testing.assert_array_equal(vm["main"](X), -X)


# ---- instruments
def test_an_instrument_sees_every_call_before_and_after(vm: rx.VirtualMachine) -> None:
    seen: list[tuple[str, bool, Any, int]] = []

    def instrument(func: Any, symbol: str, before: bool, value: Any, *args: Any) -> None:
        assert callable(func)
        assert value is None if before else value is not None
        seen.append((symbol, before, value, len(args)))

    direct = vm["hosted"]
    plain = vm["compiled"]
    vm.set_instrument(instrument)
    np.testing.assert_array_equal(direct(X, Y), X - Y)
    symbols = [s for s, before, *_ in seen if before]
    assert symbols == [s for s, before, *_ in seen if not before]
    assert "test_calls.count" in symbols
    assert "vm.builtin.match" in symbols
    assert symbols[-1].startswith("hosted_region")
    np.testing.assert_array_equal(seen[-1][2], X - Y)
    seen.clear()
    np.testing.assert_array_equal(plain(X, Y), X - Y)
    assert [(s, b, n) for s, b, _, n in seen] == [("compiled", True, 2), ("compiled", False, 2)]
    vm.set_input("compiled", Y, X)
    vm.invoke_stateful("compiled")
    assert len(seen) == 4
    seen.clear()
    vm.set_instrument(None)
    direct(X, Y)
    vm["hosted"](X, Y)
    vm.invoke_stateful("compiled")
    assert not seen


@pytest.mark.parametrize("skip", [VMInstrumentReturnKind.SKIP_RUN, 1, True])
def test_an_instrument_skips_a_call(vm: rx.VirtualMachine, counter: Counter, skip: Any) -> None:
    after: list[str] = []

    def instrument(func: Any, symbol: str, before: bool, value: Any, *args: Any) -> Any:
        if not before:
            after.append(symbol)
            return VMInstrumentReturnKind.SKIP_RUN  # means nothing after the call
        return skip if symbol == "compiled" else VMInstrumentReturnKind.NO_OP

    vm.set_instrument(instrument)
    assert vm["compiled"](X, Y) is None
    assert "compiled" not in after
    np.testing.assert_array_equal(vm["hosted"](X, Y), X - Y)
    assert counter.calls == 1
    skip_count = lambda f, s, b, v, *a: int(s == "test_calls.count")  # noqa: E731
    vm.set_instrument(skip_count)
    with pytest.raises(CallError, match=r"must be a tensor|NoneType"):
        vm["hosted"](X, Y)
    assert counter.calls == 1


def test_an_instrument_by_name(vm: rx.VirtualMachine) -> None:
    seen: list[str] = []
    register_func("test_calls.instrument", lambda f, s, b, v, *a: seen.append(s))
    try:
        vm.set_instrument("test_calls.instrument")
        vm["compiled"](X, Y)
        assert seen == ["compiled"] * 2
    finally:
        remove_global_func("test_calls.instrument")
    with pytest.raises(TVMError, match="no packed function"):
        vm.set_instrument("test_calls.instrument")
    with pytest.raises(TypeError, match="takes a function"):
        vm.set_instrument(3)  # pyright: ignore[reportArgumentType]


@KINDS
def test_an_instrument_that_raises_leaves_the_machine_usable(
    vm: rx.VirtualMachine, name: str
) -> None:
    function = vm[name]
    np.testing.assert_array_equal(function(X, Y), X - Y)

    def broken(*args: Any) -> None:
        raise ZeroDivisionError("in the instrument")

    vm.set_instrument(broken)
    for call in (function, vm[name]):
        with pytest.raises(ZeroDivisionError, match="in the instrument"):
            call(X, Y)
    vm.set_instrument(lambda *args: 7)
    with pytest.raises(CallError, match="the instrument returned 7"):
        function(X, Y)
    vm.set_instrument(lambda *args: None)
    np.testing.assert_array_equal(function(X, Y), X - Y)
    vm.set_instrument(None)
    np.testing.assert_array_equal(function(X, Y), X - Y)


# ---- what goes wrong between good calls
@KINDS
def test_wrong_calls_between_good_ones(vm: rx.VirtualMachine, name: str) -> None:
    function = vm[name]
    for wrong in ((X,), (X, Y, Y), (X, "text"), (X, np.ones(3, np.float32)), (X, Y > 0)):
        with pytest.raises((CallError, TypeError)):
            function(*wrong)
        np.testing.assert_array_equal(function(X, Y), X - Y)


@pytest.mark.parametrize("error", [ValueError("mine"), KeyboardInterrupt(), SystemExit(3)])
def test_an_exception_in_a_packed_function(
    vm: rx.VirtualMachine, counter: Counter, error: BaseException
) -> None:
    function = vm["hosted"]
    vm.set_input("hosted", X, Y)
    counter.error = error
    with pytest.raises(type(error)):
        vm.invoke_stateful("hosted")
    with pytest.raises(CallError, match="has not run"):
        vm.get_outputs("hosted")
    counter.error = None
    vm.invoke_stateful("hosted")
    np.testing.assert_array_equal(vm.get_outputs("hosted"), X - Y)
    assert function is vm["hosted"]


def test_a_packed_function_that_is_registered_later() -> None:
    mod = from_source(SOURCE.replace("test_calls", "test_calls_later"))
    vm = rx.VirtualMachine(rx.build(mod))
    for _ in range(2):
        with pytest.raises(
            TVMError, match=r"no packed function 'test_calls_later\.count'"
        ) as error:
            vm["hosted"](X, Y)
        (note,) = error.value.__notes__
        assert note.startswith("  in the VM function hosted, instruction 2: call test_calls_later.")
        assert ", at <str>:" in note
    register_func("test_calls_later.count", lambda x: x)
    try:
        np.testing.assert_array_equal(vm["hosted"](X, Y), X - Y)
    finally:
        remove_global_func("test_calls_later.count")


# ---- the machine's own parameters
def test_memory_cfg_is_checked(vm: rx.VirtualMachine) -> None:
    executable = vm.executable
    for good in (None, "naive", "pooled", {rx.cpu(): "naive"}):
        assert rx.VirtualMachine(executable, rx.cpu(), good).memory_cfg == good
    with pytest.raises(ValueError, match="unknown allocator 'arena'; known: naive, pooled"):
        rx.VirtualMachine(executable, rx.cpu(), "arena")
    with pytest.raises(ValueError, match="unknown allocator 'arena'"):
        rx.VirtualMachine(executable, rx.cpu(), {rx.cpu(): "naive", rx.cpu(1): "arena"})
    with pytest.raises(TypeError, match="keys must be Devices"):
        rx.VirtualMachine(executable, rx.cpu(), {"cpu": "naive"})  # pyright: ignore
    with pytest.raises(TypeError, match="memory_cfg is the name"):
        rx.VirtualMachine(executable, rx.cpu(), 3)  # pyright: ignore[reportArgumentType]


def test_a_device_or_a_list(vm: rx.VirtualMachine) -> None:
    executable = vm.executable
    for given, count in (
        *((rx.cpu(), 1), ([rx.cpu()], 1), ("cpu", 1), (["cpu:0", rx.cpu()], 2)),
        *((None, 0), ([], 0)),
    ):
        made = rx.VirtualMachine(executable, given)
        assert made.devices == (rx.cpu(),) * count
        np.testing.assert_array_equal(made["compiled"](X, Y), X - Y)
    with pytest.raises(TypeError, match="device is a Device"):
        rx.VirtualMachine(executable, 3)  # pyright: ignore[reportArgumentType]
    with pytest.raises(TVMError, match="no device cpu:99"):
        rx.VirtualMachine(executable, [rx.cpu(), rx.cpu(99)])
