"""The machine: arguments in every form, dtypes exact, shapes specialised, errors by name."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Generator
from types import FrameType
from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest
import torch

import relax2xla as rx
from relax2xla import op as R
from relax2xla import tir
from relax2xla.errors import CallError, DeviceError, RunError, StableHLOParseError, TVMError
from relax2xla.importers.stablehlo import from_stablehlo
from relax2xla.script import from_source
from relax2xla.vm.pjrt import xla

T = rx.TensorStructInfo


def function(
    params: dict[str, rx.StructInfo], body: Callable[..., rx.Expr], name: str = "main"
) -> rx.IRModule:
    builder = rx.BlockBuilder()
    variables = [rx.Var(n, i) for n, i in params.items()]
    with builder.function(name, variables):
        with builder.dataflow():
            out = builder.emit_output(body(*variables))
        builder.emit_func_output(out)
    return builder.get()


def machine(mod: rx.IRModule, **kw: Any) -> rx.VirtualMachine:
    return rx.VirtualMachine(rx.build(mod, **kw))


def doubled(dtype: str = "float32", shape: tuple[Any, ...] = (3,)) -> rx.VirtualMachine:
    return machine(function({"x": T(shape, dtype)}, lambda x: R.add(x, x)))


@pytest.mark.parametrize(
    "make",
    [
        np.asarray,
        lambda v: jax.device_put(v),
        torch.from_numpy,
        lambda v: torch.from_numpy(v).clone().requires_grad_(),
        lambda v: v.tolist(),
    ],
    ids=["numpy", "jax", "torch", "torch-grad", "list"],
)
@pytest.mark.parametrize("road", ["jit", "pjrt"])
def test_arguments_of_every_kind(make: Callable[[Any], Any], road: str) -> None:
    value = np.array([1.5, -2.0, 0.25], np.float32)
    weights = [np.full(128, i, np.float32) + np.arange(128, dtype=np.float32) for i in range(20)]

    def body(x: rx.Expr) -> rx.Expr:
        y: rx.Expr = R.add(x, x)
        if road == "pjrt":
            for w in weights:
                y = R.add(y, R.sum(rx.const(w)))
        return y

    vm = machine(function({"x": T((3,), "float32")}, body), relax_pipeline="zero")
    result = vm["main"](make(value) if callable(make) else value)
    assert isinstance(result, jax.Array)
    expected = value * 2 + (sum(w.sum() for w in weights) if road == "pjrt" else 0)
    np.testing.assert_allclose(np.asarray(result), expected, rtol=1e-6)


@pytest.mark.parametrize(
    "dtype", ["int64", "uint64", "float64", "complex128", "int8", "bfloat16", "float16", "bool"]
)
def test_dtypes_are_exact_whatever_the_x64_flag(dtype: str) -> None:
    host = np.array([0, 1, 1]).astype(rx.dtypes.numpy_dtype(dtype))
    if dtype in ("int64", "uint64"):
        host = host * (2**40 + 1)
    if dtype == "float64":
        host = host * (1 + 2**-40)
    vm = machine(function({"x": T((3,), dtype)}, lambda x: R.flip(x, axis=0)))
    result = vm["main"](host)
    assert result.dtype == host.dtype
    np.testing.assert_array_equal(np.asarray(result), host[::-1])
    assert not jax.config.jax_enable_x64


def test_torch_bfloat16() -> None:
    value = torch.tensor([1.0, 2.5, -3.0], dtype=torch.bfloat16)
    result = doubled("bfloat16")["main"](value)
    assert result.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(np.asarray(result, np.float32), (value * 2).float().numpy())


def test_arguments_are_copied() -> None:
    vm = machine(function({"x": T((64,), "int64")}, lambda x: R.flatten(x)))
    value = np.zeros(64, np.int64)
    result = vm["main"](value)
    value[:] = 7
    np.testing.assert_array_equal(np.asarray(result), np.zeros(64))


def test_dtypes_that_cannot_be_placed() -> None:
    vm = machine(function({"x": T((2,), "float6_e2m3fn")}, lambda x: R.astype(x, "float32")))
    with pytest.raises(CallError, match="no arrays of float6_e2m3fn on a device; pass"):
        vm["main"](np.ones(2, ml_dtypes.float6_e2m3fn))
    # Where jaxlib places them, XLA makes invalid code of what uses them, or ends the process.
    with pytest.raises(CallError, match="no arrays of float6_e2m3fn on a device; pass"):
        vm["main"].specialised.program([T((2,), "float6_e2m3fn")])


def test_numbers_for_scalars() -> None:
    vm = machine(function({"x": T((), "float32")}, lambda x: R.add(x, x)))
    assert float(vm["main"](1.5)) == 3.0
    vm = machine(function({"x": T((), "int64")}, lambda x: R.add(x, x)))
    assert int(vm["main"](2**40)) == 2**41
    with pytest.raises(CallError, match="does not fit int64 exactly"):
        vm["main"](1.5)


def test_symbolic_shapes_are_specialised_and_cached() -> None:
    n, m = tir.Var("n"), tir.Var("m")
    mod = function(
        {"x": T((n, m), "float64"), "y": T((m,), "float64"), "z": T((n + 1,), "float64")},
        lambda x, y, z: R.concat((R.sum(R.add(x, y), axis=1), z)),
    )
    vm = machine(mod)
    f = vm["main"]
    for rows, columns in [(2, 3), (4, 1), (2, 3)]:
        x, y, z = np.ones((rows, columns)), np.arange(columns) * 1.0, np.zeros(rows + 1)
        expected = np.concatenate([(x + y).sum(1), z])
        np.testing.assert_allclose(np.asarray(f(x, y, z)), expected)
    assert len(f.specialised.held) == 2
    with pytest.raises(CallError, match=r"`y`.*4 in dimension 0, expected 3 \(m\)"):
        f(np.ones((2, 3)), np.ones(4), np.ones(3))
    with pytest.raises(CallError, match=r"`z`.*2 in dimension 0, expected 3"):
        f(np.ones((2, 3)), np.ones(3), np.ones(2))


def test_the_cache_forgets_the_least_recently_used() -> None:
    executable = rx.build(function({"x": T((tir.Var("n"),), "float64")}, lambda x: R.add(x, x)))
    f = rx.VirtualMachine(executable, max_programs=2)["main"]
    for size in (1, 2, 1, 3):
        np.testing.assert_array_equal(np.asarray(f(np.ones(size))), np.full(size, 2.0))
    assert [key[0][0] for key in f.specialised.held] == [(1,), (3,)]
    with pytest.raises(ValueError, match="max_programs must be at least 1"):
        rx.VirtualMachine(executable, max_programs=0)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_wrong_calls_name_function_parameter_expected_and_given(dtype: str) -> None:
    vm = machine(
        function(
            {"x": T((2, 3), dtype), "y": T((3,), dtype)}, lambda x, y: R.add(x, y), name="forward"
        )
    )
    f = vm["forward"]
    x, y = np.ones((2, 3), dtype), np.ones(3, dtype)
    for args, expected in [
        ((x, np.ones(3, "int32")), r"forward.*`y`.*dtype int32, expected " + dtype),
        ((x, np.ones((3, 1), dtype)), r"forward.*`y`.*ndim 2, expected 1"),
        ((x, np.ones(4, dtype)), r"forward.*`y`.*4 in dimension 0, expected 3"),
        ((x,), r"forward takes 2 arguments \(x, y\); got 1"),
        ((x, y, y), r"forward takes 2 arguments \(x, y\); got 3"),
        ((x, "text"), r"forward.*argument 1.*expected an array"),
        ((x, None), r"forward.*argument 1.*NoneType"),
    ]:
        with pytest.raises(CallError, match=expected):
            f(*args)
    with pytest.raises(CallError, match=r"no parameter 'z'"):
        f(x, z=y)
    with pytest.raises(CallError, match=r"missing y"):
        f(x=x)
    with pytest.raises(CallError, match=r"missing y; x given twice"):
        f(x, x=x)
    np.testing.assert_array_equal(np.asarray(f(y=y, x=x)), x + y)


def test_float64_numpy_is_not_narrowed_for_float32() -> None:
    with pytest.raises(CallError, match="dtype float64, expected float32"):
        doubled("float32")["main"](np.ones(3))


def test_tuples_in_and_out() -> None:
    info = rx.TupleStructInfo([T((2,)), rx.TupleStructInfo([T((2,), "int32")])])
    builder = rx.BlockBuilder()
    x = rx.Var("x", info)
    with builder.function("main", [x]):
        a, inner = builder.emit(x[0]), builder.emit(x[1])
        b = builder.emit(inner[0])
        builder.emit_func_output(rx.Tuple([b, rx.Tuple([R.add(a, a)]), rx.Tuple([])]))
    vm = machine(builder.get())
    b_out, (a_out,), empty = vm["main"]((np.ones(2, "f"), (np.arange(2, dtype="i4"),)))
    np.testing.assert_array_equal(np.asarray(a_out), [2, 2])
    np.testing.assert_array_equal(np.asarray(b_out), [0, 1])
    assert empty == ()
    with pytest.raises(CallError, match=r"`x`\[1\] must be a tuple of 1"):
        vm["main"]((np.ones(2, "f"), np.arange(2, dtype="i4")))


def test_shapes_and_numbers_as_arguments_and_results() -> None:
    n = tir.Var("n")
    builder = rx.BlockBuilder()
    s = rx.Var("s", rx.ShapeStructInfo((n, 2)))
    x = rx.Var("x", T((n,)))
    with builder.function("main", [s, x]):
        total = builder.emit(R.add(x, x))
        builder.emit_func_output(rx.Tuple([total, rx.ShapeExpr([n * 2]), rx.PrimValue(n + 1)]))
    out, shape, number = machine(builder.get())["main"]((3, 2), np.ones(3, "f"))
    np.testing.assert_array_equal(np.asarray(out), [2, 2, 2])
    assert shape == (6,)
    assert number == 4


def test_calls_between_functions() -> None:
    builder = rx.BlockBuilder()
    a = rx.Var("a", T((2,)))
    with builder.function("main", [a], private=True):
        builder.emit_func_output(builder.emit(R.multiply(a, a)))
    helper = builder.get().get_global_var("main")
    x = rx.Var("x", T((2,)))
    with builder.function("entry", [x]):
        y = builder.emit(rx.Call(helper, [x]))
        builder.emit_func_output(builder.emit(R.add(y, rx.Call(helper, [y]))))
    vm = machine(builder.get())
    # A private function called main must not be taken for the entry of the program.
    np.testing.assert_array_equal(np.asarray(vm["entry"](np.array([1, 2], "f"))), [2, 20])


def test_symbolic_callees_are_inlined() -> None:
    n = tir.Var("n")
    builder = rx.BlockBuilder()
    a = rx.Var("a", T((n,), "float64"))
    with builder.function("helper", [a], private=True):
        builder.emit_func_output(builder.emit(R.concat((a, a))))
    helper = builder.get().get_global_var("helper")
    m = tir.Var("m")
    x = rx.Var("x", T((m,), "float64"))
    with builder.function("main", [x]):
        y = builder.emit(rx.Call(helper, [x]))
        builder.emit_func_output(builder.emit(rx.Call(helper, [y])))
    result = machine(builder.get())["main"](np.arange(2.0))
    np.testing.assert_array_equal(np.asarray(result), np.tile(np.arange(2.0), 4))


def test_branches() -> None:
    mod = rx.script.from_source(
        """
@R.function
def main(c: R.Tensor((), "bool"), x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
    if c:
        a: R.Tensor((2,), "float32") = R.add(x, x)
        y: R.Tensor((2,), "float32") = R.multiply(a, x)
    else:
        y: R.Tensor((2,), "float32") = R.negative(x)
    return y
"""
    )
    f = machine(mod)["main"]
    x = np.array([1, 3], "f")
    np.testing.assert_array_equal(np.asarray(f(np.True_, x)), 2 * x * x)
    np.testing.assert_array_equal(np.asarray(f(np.False_, x)), -x)


def test_recursion_without_end_is_a_clear_error() -> None:
    gvar = rx.GlobalVar("main", rx.FuncStructInfo([T((2,))], T((2,))))
    x = rx.Var("x", T((2,)))
    body = R.add(rx.Call(gvar, [x]), x)
    func = rx.Function([x], body, T((2,)), attrs={"global_symbol": "main"})
    with pytest.raises(RunError, match="recurses deeper than"):
        machine(rx.IRModule({gvar: func}))["main"](np.ones(2, "f"))


def test_inside_other_jax_transformations(rng: np.random.Generator) -> None:
    f = doubled("float32", (3,))["main"]
    x = rng.standard_normal(3).astype("f")
    np.testing.assert_allclose(np.asarray(jax.jit(lambda v: f(v) + 1)(x)), 2 * x + 1, rtol=1e-6)


def test_many_threads(rng: np.random.Generator) -> None:
    f = doubled("float64", (tir.Var("n"),))["main"]
    failures: list[str] = []

    def work(seed: int) -> None:
        for i in range(30):
            x = np.full(1 + (seed + i) % 4, float(seed))
            if not np.array_equal(np.asarray(f(x)), x * 2):
                failures.append(f"{seed} {i}")

    threads = [threading.Thread(target=work, args=(s,)) for s in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures


def test_weights_are_shared_arguments_and_results_exact(rng: np.random.Generator) -> None:
    w = rng.standard_normal((40, 50)).astype("f")
    mod = function(
        {"x": T((3, 40))},
        lambda x: R.matmul(x, R.multiply(rx.const(w), rx.const(np.float32(2)))),
    )
    executable = rx.build(mod)
    assert "1 weight, " in executable.stats()
    assert "computed once at load" in executable.stats()
    x = rng.standard_normal((3, 40)).astype("f")
    result = rx.VirtualMachine(executable)["main"](x)
    np.testing.assert_allclose(np.asarray(result), x @ (w * 2), rtol=1e-4, atol=1e-5)


def test_params_by_name_and_by_function(rng: np.random.Generator) -> None:
    w = rng.standard_normal((3,)).astype("f")
    mod = function({"x": T((3,)), "w": T((3,))}, lambda x, w: R.multiply(x, w))
    x = np.ones(3, "f")
    for params in ({"w": w}, {"main": [w]}):
        vm = machine(mod, params=params)
        np.testing.assert_array_equal(np.asarray(vm["main"](x)), w)
    with pytest.raises(TVMError, match="parameter 'v'"):
        rx.build(mod, params={"v": w})
    with pytest.raises(TVMError, match="4 in dimension 0"):
        rx.build(mod, params={"w": np.ones(4, "f")})


def test_devices_and_targets() -> None:
    mod = function({"x": T((3,))}, lambda x: R.add(x, x))
    for target in (None, "llvm", "cpu", rx.cpu(), rx.cpu(0)):
        result = rx.VirtualMachine(rx.build(mod, target))["main"](np.ones(3, "f"))
        np.testing.assert_array_equal(np.asarray(result), [2, 2, 2])
    with pytest.raises(DeviceError, match="there is no device cpu:99"):
        rx.VirtualMachine(rx.build(mod), rx.cpu(99))
    with pytest.raises(DeviceError, match="unknown device 'abacus'"):
        rx.build(mod, "abacus")
    with pytest.raises(ValueError, match="exec_mode"):
        rx.build(mod, exec_mode="interpreted")
    with pytest.raises(ValueError, match="unknown pipeline"):
        rx.build(mod, relax_pipeline="fastest")


def test_unknown_function_and_no_function() -> None:
    mod = function({"x": T((3,))}, lambda x: R.add(x, x))
    with pytest.raises(TVMError, match="no function 'man'; it has main"):
        rx.VirtualMachine(rx.build(mod))["man"]
    private = rx.IRModule({g.name_hint: f.without_attr("global_symbol") for g, f in mod.items()})
    assert rx.VirtualMachine(rx.build(private))["main"](np.ones(3, "f")).tolist() == [2, 2, 2]
    with pytest.raises(TVMError, match="no function to build"):
        rx.build(rx.IRModule())
    with pytest.raises(TypeError, match="takes what relax2xla"):
        rx.VirtualMachine(mod)  # pyright: ignore[reportArgumentType]


def test_warm_compiles_ahead() -> None:
    vm = doubled("float64", (tir.Var("n"),))
    vm.warm("main", T((5,), "float64"))
    assert len(vm["main"].specialised.held) == 1
    vm["main"](np.ones(5))
    assert len(vm["main"].specialised.held) == 1
    with pytest.raises(CallError, match="not static"):
        vm.warm("main")
    doubled("float32").warm("main")
    with pytest.raises(CallError, match="no array has; give the struct info"):
        doubled("").warm("main")


def test_a_call_of_what_is_no_function() -> None:
    mod = from_source("""
@R.function
def main(x: R.Tensor((2, 3), "float32")):
    return R.invoke_pure_closure(R.null_value(), (x,), sinfo_args=R.Tensor((2, 3), "float32"))
""")
    with pytest.raises(RunError, match="calls a value that is no function"):
        rx.VirtualMachine(rx.build(mod))["main"](np.ones((2, 3), np.float32))


def test_nan_in_minimum_and_maximum() -> None:
    mod = function({"x": T((2,)), "y": T((2,))}, lambda x, y: R.maximum(x, y))
    for road in ("jit", "pjrt"):
        f = machine(mod)["main"]
        args = [np.array([np.nan, 1], "f"), np.array([0, np.nan], "f")]
        result = f(*args) if road == "jit" else f._road.run(args)
        assert np.isnan(np.asarray(result)).all()


def test_value_info_and_device_put() -> None:
    placed = xla.device_put(np.arange(3), None)
    assert xla.value_info(placed) == T((3,), "int64")


DEEP = """
@I.ir_module
class Module:
    @R.function
    def main(n: R.Tensor((), "int64")) -> R.Tensor((), "int64"):
        cls = Module
        c = R.less_equal(n, R.const(0, "int64"))
        if c:
            r = n
        else:
            m = R.subtract(n, R.const(1, "int64"))
            k = cls.main(m)
            r = R.add(k, R.const(1, "int64"))
        return r
"""


def test_recursion_deeper_than_python_allows() -> None:
    limit = sys.getrecursionlimit()
    vm = rx.VirtualMachine(rx.build(from_source(DEEP)))
    depth = limit + 500
    assert int(vm["main"](depth)) == depth
    assert int(vm["main"](3)) == 3
    assert sys.getrecursionlimit() == limit


@contextlib.contextmanager
def interrupted(seconds: float) -> Generator[None]:
    """KeyboardInterrupt after a while, as Ctrl-C gives it."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        if frame is not None and "torch" in frame.f_code.co_filename:
            # Its callback of the garbage collector would swallow the exception.
            signal.setitimer(signal.ITIMER_REAL, 0.001)
        else:
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        with pytest.raises(KeyboardInterrupt):
            yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_an_interrupt_while_compiling_leaves_the_machine_usable() -> None:
    def body(x: rx.Expr) -> rx.Expr:
        for _ in range(400):
            x = R.add(R.sin(x), x)
        return x

    vm = machine(function({"x": T((tir.Var("n"),), "float32")}, body))
    for i, seconds in enumerate((0.005, 0.02, 0.1)):
        with interrupted(seconds):
            while True:  # until the interrupt comes, whatever it falls into
                vm["main"](np.zeros(8 + i, np.float32))
                vm["main"].specialised.held.clear()
                vm["main"]._road.forget()
    np.testing.assert_array_equal(vm["main"](np.zeros(8, np.float32)), np.zeros(8))


def test_an_interrupt_in_a_loop_of_bytecode_leaves_the_machine_usable() -> None:
    source = """
@R.function(pure=False)
def main(x: R.Tensor((), "int64"), more: R.Tensor((), "bool")) -> R.Tensor((), "int64"):
    @R.function(pure=False)
    def loop(x: R.Tensor((), "int64"), more: R.Tensor((), "bool")) -> R.Tensor((), "int64"):
        _ = R.call_packed("test_machine.step", sinfo_args=R.Object)
        if more:
            y = R.add(x, R.const(1, "int64"))
            r = loop(y, more)
        else:
            r = x
        return r
    q = loop(x, more)
    return q
"""
    rx.register_func("test_machine.step", lambda: None, override=True)
    vm = rx.VirtualMachine(rx.build(from_source(source)))
    assert int(vm["main"](5, False)) == 5
    with interrupted(0.05):
        vm["main"](0, True)
    assert int(vm["main"](7, False)) == 7


@pytest.mark.parametrize("road", ["jit", "pjrt", "bytecode"])
def test_eight_threads_call_one_machine(road: str) -> None:
    n = tir.Var("n")
    weights = [np.full(128, i, np.float32) + np.arange(128, dtype=np.float32) for i in range(20)]

    def body(x: rx.Expr) -> rx.Expr:
        y: rx.Expr = R.add(x, x)
        if road == "pjrt":
            for w in weights:
                y = R.add(y, R.sum(rx.const(w)))
        return y

    if road == "bytecode":
        source = """
@R.function(pure=False)
def main(x: R.Tensor(("n",), "float32")):
    y = R.call_packed("test_machine.same", x, sinfo_args=R.Tensor(ndim=1, dtype="float32"))
    return R.add(y, y)
"""
        rx.register_func("test_machine.same", lambda x: x, override=True)
        mod: Any = from_source(source)
    else:
        mod = function({"x": T((n,), "float32")}, body)
    f = rx.VirtualMachine(rx.build(mod, relax_pipeline="zero"))["main"]
    extra = sum(float(w.sum()) for w in weights) if road == "pjrt" else 0.0
    wrong: list[Any] = []

    def work(seed: int) -> None:
        for i in range(250):
            value = np.full(1 + (seed + i) % 3, seed * 1000 + i, np.float32)
            given = jax.device_put(value) if i % 2 else value
            result = f(given)
            value[:] = -1  # the caller's own memory
            expected = 2.0 * (seed * 1000 + i) + extra
            if result.shape != value.shape or not np.allclose(result, expected, rtol=1e-6):
                wrong.append((seed, i, np.asarray(result), expected))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_a_cast_that_fails_is_the_same_error_in_a_region_and_on_the_host() -> None:
    for line in ("h = x", '_ = R.print(x, format="")'):
        source = f"""
@R.function(pure=False)
def main(x: R.Tensor(("n",), "float32")):
    {line}
    y = R.exp(x)
    z = R.match_cast(y, R.Tensor((3,), "float32"))
    return R.add(z, z)
"""
        f = rx.VirtualMachine(rx.build(from_source(source)))["main"]
        for _ in range(2):
            assert f(np.ones(3, np.float32)).shape == (3,)
            with pytest.raises(CallError, match=r"R\.match_cast of z: .*4 in dimension 0"):
                f(np.ones(4, np.float32))


def test_the_log_says_which_dimension_changed(caplog: pytest.LogCaptureFixture) -> None:
    n = tir.Var("n")
    mod = function({"x": T((n, 2), "float32"), "y": T((n,), "float32")}, lambda x, y: R.sum(x))
    f = rx.VirtualMachine(rx.build(mod), warn_after=3)["main"]
    with caplog.at_level("INFO", "relax2xla.vm"):
        for size in (1, 1, 4, 1, 7, 8):
            f(np.ones((size, 2), np.float32), np.ones(size, np.float32))
            with pytest.raises(CallError, match="argument for parameter `y`"):
                f(np.ones((2, 2), np.float32), np.ones(3, np.float32))
    texts = [(r.levelname, r.getMessage()) for r in caplog.records]
    assert texts[0] == (
        "INFO",
        "main: compiling again (2), dimension 0 (n) of `x` was 1 and is 4, "
        "dimension 0 (n) of `y` was 1 and is 4",
    )
    warnings = [m for level, m in texts if level == "WARNING"]
    assert len(warnings) == 1
    assert "main has compiled for 3 call shapes" in warnings[0]
    assert len(texts) == 4


def test_sizes_that_constants_of_a_program_say() -> None:
    """No argument has a symbolic size, and sizes that arguments hold XLA cannot know."""
    text = """func.func @main(%a: tensor<10xf32>, %n: tensor<1xi64>) -> tensor<?xf32> {
      %c = stablehlo.constant dense<0.0> : tensor<f32>
      %low = stablehlo.constant dense<1> : tensor<1xi64>
      %none = stablehlo.constant dense<0> : tensor<1xi64>
      %0 = stablehlo.dynamic_pad %a, %c, %low, %none, %none : (tensor<10xf32>, tensor<f32>,
        tensor<1xi64>, tensor<1xi64>, tensor<1xi64>) -> tensor<?xf32>
      return %0 : tensor<?xf32>
    }"""
    x, n = np.arange(10, dtype=np.float32), np.ones(1, np.int64)
    made = rx.VirtualMachine(rx.build(from_stablehlo(text)))["main"](x, n)
    np.testing.assert_array_equal(made, [0, *x])
    by_value = rx.VirtualMachine(rx.build(from_stablehlo(text.replace("%low,", "%n,"))))["main"]
    with pytest.raises(StableHLOParseError, match="dynamic_pad' op has dynamic shapes"):
        by_value(x, n)
