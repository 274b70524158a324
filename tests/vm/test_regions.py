"""Functions that XLA cannot hold whole: where they are cut, what they compute, how they fail."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import pytest

import relax2xla as rx
from relax2xla.errors import AssertError, CallError, LegalizeError, TVMError
from relax2xla.runtime import list_global_func_names, remove_global_func
from relax2xla.script import from_source
from relax2xla.vm.interpreter import VMFunction

HEAD = "from tvm.script import ir as I, relax as R, tir as T\n@I.ir_module\nclass M:\n"
X = np.arange(6, dtype=np.float32).reshape(2, 3)
LOG: list[Any] = []


def note(tag: str) -> Any:
    return lambda *values: LOG.append((tag, *(np.asarray(v).tolist() for v in values)))


@pytest.fixture(autouse=True)
def packed() -> Iterator[None]:
    LOG.clear()
    before = set(list_global_func_names())
    rx.register_func("rg.same", lambda v: v)
    rx.register_func("rg.scale", lambda v, s: v * s)
    rx.register_func("rg.a", note("a"))
    rx.register_func("rg.b", note("b"))
    rx.register_func("rg.fail", lambda v: 1 / 0)
    yield
    for name in set(list_global_func_names()) - before:
        remove_global_func(name)


def parse(text: str) -> rx.IRModule:
    mod = from_source(HEAD + text)
    assert isinstance(mod, rx.IRModule)
    return mod


def build(text: str, pipeline: Any = "default") -> tuple[rx.VMExecutable, rx.VirtualMachine]:
    ex = rx.build(parse(text), relax_pipeline=pipeline)
    return ex, rx.VirtualMachine(ex)


def regions(ex: rx.VMExecutable) -> int:
    return len(ex.regions)


def equal(got: Any, expected: Any) -> None:
    if isinstance(expected, tuple):
        assert isinstance(got, tuple)
        assert len(got) == len(expected)
        for g, e in zip(got, expected, strict=True):
            equal(g, e)
    else:
        np.testing.assert_array_equal(np.asarray(got), expected)


# ---- where a function is cut
def test_a_pure_function_is_one_program_as_before() -> None:
    ex, vm = build("""
    @R.function
    def main(c: R.Tensor((), "bool"), x: R.Tensor(("n", 3), "float32")) -> R.Shape(["n", 3]):
        n = T.int64()
        if c:
            r = R.add(x, x)
        else:
            r = R.negative(x)
        s = R.shape_of(r)
        return s
    """)
    assert (len(ex.entries), regions(ex)) == (1, 0)
    assert not ex.code.functions
    assert vm["main"](True, X) == (2, 3)


CUTS = {
    # Both packed calls are ready after one region; the rest is the second.
    "packed calls side by side": (
        """
    @R.function
    def main(x: R.Tensor((2, 3), "float32")):
        a = R.add(x, x)
        h = R.call_pure_packed("rg.same", a, sinfo_args=R.Tensor((2, 3), "float32"))
        b = R.multiply(x, x)
        k = R.call_pure_packed("rg.same", b, sinfo_args=R.Tensor((2, 3), "float32"))
        c = R.add(h, k)
        d = R.nn.relu(c)
        return d
    """,
        2,
        (X,),
        2 * X + X * X,
    ),
    "what is not needed before the host moves behind it": (
        """
    @R.function
    def main(x: R.Tensor((2, 3), "float32")):
        y = R.nn.relu(x)
        nz = R.nonzero(x)
        z = R.sum(R.astype(nz, "float32"))
        t = R.add(y, z)
        return t
    """,
        1,
        (X,),
        X + sum(map(np.sum, np.nonzero(X))),
    ),
    "shapes are the host's own": (
        """
    @R.function
    def main(x: R.Tensor(("n", "m"), "float32")):
        n = T.int64(); m = T.int64()
        s = R.call_pure_packed("rg.same", R.shape([m, n + 1]), sinfo_args=R.Shape(ndim=2))
        t = R.shape_of(x)
        return (s, t)
    """,
        0,
        (X,),
        ((3, 3), (2, 3)),
    ),
    "a cast of a computed value serves the host": (
        """
    @R.function
    def main(x: R.Tensor(("n",), "float32"), y: R.Tensor((4,), "float32")):
        n = T.int64(); m = T.int64()
        a = R.concat((x, x))
        b = R.match_cast(a, R.Tensor((m,), "float32"))
        c = R.add(b, b)
        h = R.call_pure_packed("rg.same", R.shape([m, n]), sinfo_args=R.Shape(ndim=2))
        k = R.call_pure_packed("rg.same", y, sinfo_args=R.Tensor((4,), "float32"))
        z = R.full(R.shape([m]), R.const(1.0, "float32"), dtype="float32")
        v = R.add(R.sum(k), R.add(z, c))
        return (v, h)
    """,
        1,
        (np.ones(2, "f"), np.ones(4, "f")),
        (np.full(4, 7, "f"), (4, 2)),
    ),
    "a local function is part of each region that calls it": (
        """
    @R.function
    def main(x: R.Tensor((3,), "float32")):
        y0 = R.add(x, x)
        @R.function
        def f(a: R.Tensor((3,), "float32")) -> R.Tensor((3,), "float32"):
            b: R.Tensor((3,), "float32") = R.add(a, y0)
            return b
        @R.function
        def g(a: R.Tensor((3,), "float32")) -> R.Tensor((3,), "float32"):
            b: R.Tensor((3,), "float32") = f(a)
            return b
        y: R.Tensor((3,), "float32") = f(x)
        z = R.call_pure_packed("rg.same", y, sinfo_args=R.Tensor((3,), "float32"))
        w: R.Tensor((3,), "float32") = g(z)
        return w
    """,
        2,
        (np.ones(3, "f"),),
        np.full(3, 5, "f"),
    ),
    "in dataflow blocks": (
        """
    @R.function
    def main(x: R.Tensor((3,), "float32")):
        with R.dataflow():
            a = R.add(x, x)
            n = R.nonzero(a)
            b = R.sum(n)
            R.output(b)
        return b
    """,
        2,
        (np.array([0, 1, 1], "f"),),
        np.int64(3),
    ),
    "pure and other functions of the module": (
        """
    @R.function(private=True)
    def g(x: R.Tensor(("n",), "float32")) -> R.Tensor(ndim=2, dtype="int64"):
        n = T.int64()
        z = R.nonzero(R.add(x, x))
        return z
    @R.function(private=True)
    def h(x: R.Tensor((3,), "float32")) -> R.Tensor((3,), "float32"):
        y = R.add(x, x)
        return y
    @R.function
    def main(x: R.Tensor((3,), "float32")):
        a = M.h(x)
        b: R.Tensor(ndim=2, dtype="int64") = M.g(a)
        c = R.sum(b)
        return c
    """,
        2,
        (np.array([0, 1, 1], "f"),),
        np.int64(3),
    ),
}


@pytest.mark.parametrize("case", CUTS)
def test_cuts(case: str) -> None:
    text, count, args, expected = CUTS[case]
    ex, vm = build(text)
    assert regions(ex) == count, ex.stats()
    for _ in range(2):
        equal(vm["main"](*args), expected)


def test_stats_say_what_runs_where_and_why() -> None:
    ex, _ = build(CUTS["in dataflow blocks"][0])
    stats = ex.stats()
    assert "main_region0: 1 operations as one XLA program, ended by relax.nonzero (at " in stats
    assert "on the host: relax.nonzero" in stats
    assert "main_region1: 1 operations as one XLA program, up to the end" in stats
    text = ex.as_text()
    assert "call relax.nonzero" in text
    assert "def main_region0(" in text
    assert "ib.emit_call('main_region0'" in ex.as_python()
    listing = ex.stablehlo()
    assert list(listing) == ["main_region0", "main_region1"]
    assert "stablehlo.add" in listing["main_region0"]
    assert (
        "tensor<1x?xi64>" in listing["main_region1"]
        or "tensor<?x?xi64>" in (listing["main_region1"])
    )


def test_compiled_mode_names_what_prevents_one_program() -> None:
    with pytest.raises(TVMError, match=r"main: relax.nonzero \(at .*:\d+:\d+\)"):
        rx.build(parse(CUTS["in dataflow blocks"][0]), exec_mode="compiled")
    pure = parse("""
    @R.function
    def main(x: R.Tensor((3,), "float32")):
        y = R.add(x, x)
        return y
    """)
    equal(rx.VirtualMachine(rx.build(pure, exec_mode="compiled"))["main"](X[0]), 2 * X[0])


def test_what_can_run_nowhere_is_named_when_it_is_built() -> None:
    mod = parse("""
    @R.function
    def main(x: R.Tensor((3,), "float32")):
        y = R.ccl.allreduce(x, "sum")
        return y
    """)
    with pytest.raises(LegalizeError, match=r"relax.ccl.allreduce has no lowering .* \(at .*:\d+"):
        rx.build(mod)
    mod = parse("""
    @R.function(pure=False)
    def main(x: R.Tensor((3,), "float32")):
        s = R.memory.alloc_storage(R.shape([16]), 0, "global", "uint8")
        y = R.nonzero(x)
        return (y, s)
    """)
    with pytest.raises(LegalizeError, match=r"alloc_storage cannot be lowered"):
        rx.build(mod)


# ---- shapes that depend on data
def test_a_result_s_size_binds_a_dimension() -> None:
    ex, vm = build("""
    @R.function
    def main(x: R.Tensor(("n", "m"), "float32")):
        n = T.int64(); m = T.int64(); k = T.int64()
        y = R.nn.relu(x)
        z = R.nonzero(y)
        w = R.match_cast(z, R.Tensor((2, k), "int64"))
        rows = R.squeeze(R.strided_slice(w, axes=[0], begin=[0], end=[1]), axis=[0])
        t = R.sum(R.take(y, rows, axis=0), axis=1)
        u = R.full(R.shape([k, m]), R.const(1.0, "float32"), dtype="float32")
        return (t, u)
    """)
    assert regions(ex) == 2
    rng = np.random.default_rng(0)
    for n, m in ((2, 3), (4, 5), (1, 1)):
        x = rng.standard_normal((n, m)).astype("f").round(1)
        y = np.maximum(x, 0)
        rows = np.nonzero(y)[0]
        got = vm["main"](x)
        np.testing.assert_allclose(np.asarray(got[0]), y[rows].sum(1), rtol=1e-6)
        equal(got[1], np.ones((len(rows), m), "f"))


BY_VALUE = {
    "reshape by symbols": (
        """y: R.Tensor((a, b), "float32") = R.reshape(x, R.shape([a, b]))
        z = R.add(y, R.full(R.shape([a, b]), R.const(2.0, "float32"), dtype="float32"))
        return z""",
        lambda x, a, b: x.reshape(a, b) + 2,
    ),
    "reshape by the shape itself": (
        """y = R.reshape(x, s)
        z = R.add(y, y)
        return z""",
        lambda x, a, b: 2 * x.reshape(a, b),
    ),
    "broadcast": (
        """y = R.broadcast_to(R.expand_dims(x, axis=0), R.shape([a * b, 6]))
        z = R.sum(y, axis=0)
        return z""",
        lambda x, a, b: x * a * b,
    ),
    "slice": (
        """y = R.strided_slice(x, axes=[0], begin=[b], end=[a + b])
        z = R.sum(y)
        return z""",
        lambda x, a, b: x[b : a + b].sum(),
    ),
}


BY_VALUE["topk"] = (
    """y = R.topk(x, k=a, axis=0, ret_type="both")
        z = R.concat((R.take(y[0], y[1], axis=0), R.repeat(x, repeats=b, axis=0)))
        return z""",
    lambda x, a, b: np.concatenate(
        [np.sort(x)[::-1][:a][np.clip(np.argsort(-x, kind="stable")[:a], 0, a - 1)], x.repeat(b)]
    ),
)


@pytest.mark.parametrize("case", BY_VALUE)
@pytest.mark.parametrize("dtype", ["int64", "int32"])
def test_values_become_shapes(case: str, dtype: str) -> None:
    body, expected = BY_VALUE[case]
    ex, vm = build(f"""
    @R.function
    def main(x: R.Tensor((6,), "float32"), t: R.Tensor((2,), "{dtype}")):
        a = T.int64(); b = T.int64()
        v = R.tensor_to_shape(t)
        s = R.match_cast(v, R.Shape([a, b]))
        {body}
    """)
    assert regions(ex) == 1
    x = np.arange(6, dtype=np.float32)
    for a, b in ((2, 3), (3, 2), (6, 1), (2, 3)):
        equal(vm["main"](x, np.array([a, b], dtype)), expected(x, a, b))


def test_an_axis_by_value() -> None:
    _, vm = build("""
    @R.function
    def main(x: R.Tensor((2, 3), "float32"), t: R.Tensor((1,), "int64")):
        a = T.int64()
        v = R.tensor_to_shape(t)
        s = R.match_cast(v, R.Shape([a]))
        y = R.sum(x, axis=[a])
        z = R.add(y, y)
        return z
    """)
    for axis in (0, 1):
        equal(vm["main"](X, np.array([axis])), 2 * X.sum(axis))
    with pytest.raises(TVMError, match="axis 5 is out of range"):
        vm["main"](X, np.array([5]))
    with pytest.raises(CallError, match=r"must not be negative; got \(-1,\)"):
        vm["main"](X, np.array([-1]))
    equal(vm["main"](X, np.array([1])), 2 * X.sum(1))


def test_parameters_of_every_kind() -> None:
    _, vm = build("""
    @R.function
    def main(x: R.Tensor(("n",), "float32"), s: R.Shape(["a", "b"]), p: R.Prim("int64"),
             t: R.Tuple(R.Tensor(("n",), "float32"), R.Object)):
        n = T.int64(); a = T.int64(); b = T.int64()
        y = R.reshape(x, R.shape([a, b]))
        z = R.nonzero(y)
        f = R.full(R.shape([a + b]), R.const(1.0, "float32"), dtype="float32")
        return (z, f, p, s, t[1])
    """)
    x = X.reshape(-1)
    z, f, p, s, t = vm["main"](x, [2, 3], np.int64(7), (x, "anything"))
    equal(z, np.stack(np.nonzero(X)))
    equal(f, np.ones(5, "f"))
    assert (p, s, t) == (7, (2, 3), "anything")
    for args, message in (
        ((x, [2, 3], 7), r"main takes 4 arguments \(x, s, p, t\); got 3"),
        ((x, [2, 3], "a", (x, 1)), r"parameter `p`: expected a number for Prim"),
        ((x, 5, 7, (x, 1)), "parameter `s`"),
        ((x, [2, 3], 7, (x,)), "must be a tuple of 2; got 1"),
        ((x, [2, 3], 7, (x[:5], 1)), r"`t`\[0\]: dimension 0 is 5, expected 6"),
        ((x.astype("f8"), [2, 3], 7, (x, 1)), "parameter `x` has dtype float64, expected float32"),
        ((X, [2, 3], 7, (x, 1)), "parameter `x` has rank 2, expected 1"),
        ((x, [1, 2, 3], 7, (x, 1)), "parameter `s` has 3 dimensions, expected 2"),
        (("text", [2, 3], 7, (x, 1)), "parameter `x`"),
    ):
        with pytest.raises(CallError, match=message):
            vm["main"](*args)
        equal(vm["main"](x, [2, 3], 7, (x, "anything"))[1], np.ones(5, "f"))


def test_casts_are_checked() -> None:
    _, vm = build("""
    @R.function
    def main(x: R.Tensor((3,), "float32"), y: R.Tensor("float32")):
        k = T.int64()
        z = R.nonzero(x)
        w = R.match_cast(z, R.Tensor((1, k), "int64"))
        v = R.match_cast(y, R.Tensor((k * 2,), "float32"))
        u = R.sum(v)
        return u
    """)
    x = np.array([1, 0, 1], "f")
    equal(vm["main"](x, np.ones(4, "f")), np.float32(4))
    with pytest.raises(CallError, match=r"match_cast of v: dimension 0 is 5, expected 4") as e:
        vm["main"](x, np.ones(5, "f"))
    assert "in the VM function main, instruction" in e.value.__notes__[0]
    with pytest.raises(CallError, match="match_cast of v has rank 2, expected 1"):
        vm["main"](x, np.ones((4, 1), "f"))


def test_a_number_of_results_must_be_known() -> None:
    with pytest.raises(TVMError, match="with a symbolic attribute the result cannot be told"):
        parse("""
    @R.function
    def main(x: R.Tensor((6,), "float32"), s: R.Shape(["a"])):
        a = T.int64()
        y = R.split(x, indices_or_sections=a, axis=0)
        return y
    """)


# ---- packed functions, effects, order
def test_effects_keep_their_order(capsys: pytest.CaptureFixture[str]) -> None:
    ex, vm = build("""
    @R.function(pure=False)
    def main(c: R.Tensor((), "bool"), x: R.Tensor((), "float32")):
        _ = R.call_packed("rg.a", x, sinfo_args=R.Object)
        y = R.add(x, x)
        _1 = R.print(y, x, format="{} and {}")
        _2 = R.call_packed("rg.b", y, sinfo_args=R.Object)
        if c:
            z = R.add(y, y)
            _3 = R.call_packed("rg.a", z, sinfo_args=R.Object)
            r = z
        else:
            _4 = R.call_packed("rg.b", x, sinfo_args=R.Object)
            r = y
        _5 = R.call_packed("rg.a", r, sinfo_args=R.Object)
        _6 = R.print(x)
        return r
    """)
    equal(vm["main"](True, np.float32(1)), np.float32(4))
    assert LOG == [("a", 1.0), ("b", 2.0), ("a", 4.0), ("a", 4.0)]
    assert capsys.readouterr().out == "2.0 and 1.0\n1.0\n"
    LOG.clear()
    equal(vm["main"](False, np.float32(1)), np.float32(2))
    assert LOG == [("a", 1.0), ("b", 2.0), ("b", 1.0), ("a", 2.0)]
    assert regions(ex) == 2


def test_values_stay_on_the_device_between_regions() -> None:
    kinds: list[type] = []
    rx.register_func("rg.kind", lambda v: (kinds.append(type(v)), v)[1])
    _, vm = build("""
    @R.function
    def main(x: R.Tensor((2, 3), "float32")):
        a = R.add(x, x)
        b = R.call_pure_packed("rg.kind", a, sinfo_args=R.Tensor((2, 3), "float32"))
        c = R.add(b, b)
        return c
    """)
    equal(vm["main"](X), 4 * X)
    assert kinds
    assert all(issubclass(k, jax.Array) for k in kinds)


def test_packed_functions_of_every_form() -> None:
    def into(a: Any, b: Any, out: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> None:
        out[...] = np.asarray(a) + b
        other[...] = 3

    def change(a: np.ndarray[Any, Any], b: Any) -> None:
        a += np.asarray(b)

    rx.register_func("rg.into", into)
    rx.register_func("rg.change", change)
    rx.register_func("rg.more", lambda v: v + 1)
    _, vm = build("""
    @R.function
    def main(x: R.Tensor(("n", 3), "float32")):
        n = T.int64()
        two = R.call_dps_packed("rg.into", (x, R.prim_value(2)),
            out_sinfo=[R.Tensor((n, 3), "float32"), R.Tensor((n,), "int64")])
        a = two[0]
        b = R.call_inplace_packed("rg.change", a, x, inplace_indices=[0],
            sinfo_args=R.Tensor((n, 3), "float32"))
        c = R.call_pure_packed("rg.scale", b, R.prim_value(3),
            sinfo_args=R.Tensor((n, 3), "float32"))
        d = R.add(c, R.astype(R.sum(two[1]), "float32"))
        e = R.call_py_func("rg.more", (d,), sinfo_args=R.Tensor((n, 3), "float32"))
        return e
    """)
    equal(vm["main"](X), 3 * ((X + 2) + X) + 7)


def test_builtins_of_programs_get_the_machine() -> None:
    seen: list[Any] = []
    rx.register_func("rg.context", lambda vm, x: (seen.append(vm), x)[1])
    _, vm = build("""
    @R.function(pure=False)
    def main(x: R.Tensor((3,), "float32")):
        y = R.call_builtin_with_ctx("rg.context", (x,), sinfo_args=R.Tensor((3,), "float32"))
        z = R.add(y, y)
        return z
    """)
    equal(vm["main"](X[0]), 2 * X[0])
    assert seen == [vm]


def test_warm_compiles_the_static_regions() -> None:
    text = CUTS["packed calls side by side"][0]
    _, vm = build(text)
    main = vm["main"]
    assert isinstance(main, VMFunction)
    assert main.regions() == ["main_region0", "main_region1"]
    vm.warm("main")
    compiled: list[str] = []
    for name in main.regions():
        bound = vm._compiled(name)  # pyright: ignore[reportPrivateUsage]
        bound.program = lambda infos, name=name: compiled.append(name)  # pyright: ignore
    equal(vm["main"](X), 2 * X + X * X)
    assert not compiled


def test_many_threads() -> None:
    _, vm = build(CUTS["in dataflow blocks"][0])
    f = vm["main"]
    failures: list[str] = []

    def work(seed: int) -> None:
        for i in range(250):
            x = np.array([seed & 1, i & 1, 1], "f")
            if int(f(x)) != int(np.nonzero(x)[0].sum()):
                failures.append(f"{seed} {i}")

    threads = [threading.Thread(target=work, args=(s,)) for s in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures


def test_a_packed_function_that_lies_or_fails() -> None:
    _, vm = build("""
    @R.function(private=True)
    def inner(x: R.Tensor((3,), "float32")) -> R.Tensor((3,), "float32"):
        b = R.call_pure_packed("rg.fail", x, sinfo_args=R.Tensor((3,), "float32"))
        return b
    @R.function
    def main(x: R.Tensor((3,), "float32")):
        b: R.Tensor((3,), "float32") = M.inner(x)
        return b
    @R.function
    def lie(x: R.Tensor((3,), "float32")):
        b = R.call_pure_packed("rg.same", x, sinfo_args=R.Tensor((4,), "float32"))
        return b
    @R.function
    def text(x: R.Tensor((3,), "float32")):
        b = R.call_pure_packed("rg.same", R.str("no tensor"), sinfo_args=R.Tensor((3,), "float32"))
        return b
    """)
    with pytest.raises(ZeroDivisionError) as e:
        vm["main"](np.ones(3, "f"))
    inner, outer = e.value.__notes__
    assert "in the VM function inner, instruction" in inner
    assert "call rg.fail" in inner
    assert ", at " in inner
    assert "in the VM function main, instruction" in outer
    with pytest.raises(CallError, match=r"result of rg.same: dimension 0 is 3, expected 4"):
        vm["lie"](np.ones(3, "f"))
    with pytest.raises(CallError, match=r"result of rg.same.*expected an array"):
        vm["text"](np.ones(3, "f"))


def test_assertions() -> None:
    ex, vm = build("""
    @R.function(pure=False)
    def main(x: R.Tensor((2, 3), "float32")):
        s = R.sum(x)
        c = R.greater(s, R.const(10.0, "float32"))
        _ = R.assert_op(c, s, format="the sum is {}")
        return s
    """)
    assert regions(ex) == 1
    equal(vm["main"](X), np.float32(15))
    with pytest.raises(AssertError, match=r"Assertion Failed, the sum is 0.0") as e:
        vm["main"](0 * X)
    assert isinstance(e.value, AssertionError)
    equal(vm["main"](X), np.float32(15))


# ---- control
def test_branches_with_host_work_and_their_own_dimensions() -> None:
    _, vm = build("""
    @R.function(pure=False)
    def main(c: R.Tensor((), "bool"), d: R.Tensor((), "bool"), x: R.Tensor(("n",), "float32")):
        n = T.int64()
        if c:
            if d:
                k = T.int64()
                nz = R.nonzero(x)
                w = R.match_cast(nz, R.Tensor((1, k), "int64"))
                f = R.full(R.shape([k]), R.const(2.0, "float32"), dtype="float32")
                s = R.sum(f)
                r1 = s
            else:
                s1 = R.sum(x)
                r1 = s1
            r = r1
        else:
            s2 = R.max(x)
            r = s2
        t = R.add(r, r)
        return t
    """)
    x = np.array([0, 1, 2], "f")
    equal(vm["main"](True, True, x), np.float32(8))
    equal(vm["main"](True, False, x), np.float32(6))
    equal(vm["main"](False, True, x), np.float32(4))


def test_branches_of_different_shapes_run_on_the_host() -> None:
    ex, vm = build("""
    @R.function
    def main(c: R.Tensor((), "bool"), x: R.Tensor(("n",), "float32")):
        n = T.int64()
        if c:
            r: R.Tensor(ndim=1, dtype="float32") = R.concat((x, x))
        else:
            r: R.Tensor(ndim=1, dtype="float32") = R.negative(x)
        t = R.add(r, r)
        return t
    """)
    assert "If: its branches give" in ex.stats()
    x = np.array([1, 2], "f")
    equal(vm["main"](True, x), np.array([2, 4, 2, 4], "f"))
    equal(vm["main"](False, x), np.array([-2, -4], "f"))


def test_recursion() -> None:
    _, vm = build("""
    @R.function
    def fib(n: R.Tensor((), "int64")) -> R.Tensor((), "int64"):
        c = R.less(n, R.const(2, "int64"))
        if c:
            r = n
        else:
            a: R.Tensor((), "int64") = M.fib(R.subtract(n, R.const(1, "int64")))
            b: R.Tensor((), "int64") = M.fib(R.subtract(n, R.const(2, "int64")))
            r = R.add(a, b)
        return r
    @R.function
    def double(
        n: R.Tensor((), "int64"), x: R.Tensor(("k",), "float32")
    ) -> R.Tensor(ndim=1, dtype="float32"):
        c = R.equal(n, R.const(0, "int64"))
        if c:
            r: R.Tensor(ndim=1, dtype="float32") = x
        else:
            m = R.subtract(n, R.const(1, "int64"))
            y = R.concat((x, x))
            r: R.Tensor(ndim=1, dtype="float32") = M.double(m, y)
        return r
    """)
    equal(vm["fib"](10), np.int64(55))
    equal(vm["double"](3, np.ones(2, "f")), np.ones(16, "f"))


def test_tail_calls_with_host_work_need_no_depth() -> None:
    _, vm = build("""
    @R.function(pure=False)
    def main(n: R.Tensor((), "int64"), t: R.Tensor((), "int64")) -> R.Tensor((), "int64"):
        c = R.equal(n, R.const(0, "int64"))
        if c:
            r = t
        else:
            _ = R.call_packed("rg.a", n, sinfo_args=R.Object)
            m = R.subtract(n, R.const(1, "int64"))
            u = R.add(t, n)
            r = M.main(m, u)
        return r
    """)
    equal(vm["main"](1500, 0), np.int64(1500 * 1501 // 2))
    assert len(LOG) == 1500


def test_closures() -> None:
    _, vm = build("""
    @R.function
    def lifted(
        a: R.Tensor((2, 3), "float32"), y: R.Tensor((2, 3), "float32")
    ) -> R.Tensor((2, 3), "float32"):
        s: R.Tensor((2, 3), "float32") = R.subtract(a, y)
        return s
    @R.function
    def main(x: R.Tensor((2, 3), "float32"), y: R.Tensor((2, 3), "float32")):
        c: R.Object = R.make_closure(M.lifted, (y,))
        z = R.invoke_pure_closure(c, (x,), sinfo_args=R.Tensor((2, 3), "float32"))
        return z
    @R.function
    def make(y: R.Tensor(("n",), "float32")):
        n = T.int64()
        @R.function
        def inner(a: R.Tensor((), "float32")) -> R.Tensor(ndim=1, dtype="float32"):
            o = R.full(R.shape([n]), R.const(1.0, "float32"), dtype="float32")
            s = R.add(R.add(a, y), o)
            return s
        return inner
    @R.function
    def again(x: R.Tensor((), "int64"), y: R.Tensor((), "int64")) -> R.Tensor((), "int64"):
        @R.function
        def go(a: R.Tensor((), "int64")) -> R.Tensor((), "int64"):
            c = R.greater(a, y)
            if c:
                r = a
            else:
                b = R.add(a, a)
                r: R.Tensor((), "int64") = go(b)
            return r
        z: R.Tensor((), "int64") = go(x)
        return z
    """)
    equal(vm["main"](X, 3 * X), -2 * X)
    closure = vm["make"](np.ones(4, "f"))
    equal(vm.invoke_closure(closure, np.float32(2)), np.full(4, 4, "f"))
    with pytest.raises(TypeError, match="takes a closure; got int"):
        vm.invoke_closure(3)
    equal(closure(np.float32(2)), np.full(4, 4, "f"))
    equal(vm["again"](1, 1000), np.int64(1024))


def test_no_jax_transformation_sees_host_work() -> None:
    _, vm = build(CUTS["in dataflow blocks"][0])
    with pytest.raises(CallError, match="traced by JAX, but the function does work on the host"):
        jax.jit(lambda x: vm["main"](x))(np.ones(3, "f"))


def test_layout_pass_and_weights_around_host_work() -> None:
    """A convolution before and after a host step, with weights, through the default pipeline."""
    rng = np.random.default_rng(1)
    weight = rng.standard_normal((4, 4, 3, 3)).astype("f")
    builder = rx.BlockBuilder()
    x = rx.Var("x", rx.TensorStructInfo((1, 4, 8, 8), "float32"))
    R = rx.op
    with builder.function("main", [x]):
        y = builder.emit(R.nn.conv2d(x, rx.const(weight), padding=1))
        z = builder.emit(R.call_pure_packed("rg.same", y, sinfo_args=y.struct_info))
        w = builder.emit(R.nn.conv2d(z, rx.const(weight), padding=1))
        builder.emit_func_output(w)
    mod = builder.get()
    value = rng.standard_normal((1, 4, 8, 8)).astype("f")
    results = [
        np.asarray(rx.VirtualMachine(rx.build(mod, relax_pipeline=p))["main"](value))
        for p in ("zero", "default")
    ]
    np.testing.assert_allclose(results[0], results[1], rtol=2e-4, atol=2e-4)
    ex = rx.build(mod)
    assert [e.lifted.raw_size()[0] for e in ex.regions.values()] == [1, 1]


def test_long_programs() -> None:
    """Thousands of bindings, without recursion over them."""
    R = rx.op
    builder = rx.BlockBuilder()
    x = rx.Var("x", rx.TensorStructInfo((2,), "int64"))
    with builder.function("main", [x]):
        y: rx.Expr = x
        for _ in range(3000):
            y = builder.emit(R.call_pure_packed("rg.same", y, sinfo_args=x.struct_info))
        z = builder.emit(R.add(y, y))
        builder.emit_func_output(z)
    vm = rx.VirtualMachine(rx.build(builder.get(), relax_pipeline=None))
    equal(vm["main"](np.array([1, 2])), np.array([2, 4]))


def test_the_listing_of_functions_that_call_others() -> None:
    ex, _ = build(CUTS["pure and other functions of the module"][0])
    listing = ex.stablehlo()
    assert set(listing) == set(ex.regions)
    assert all("func.func public @main" in text or "@main" in text for text in listing.values())
