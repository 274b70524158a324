"""time_evaluator: how often it calls, what it discards, when it rests."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

import relax2xla as rx
from relax2xla import op
from relax2xla.errors import CallError, TVMError
from relax2xla.runtime.registry import register_func, remove_global_func
from relax2xla.script import from_source
from relax2xla.vm.call.programs import Programs
from relax2xla.vm.observe.timing import BenchmarkResult, Timing, measure
from relax2xla.vm.pjrt.cache import DiskCache

SOURCE = """
@I.ir_module
class Module:
    @R.function
    def compiled(x: R.Tensor((2,), "float32")):
        return (R.negative(x), x)

    @R.function(pure=False)
    def hosted(x: R.Tensor((2,), "float32")):
        z = R.call_packed("test_timing.count", x, sinfo_args=R.Tensor((2,), "float32"))
        return z
"""
X = np.ones(2, np.float32)


class Clock:
    """Time as the tests want it: each call of ``work`` takes the next of ``costs``."""

    def __init__(self, *costs: float) -> None:
        self.now, self.costs, self.calls, self.slept = 0.0, list(costs), 0, list[float]()

    def __call__(self) -> float:
        return self.now

    def work(self) -> None:
        self.calls += 1
        self.now += self.costs.pop(0) if len(self.costs) > 1 else self.costs[0]

    def measure(self, timing: Timing) -> BenchmarkResult:
        return measure(self.work, lambda r: None, timing, None, self, self.slept.append)


def test_the_first_call_does_not_count() -> None:
    clock = Clock(100.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0)
    result = clock.measure(Timing(number=3, repeat=2))
    assert clock.calls == 1 + 3 * 2
    assert result.results == (2.0, 5.0)
    assert (result.mean, result.median, result.min, result.max, result.std) == (
        3.5,
        3.5,
        2.0,
        5.0,
        1.5,
    )
    assert "3500.0000" in str(result)


def test_min_repeat_ms_raises_the_number() -> None:
    clock = Clock(0.25)
    result = clock.measure(Timing(number=1, repeat=2, min_repeat_ms=2000))
    # 1 warm-up; 1 is too short, 9 lasts 2.25 s; the second repeat begins with 9.
    assert clock.calls == 1 + 1 + 9 + 9
    assert result.results == (0.25, 0.25)


def test_a_call_too_short_for_the_clock_ends() -> None:
    clock = Clock(0.0)
    clock.costs = [0.0] * 200 + [1.0]
    assert clock.measure(Timing(number=1, min_repeat_ms=1)).mean > 0


def test_cooldown() -> None:
    clock = Clock(1.0)
    clock.measure(Timing(number=1, repeat=8, cooldown_interval_ms=500, repeats_to_cooldown=3))
    assert clock.slept == [0.5, 0.5]


@pytest.mark.parametrize(
    ("name", "value"),
    [("number", 0), ("repeat", 0), ("repeats_to_cooldown", -1), ("min_repeat_ms", -1)],
)
def test_wrong_parameters(name: str, value: int) -> None:
    with pytest.raises(ValueError, match=name):
        Timing(**{name: value})


@pytest.fixture
def counted() -> Any:
    calls: list[Any] = []

    def count(x: Any) -> Any:
        calls.append(x)
        return x

    register_func("test_timing.count", count)
    yield calls
    remove_global_func("test_timing.count")


def test_a_machine_times_functions_saved_ones_and_stateful_ones(counted: list[Any]) -> None:
    vm = rx.VirtualMachine(rx.build(from_source(SOURCE)), rx.cpu(), profile=True)
    result = vm.time_evaluator("compiled", rx.cpu(), number=5, repeat=3)(X)
    assert isinstance(result, BenchmarkResult)
    assert len(result.results) == 3
    assert 0 < result.mean < 1
    vm.time_evaluator("hosted", rx.cpu(), number=4, repeat=2)(x=X)
    assert len(counted) == 1 + 4 * 2
    vm.save_function("hosted", "hosted_saved", X)
    vm.time_evaluator("hosted_saved", rx.cpu(), number=3, repeat=2)()
    assert len(counted) == 9 + 7
    vm.set_input("hosted", X)
    vm.time_evaluator("invoke_stateful", rx.cpu(), number=2, repeat=2)("hosted")
    assert len(counted) == 16 + 5
    np.testing.assert_array_equal(vm.get_outputs("hosted"), X)
    with pytest.raises(CallError, match="must be called with invoke_stateful"):
        vm.time_evaluator("hosted", rx.cpu())(X)


def test_f_preproc_runs_ahead_of_each_repeat(counted: list[Any]) -> None:
    vm = rx.VirtualMachine(rx.build(from_source(SOURCE)))
    seen: list[int] = []
    register_func("test_timing.before", lambda *args: seen.append(len(args)))
    try:
        vm.time_evaluator("compiled", rx.cpu(), 2, 3, f_preproc="test_timing.before")(X)
    finally:
        remove_global_func("test_timing.before")
    assert seen == [1, 1, 1]
    with pytest.raises(TVMError, match="no packed function"):
        vm.time_evaluator("compiled", rx.cpu(), f_preproc="test_timing.before")


def test_what_cannot_be_timed(counted: list[Any]) -> None:
    vm = rx.VirtualMachine(rx.build(from_source(SOURCE)))
    with pytest.raises(TVMError, match="no function 'other'"):
        vm.time_evaluator("other", rx.cpu())
    with pytest.raises(CallError, match="takes 1 arguments"):
        vm.time_evaluator("compiled", rx.cpu())(X, X)
    with pytest.raises(TVMError):
        vm.time_evaluator("compiled", rx.cuda(7))


def test_a_profile_by_region_and_by_source(counted: list[Any]) -> None:
    source = """
@R.function(pure=False)
def main(x: R.Tensor((64, 64), "float32")):
    y = R.matmul(x, x)
    z = R.call_packed("test_timing.count", y, sinfo_args=R.Tensor((64, 64), "float32"))
    return R.sum(R.exp(z), axis=1)
"""
    mod = from_source(source)
    vm = rx.VirtualMachine(rx.build(mod))
    report = vm.profile("main", np.ones((64, 64), np.float32))
    assert len(counted) == 1
    names = [row.name for row in report.calls]
    assert {"main_region0", "main_region1", "test_timing.count"} <= set(names)
    assert sum(row.seconds for row in report.calls) <= report.seconds
    assert report.operations
    assert all(row.seconds >= 0 and row.count >= 1 for row in report.operations)
    assert "main_region0" in str(report)
    assert '"calls"' in report.json()
    whole = rx.VirtualMachine(rx.build(from_source(SOURCE)))
    assert [row.name for row in whole.profile("compiled", X).calls] == ["compiled"]


def layers(*names: str) -> rx.IRModule:
    """An exponential for each name, with a packed function between them."""
    builder = rx.BlockBuilder()
    info = rx.TensorStructInfo((64, 64), "float32")
    x = rx.Var("x", info)
    with builder.function("main", [x], pure=False):
        y: rx.Expr = x
        for i, name in enumerate(names):
            if i:
                y = builder.emit(
                    rx.Call(rx.ExternFunc("test_timing.count"), [y], sinfo_args=[info])
                )
            with builder.source(rx.Span(name)):
                y = builder.emit(op.exp(y))
        builder.emit_func_output(y)
    return builder.get()


def test_steps_of_one_name_are_of_different_programs(counted: list[Any]) -> None:
    x = np.zeros((64, 64), np.float32)
    report = rx.VirtualMachine(rx.build(layers("one", "two"))).profile("main", x)
    assert {r.name: r.count for r in report.operations} == {"one": 1, "two": 1}
    assert [s.source for s in report.steps] == ["one", "two"]
    assert len({s.op for s in report.steps}) == 1
    assert len(counted) == 1


def test_names_are_of_this_source_though_the_cache_has_the_program(store: DiskCache) -> None:
    x = np.zeros((64, 64), np.float32)
    for name in ("before", "after"):
        vm = rx.VirtualMachine(rx.build(layers(name)))
        first = np.asarray(vm["main"](x))
        assert [r.name for r in vm.profile("main", x).operations] == [name]
        np.testing.assert_array_equal(np.asarray(vm["main"](x)), first)
    assert store.hits == 1


def test_compiling_is_no_part_of_a_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    compile_, clock, compiling = Programs.lowered, time.perf_counter, 0.0

    def slowly(*args: Any) -> Any:
        nonlocal compiling
        compiling += 10_000.0
        return compile_(*args)

    monkeypatch.setattr(Programs, "lowered", slowly)
    monkeypatch.setattr(time, "perf_counter", lambda: clock() + compiling)
    report = rx.VirtualMachine(rx.build(layers("one"))).profile(
        "main", np.zeros((64, 64), np.float32)
    )
    assert compiling
    assert 0 < report.calls[0].seconds <= report.seconds < 10_000


def test_every_call_is_waited_for() -> None:
    events: list[str] = []
    measure(lambda: events.append("call"), lambda _: events.append("wait"), Timing(2, 3))
    assert events == ["call", "wait"] * (1 + 2 * 3)
