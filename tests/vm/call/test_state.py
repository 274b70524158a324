"""State on the device between calls, in place, read, replaced and reset."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import relax2xla as rx
from relax2xla import op as R
from relax2xla.errors import CallError
from relax2xla.script import from_source

T = rx.TensorStructInfo
LENGTH, WIDTH = 16, 8


def decoder() -> Any:
    """One step of attention with a KV cache: (x, pos, k, v) -> (y, k', v'), as a GPT decodes."""
    return from_source(f"""
@I.ir_module
class M:
    @R.function
    def main(
        x: R.Tensor((1, {WIDTH}), "float32"), pos: R.Tensor((), "int64"),
        k_cache: R.Tensor(({LENGTH}, {WIDTH}), "float32"),
        v_cache: R.Tensor(({LENGTH}, {WIDTH}), "float32"),
    ):
        at = R.reshape(pos, (1, 1))
        rows = R.broadcast_to(at, (1, {WIDTH}))
        k = R.scatter_elements(k_cache, rows, R.sin(x), axis=0)
        v = R.scatter_elements(v_cache, rows, R.cos(x), axis=0)
        places = R.reshape(R.arange(0, {LENGTH}, 1, "int64"), (1, {LENGTH}))
        scores = R.matmul(x, R.permute_dims(k))
        low = R.full_like(scores, R.const(-1e30, "float32"))
        weights = R.nn.softmax(R.where(R.less_equal(places, at), scores, low), axis=-1)
        return (R.matmul(weights, v), k, v)
""")


def attended(xs: np.ndarray) -> np.ndarray:
    """What the last of ``xs`` attends to, computed from all at once."""
    scores = xs[-1] @ np.sin(xs).T
    weights = np.exp(scores - scores.max())
    return (weights / weights.sum()) @ np.cos(xs)


def zeros() -> dict[str, np.ndarray]:
    return {n: np.zeros((LENGTH, WIDTH), np.float32) for n in ("k_cache", "v_cache")}


def programs(vm: rx.VirtualMachine) -> list[Any]:
    return [p for found in vm.programs().values() for p in found]


def test_a_kv_cache_is_updated_in_place(rng: np.random.Generator) -> None:
    vm = rx.VirtualMachine(rx.build(decoder()))
    step = vm.bind_state("main", zeros())
    xs = rng.standard_normal((LENGTH, WIDTH)).astype(np.float32)
    for _ in range(2):
        for i in range(LENGTH):
            got = step(xs[i : i + 1], i)
            np.testing.assert_allclose(got[0], attended(xs[: i + 1]), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(step.state["k_cache"], np.sin(xs), rtol=1e-5, atol=1e-6)
        step.reset()
    assert not np.asarray(step.state["k_cache"]).any()
    (loaded,) = programs(vm)
    assert loaded.memory().alias_size_in_bytes == 2 * LENGTH * WIDTH * 4
    header = loaded.hlo_text().splitlines()[0]
    assert "{1}: (2, {}, may-alias), {2}: (3, {}, may-alias)" in header


def counter() -> Any:
    return from_source("""
@I.ir_module
class M:
    @R.function
    def main(total: R.Tensor((2,), "float32"), x: R.Tensor((2,), "float32")):
        new = R.add(total, x)
        return (R.sum(new), new)
""")


ONE = np.ones(2, np.float32)


def test_reading_and_writing() -> None:
    first = jax.numpy.zeros(2)
    step = rx.VirtualMachine(rx.build(counter())).bind_state("main", {"total": first})
    assert float(step(ONE)) == 2
    held = step.state["total"]
    assert float(step(x=ONE)) == 4
    assert step.step(ONE)[0] == 6
    # What was read stays, and what was given stays the caller's.
    np.testing.assert_array_equal(held, [1, 1])
    np.testing.assert_array_equal(first, [0, 0])
    step.state["total"] = [10.0, 20.0]
    assert float(step(ONE)) == 32
    step.state = {"total": ONE}
    assert float(step(ONE)) == 4
    step.reset()
    assert float(step(ONE)) == 2
    assert (list(step.state), len(step.state)) == (["total"], 1)
    assert "total" in repr(step.state)


def test_two_bindings_are_apart_and_share_the_program() -> None:
    vm = rx.VirtualMachine(rx.build(counter()))
    a = vm.bind_state("main", {"total": np.zeros(2, np.float32)})
    b = vm.bind_state("main", {"total": ONE})
    assert [float(f(ONE)) for f in (a, b, a, b)] == [2, 4, 4, 6]
    assert len(programs(vm)) == 1
    assert float(vm["main"](ONE, ONE)[0]) == 4


def test_threads() -> None:
    step = rx.VirtualMachine(rx.build(counter())).bind_state("main", {"total": [0.0, 0.0]})
    seen: list[float] = []

    def work() -> None:
        for _ in range(50):
            seen.append(float(step(ONE)))
            np.asarray(step.state["total"])

    threads = [threading.Thread(target=work) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(seen) == [2.0 * i for i in range(1, 401)]


def test_a_state_that_is_one_tuple_and_one_that_is_the_result() -> None:
    mod = from_source("""
@I.ir_module
class M:
    @R.function
    def main(state: R.Tuple(R.Tensor((3,), "float32"), R.Tensor((), "int64")),
             x: R.Tensor((3,), "float32")):
        new = (R.add(state[0], x), R.add(state[1], R.const(1, "int64")))
        return (R.sum(x), new)

    @R.function
    def tick(n: R.Tensor((), "int64")):
        return R.add(n, R.const(1, "int64"))

    @R.function
    def swap(pair: R.Tuple(R.Tensor((3,), "float32"), R.Tensor((3,), "float32"))):
        return (pair[1], pair[0])
""")
    vm = rx.VirtualMachine(rx.build(mod))
    step = vm.bind_state("main", {"state": (np.zeros(3, np.float32), 2**40)})
    x = np.arange(3, dtype=np.float32)
    assert [float(step(x)) for _ in range(3)] == [3, 3, 3]
    total, count = step.state["state"]
    np.testing.assert_array_equal(total, 3 * x)
    assert int(count) == 2**40 + 3
    tick = vm.bind_state("tick", {"n": 2**40})
    assert [tick(), tick()] == [None, None]
    assert int(tick.state["n"]) == 2**40 + 2
    swap = vm.bind_state("swap", {"pair": (x, x + 1)})
    for _ in range(3):
        swap()
    np.testing.assert_array_equal(swap.state["pair"][0], x + 1)


def test_a_state_that_grows() -> None:
    mod = from_source("""
@I.ir_module
class M:
    @R.function
    def main(x: R.Tensor((1, 2), "float32"), seen: R.Tensor(("n", 2), "float32")):
        new = R.concat([seen, x], axis=0)
        return (new, R.sum(new))
""")
    vm = rx.VirtualMachine(rx.build(mod))
    step = vm.bind_state("main", {"seen": np.zeros((0, 2), np.float32)}, results={"seen": 0})
    assert [float(step(np.ones((1, 2), np.float32))) for _ in range(4)] == [2, 4, 6, 8]
    assert step.state["seen"].shape == (4, 2)


def test_state_of_a_function_with_work_on_the_host() -> None:
    mod = from_source("""
@I.ir_module
class M:
    @R.function
    def main(x: R.Tensor((4,), "float32"), total: R.Tensor((4,), "float32")):
        new = R.add(total, x)
        return (R.nonzero(new), new)
""")
    vm = rx.VirtualMachine(rx.build(mod))
    step = vm.bind_state("main", {"total": np.zeros(4, np.float32)})
    for i in range(4):
        got = step(np.eye(4, dtype=np.float32)[i])
        np.testing.assert_array_equal(got, [list(range(i + 1))])
    np.testing.assert_array_equal(step.state["total"], np.ones(4))


def test_set_params_reaches_it() -> None:
    builder = rx.BlockBuilder()
    x, w, n = (rx.Var(v, T((2,), "float32")) for v in "xwn")
    with builder.function("main", [x, w, n]):
        new = builder.emit(R.add(n, R.multiply(x, w)))
        builder.emit_func_output(rx.Tuple([R.sum(new), new]))
    vm = rx.VirtualMachine(rx.build(builder.get(), params={"w": ONE}))
    step = vm.bind_state("main", {"n": np.zeros(2, np.float32)})
    assert float(step(ONE)) == 2
    if "w" in vm.params():
        vm.set_params({"w": 2 * ONE})
        assert float(step(ONE)) == 6


def test_torch_buffers_and_saved_executables(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from relax2xla.importers.torch import from_exported_program

    class Cache(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = torch.nn.BatchNorm1d(3)
            self.register_buffer("cache", torch.zeros(4, 3))

        def forward(self, x: Any, at: Any) -> Any:
            self.cache.index_copy_(0, at, self.norm(x))
            return self.cache.sum(0)

    module = Cache().train()
    xs = torch.randn(3, 2, 3)
    ats = [torch.tensor(a) for a in ([0, 1], [2, 3], [1, 2])]
    executable = rx.build(from_exported_program(module, (xs[0], ats[0])))
    executable.export_library(tmp_path / "m.r2x")
    expected = [module(x, at).detach().numpy() for x, at in zip(xs, ats, strict=True)]
    files = [rx.load_module(tmp_path / "m.r2x", compiled=c) for c in (True, False)]
    for ex in (executable, *files):
        vm = rx.VirtualMachine(ex)
        step = vm.bind_state("main")
        for x, at, want in zip(xs, ats, expected, strict=True):
            np.testing.assert_allclose(step(x, at), want, rtol=1e-4, atol=1e-5)
        for name, value in module.state_dict().items():
            if name in step.state:
                np.testing.assert_allclose(step.state[name], value, rtol=1e-4, atol=1e-5)
        assert "cache" in step.state
        (loaded,) = programs(vm)
        assert loaded.memory().alias_size_in_bytes >= 4 * 3 * 4
        with pytest.raises(CallError, match=r'got 2; vm.bind_state\("main"\) keeps its state'):
            vm["main"](xs[0], ats[0])


def test_a_failed_call_leaves_the_state() -> None:
    step = rx.VirtualMachine(rx.build(counter())).bind_state("main", {"total": [0.0, 0.0]})
    step(ONE)
    for wrong in (np.ones(3, np.float32), np.ones(2, np.int32), "x"):
        with pytest.raises(CallError):
            step(wrong)
    with pytest.raises(CallError, match=r"takes 1 arguments beside its state \(x\); got 2"):
        step(ONE, ONE)
    with pytest.raises(CallError, match="no parameter 'total'"):
        step(total=ONE)
    assert float(step(ONE)) == 4


def test_a_lost_state_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    step = rx.VirtualMachine(rx.build(counter())).bind_state("main", {"total": [0.0, 0.0]})
    step(ONE)
    inner: Any = getattr(step, "_call")  # noqa: B009

    def interrupted(*args: Any) -> Any:
        inner(*args)
        raise KeyboardInterrupt

    monkeypatch.setattr(step, "_call", interrupted)
    with pytest.raises(KeyboardInterrupt):
        step(ONE)
    monkeypatch.undo()
    for use in (lambda: step(ONE), lambda: step.state["total"]):
        with pytest.raises(CallError, match=r"state of main is lost.*reset\(\)"):
            use()
    step.reset()
    assert float(step(ONE)) == 2


@pytest.mark.parametrize(
    ("state", "results", "message"),
    [
        (None, None, r"nothing says what the state of main is.*bind_state"),
        ({"y": ONE}, None, r"no parameter 'y' to keep as state; it has total, x"),
        ({"total": np.ones(3, np.float32)}, None, r"state `total` of main has .*expected"),
        ({"total": np.ones(2)}, None, r"dtype float64; expected float32"),
        ({"total": "zero"}, None, r"state `total` of main: expected an array"),
        ({"total": ONE}, {"total": 0}, r"cannot be field 0 of the result.*results="),
        ({"total": ONE}, {"total": 2}, r"cannot be its field 2"),
        ({"total": ONE}, {"x": 1}, r"results names 'x', which is no state"),
        ({"total": ONE, "x": ONE}, {"total": 1, "x": 1}, r"field 1 is the next value of two"),
        ({"total": ONE, "x": ONE}, {"total": 1}, r"say in results= where the next value of x is"),
    ],
)
def test_what_cannot_be_bound(state: Any, results: Any, message: str) -> None:
    vm = rx.VirtualMachine(rx.build(counter()))
    with pytest.raises(CallError, match=message):
        vm.bind_state("main", state, results)


def test_a_size_that_cannot_be_the_next_value() -> None:
    mod = from_source("""
@R.function
def main(x: R.Tensor((2, 3), "float32")):
    return (R.concat([x, x]), R.exp(x))
""")
    vm, x = rx.VirtualMachine(rx.build(mod)), np.zeros((2, 3), np.float32)
    with pytest.raises(CallError, match=r"cannot be field 0 of the result, which is .*\(4, 3\)"):
        vm.bind_state("main", {"x": x}, {"x": 0})
    np.testing.assert_array_equal(vm.bind_state("main", {"x": x}, {"x": 1})(), np.zeros((4, 3)))


def test_names_of_the_state() -> None:
    step = rx.VirtualMachine(rx.build(counter())).bind_state("main", {"total": ONE})
    with pytest.raises(CallError, match="keeps no 'x'; its state is total"):
        step.reset({"x": ONE})
    with pytest.raises(KeyError):
        step.state["x"]
    with pytest.raises(KeyError):
        step.state["x"] = ONE
    with pytest.raises(TypeError, match="cannot be removed"):
        del step.state["total"]
