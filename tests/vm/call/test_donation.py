"""Donated arguments: memory reused by XLA's own report, arrays gone, misuse said."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import relax2xla as rx
from relax2xla import op as R
from relax2xla.errors import CallError, TVMError
from relax2xla.frontend.stablehlo import from_stablehlo
from relax2xla.interop.jax import from_jax
from relax2xla.script import from_source
from relax2xla.vm.call.bound import BoundFunction
from relax2xla.vm.call.roads import JIT_ARGUMENTS

T = rx.TensorStructInfo
SHAPE = (8, 64)
BYTES = 8 * 64 * 4


def update(extra: int = 0, attrs: Mapping[str, Any] | None = None, dtype: str = "float32") -> Any:
    """(x, k, v) -> (sum, k + x, v * x); ``extra`` more arguments take it off the jitted road."""
    builder = rx.BlockBuilder()
    params = [rx.Var(n, T(SHAPE, dtype)) for n in ("x", "k", "v")]
    params += [rx.Var(f"e{i}", T((1,), dtype)) for i in range(extra)]
    x, k, v, *rest = params
    with builder.function("main", params, dict(attrs or {})):
        with builder.dataflow():
            total = builder.emit(R.sum(x))
            for e in rest:
                total = builder.emit(R.add(total, R.sum(e)))
            fields = [total, builder.emit(R.add(k, x)), builder.emit(R.multiply(v, x))]
            out = builder.emit_output(rx.Tuple(fields))
        builder.emit_func_output(out)
    return builder.get()


def arrays(rng: np.random.Generator, extra: int = 0, dtype: str = "float32") -> list[np.ndarray]:
    made = [rng.standard_normal(SHAPE).astype(dtype) for _ in range(3)]
    return made + [np.ones(1, dtype)] * extra


def memory(function: Any) -> tuple[int, str]:
    """Bytes that arguments and results share by XLA's account, and its header of the program."""
    (loaded,) = function.programs()
    return loaded.memory().alias_size_in_bytes, loaded.hlo_text().splitlines()[0]


@pytest.mark.parametrize("extra", [0, JIT_ARGUMENTS])
def test_memory_is_reused_on_both_roads(extra: int, rng: np.random.Generator) -> None:
    vm = rx.VirtualMachine(rx.build(update(extra), donate=["k", 2]))
    x, k, v, *rest = arrays(rng, extra)
    given = [jax.numpy.array(a) for a in (x, k, v)]  # copies: XLA keeps numpy's memory as it is
    for step in range(1, 4):
        place = [a.unsafe_buffer_pointer() for a in given[1:]]
        _, *new = vm["main"](*given, *rest)
        assert [a.is_deleted() for a in given] == [False, True, True]
        assert [a.unsafe_buffer_pointer() for a in new] == place
        given[1:] = new
        np.testing.assert_allclose(given[1], k + step * x, rtol=1e-5)
        np.testing.assert_allclose(given[2], v * x**step, rtol=1e-4)
    shared, header = memory(vm["main"])
    assert shared == 2 * BYTES
    assert "input_output_alias={ {1}: (1, {}, may-alias), {2}: (2, {}, may-alias) }" in header


@pytest.mark.parametrize("extra", [0, JIT_ARGUMENTS])
def test_numpy_arguments_stay_as_they_are(extra: int, rng: np.random.Generator) -> None:
    vm = rx.VirtualMachine(rx.build(update(extra), donate=("k", "v")))
    x, k, v, *rest = arrays(rng, extra)
    before = k.copy()
    for _ in range(3):
        _, new, _ = vm["main"](x, k, jax.device_put(v), *rest)
        np.testing.assert_allclose(new, before + x, rtol=1e-6)
        np.testing.assert_array_equal(k, before)


def test_a_numpy_view_of_a_donated_array_stays(rng: np.random.Generator) -> None:
    vm = rx.VirtualMachine(rx.build(update(), donate=["k"]))
    x, k, v = map(jax.device_put, arrays(rng))
    view = np.asarray(k)
    before = view.copy()
    _, new, _ = vm["main"](x, k, v)
    np.testing.assert_array_equal(view, before)
    np.testing.assert_allclose(new, before + np.asarray(x), rtol=1e-6)
    assert k.is_deleted()


def test_without_donation_nothing_is_deleted(rng: np.random.Generator) -> None:
    vm = rx.VirtualMachine(rx.build(update()))
    given = [jax.device_put(a) for a in arrays(rng)]
    vm["main"](*given)
    assert not any(a.is_deleted() for a in given)
    assert memory(vm["main"])[0] == 0


def test_the_attribute_and_names_at_the_call(rng: np.random.Generator) -> None:
    vm = rx.VirtualMachine(rx.build(update(attrs={"donate": ["v"]}), donate={"main": ["k"]}))
    x, k, v = map(jax.device_put, arrays(rng))
    vm["main"](v=v, x=x, k=k)
    assert (x.is_deleted(), k.is_deleted(), v.is_deleted()) == (False, True, True)


def test_tuples_are_donated_whole_and_64_bit_too(rng: np.random.Generator) -> None:
    builder = rx.BlockBuilder()
    info = rx.TupleStructInfo([T((5,), "float64"), T((3,), "int64")])
    x, state = rx.Var("x", T((), "int64")), rx.Var("state", info)
    with builder.function("main", [x, state]):
        a = builder.emit(R.multiply(rx.TupleGetItem(state, 0), rx.const(2.0, "float64")))
        b = builder.emit(R.add(rx.TupleGetItem(state, 1), x))
        builder.emit_func_output(rx.Tuple([a, b]))
    vm = rx.VirtualMachine(rx.build(builder.get(), donate="state"))
    with jax.enable_x64(True):
        given = (jax.device_put(np.ones(5)), jax.device_put(np.array([2**40] * 3)))
    a, b = vm["main"](np.int64(1), given)
    assert all(v.is_deleted() for v in given)
    assert memory(vm["main"])[0] == 5 * 8 + 3 * 8
    np.testing.assert_array_equal(b, [2**40 + 1] * 3)
    np.testing.assert_array_equal(a, [2.0] * 5)


def test_what_no_result_can_use_is_deleted_all_the_same(rng: np.random.Generator) -> None:
    vm = rx.VirtualMachine(rx.build(update(), donate=["x", "k", "v"]))
    given = [jax.device_put(a) for a in arrays(rng)]
    vm["main"](*given)
    assert all(a.is_deleted() for a in given)


def test_symbolic_shapes(rng: np.random.Generator) -> None:
    mod = from_source("""
@I.ir_module
class M:
    @R.function
    def main(x: R.Tensor(("n", 4), "float32"), y: R.Tensor(("n", 4), "float32")):
        R.func_attr({"donate": ["y"]})
        return R.add(x, y)
""")
    vm = rx.VirtualMachine(rx.build(mod))
    for n in (2, 3, 2):
        x, y = (rng.standard_normal((n, 4)).astype(np.float32) for _ in range(2))
        dy = jax.device_put(y)
        np.testing.assert_allclose(vm["main"](x, dy), x + y, rtol=1e-6)
        assert dy.is_deleted()
    function = vm["main"]
    assert isinstance(function, BoundFunction)
    assert {p.memory().alias_size_in_bytes for p in function.programs()} == {32, 48}


def test_saved_executables_donate_too(tmp_path: Path, rng: np.random.Generator) -> None:
    rx.build(update(), donate=["k"]).export_library(tmp_path / "m.r2x")
    for compiled in (True, False):
        vm = rx.VirtualMachine(rx.load_module(tmp_path / "m.r2x", compiled=compiled))
        x, k, v = map(jax.device_put, arrays(rng))
        expected = np.asarray(x) + np.array(k)
        np.testing.assert_allclose(vm["main"](x, k, v)[1], expected, rtol=1e-6)
        assert k.is_deleted()
        assert not v.is_deleted()
        assert memory(vm["main"])[0] == BYTES


@pytest.mark.parametrize("extra", [0, JIT_ARGUMENTS])
def test_wrong_calls_between_good_ones(extra: int, rng: np.random.Generator) -> None:
    vm = rx.VirtualMachine(rx.build(update(extra), donate=["k"]))
    x, k, v, *rest = arrays(rng, extra)
    gone = jax.device_put(k)
    vm["main"](x, gone, v, *rest)
    with pytest.raises(CallError, match=r"`k` is deleted: an earlier call.*copy"):
        vm["main"](x, gone, v, *rest)
    twice = jax.device_put(k)
    with pytest.raises(CallError, match=r"donated parameter `k` is passed twice"):
        vm["main"](x, twice, twice, *rest)
    assert not twice.is_deleted()
    with pytest.raises(CallError):
        vm["main"](x, twice)
    with pytest.raises(CallError):
        vm["main"](x[:2], twice, v, *rest)
    assert not twice.is_deleted()
    np.testing.assert_allclose(vm["main"](x, twice, v, *rest)[1], x + k, rtol=1e-6)


def test_calls_within_jax_jit_donate_nothing(rng: np.random.Generator) -> None:
    main = rx.VirtualMachine(rx.build(update(), donate=["k"]))["main"]
    x, k, v = map(jax.device_put, arrays(rng))
    got = jax.jit(lambda x, k, v: main(x, k, v)[1])(x, k, v)
    np.testing.assert_allclose(got, np.asarray(x) + np.asarray(k), rtol=1e-6)
    assert not k.is_deleted()


TWICE = """
@I.ir_module
class M:
    @R.function
    def main(x: R.Tensor((4,), "float32"), n: R.Shape(["m"])):
        y = x
        return (R.nn.relu(x), x, (y,))
"""
HOST = """
@I.ir_module
class M:
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        return R.nonzero(x)
"""
PRIVATE = """
@I.ir_module
class M:
    @R.function(private=True)
    def helper(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        R.func_attr({"donate": ["x"]})
        return R.nn.relu(x)

    @R.function
    def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        return M.helper(x)
"""


@pytest.mark.parametrize(
    ("text", "donate", "message"),
    [
        (TWICE, ["x"], r"main returns its parameter `x` 2 times"),
        (TWICE, ["n"], r"`n` of main is Shape.*only tensors"),
        (TWICE, ["y"], r"main has no parameter 'y'; it has x, n"),
        (TWICE, [7], r"main has no parameter 7"),
        (TWICE, [-1], r"main has no parameter -1"),
        (TWICE, ["x", 0], r"the parameter `x` of main is there twice"),
        (TWICE, {"step": ["x"]}, r"the function 'step'; the public ones are main"),
        (HOST, ["x"], r"main is no single XLA program.*relax\.nonzero"),
        (PRIVATE, None, r"helper has the attribute `donate` and is private"),
    ],
)
def test_what_cannot_be_donated(text: str, donate: Any, message: str) -> None:
    with pytest.raises(TVMError, match=message):
        rx.build(from_source(text), donate=donate)


def test_weights_cannot_be_donated(rng: np.random.Generator) -> None:
    x, k, v = arrays(rng)
    with pytest.raises(TVMError, match=r"`k` of main is a weight, bound by `params`"):
        rx.build(update(), params={"k": k}, donate=["k"])
    vm = rx.VirtualMachine(rx.build(update(), params={"k": k}, donate=["v"]))
    dv = jax.device_put(v)
    np.testing.assert_allclose(vm["main"](x, dv)[2], v * x, rtol=1e-6)
    assert dv.is_deleted()
    with pytest.raises(TypeError, match="names or places"):
        rx.build(update(), donate=[1.5])  # pyright: ignore[reportArgumentType]


# ---- what an imported program marks
MARKED = """func.func public @main(%a: tensor<4xf32> {jax.buffer_donor = true},
    %b: tensor<4xf32>, %c: tensor<4xf32> {tf.aliasing_output = 0 : i32}) -> tensor<4xf32> {
  %0 = stablehlo.add %a, %b : tensor<4xf32>
  %1 = stablehlo.add %0, %c : tensor<4xf32>
  return %1 : tensor<4xf32> }"""


def test_marks_of_a_program_are_said_to_be_ignored(caplog: pytest.LogCaptureFixture) -> None:
    args = [jax.device_put(np.full(4, i, "f")) for i in range(3)]
    vm = rx.VirtualMachine(rx.build(from_stablehlo(MARKED)))
    assert len(caplog.records) == 1
    assert "main: that the program donates arg0, arg2 is ignored" in caplog.text
    assert "build(mod, donate=True)" in caplog.text
    for _ in range(2):
        np.testing.assert_array_equal(vm["main"](*args), np.full(4, 3.0))
    assert not any(a.is_deleted() for a in args)
    assert len(caplog.records) == 1


def test_marks_of_a_program_are_honoured_where_that_is_asked(
    caplog: pytest.LogCaptureFixture,
) -> None:
    vm = rx.VirtualMachine(rx.build(from_stablehlo(MARKED), donate=True))
    args = [jax.device_put(np.full(4, i, "f")) for i in range(3)]
    np.testing.assert_array_equal(vm["main"](*args), np.full(4, 3.0))
    assert [a.is_deleted() for a in args] == [True, False, True]
    # Names say themselves what is donated; a program without marks donates nothing.
    rx.build(from_stablehlo(MARKED), donate=["arg1"])
    vm = rx.VirtualMachine(rx.build(from_stablehlo(MARKED.replace("true", "false")), donate=True))
    args = [jax.device_put(np.full(4, i, "f")) for i in range(3)]
    vm["main"](*args)
    assert [a.is_deleted() for a in args] == [False, False, True]
    assert not caplog.records


def test_a_jitted_function_says_what_it_donates(caplog: pytest.LogCaptureFixture) -> None:
    def step(state: Any, x: Any) -> Any:
        return {"s": state["s"] + x}, x.sum()

    value = np.ones(4, np.float32)
    mod = from_jax(jax.jit(step, donate_argnums=0), {"s": value}, value)
    assert "jax.buffer_donor = true" in rx.to_stablehlo(mod)
    rx.build(mod)
    assert "donates state_s is ignored" in caplog.text
    vm = rx.VirtualMachine(rx.build(mod, donate=True))
    args = [jax.device_put(value) for _ in range(2)]
    np.testing.assert_array_equal(vm["main"](*args)[0], value * 2)
    assert [a.is_deleted() for a in args] == [True, False]
