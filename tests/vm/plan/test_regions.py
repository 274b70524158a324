"""Functions that XLA cannot hold whole: where they are cut, and shapes that depend on data."""

from __future__ import annotations

import numpy as np
import pytest

import relax2xla as rx
from relax2xla.errors import CallError, LegalizeError, TVMError
from tests.vm.plan.host_programs import CUTS, X, build, equal, parse, regions
from tests.vm.plan.host_programs import packed as packed  # pytest looks for it here


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


def test_whole_mode_names_what_prevents_one_program() -> None:
    with pytest.raises(TVMError, match=r"main: relax.nonzero \(at .*:\d+:\d+\)"):
        rx.build(parse(CUTS["in dataflow blocks"][0]), exec_mode="whole")
    pure = parse("""
    @R.function
    def main(x: R.Tensor((3,), "float32")):
        y = R.add(x, x)
        return y
    """)
    equal(rx.VirtualMachine(rx.build(pure, exec_mode="whole"))["main"](X[0]), 2 * X[0])


def test_compiled_mode_runs_packed_calls_and_closures() -> None:
    """As TVM's, whose two modes differ in how calls are made, not in what is allowed."""
    mod = parse("""
    @R.function(pure=False)
    def main(f: R.Callable([R.Tensor((2, 3), "float32")], R.Tensor((2, 3), "float32"), False),
             x: R.Tensor((2, 3), "float32")):
        y = R.call_pure_packed("rg.scale", x, 3, sinfo_args=R.Tensor((2, 3), "float32"))
        z = f(y)
        return z
    """)
    for mode in ("bytecode", "compiled"):
        vm = rx.VirtualMachine(rx.build(mod, exec_mode=mode))
        equal(vm["main"](lambda v: np.asarray(v) + 1, X), 3 * X + 1)


def test_what_can_run_nowhere_is_named_when_it_is_built() -> None:
    mod = parse("""
    @T.prim_func
    def copy(a: T.Buffer((3,), "float32"), b: T.Buffer((3,), "float32")):
        for i in range(3):
            with T.block("b"):
                v = T.axis.spatial(3, i)
                b[v] = a[v]

    @R.function
    def main(x: R.Tensor((3,), "float32")):
        y = R.dist.call_tir_local_view(M.copy, (x,), R.Tensor((3,), "float32"))
        return y
    """)
    with pytest.raises(LegalizeError, match=r"call_tir_local_view has no lowering .* \(at .*:\d+"):
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
    mod = parse("""
    @R.function
    def main(x: R.Tensor((3,), "float32")):
        @R.function
        def small(b: R.Tensor((3,), "float32")):
            c = R.less(R.sum(b), R.const(1.0))
            return c
        @R.function
        def doubled(b: R.Tensor((3,), "float32")):
            c = R.add(b, b)
            return c
        @R.function
        def loop(
            a: R.Tensor((3,), "float32"),
            f: R.Callable((R.Tensor((3,), "float32"),), R.Tensor((3,), "float32")),
        ):
            d = R.stablehlo.while_(a, small, f)
            return d
        y = loop(x, doubled)
        return y
    """)
    with pytest.raises(LegalizeError, match=r"the region f is a value, no local function"):
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
        ((X, [2, 3], 7, (x, 1)), "parameter `x` has ndim 2, expected 1"),
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
    with pytest.raises(CallError, match="match_cast of v has ndim 2, expected 1"):
        vm["main"](x, np.ones((4, 1), "f"))


def test_results_are_what_their_function_declares() -> None:
    _, vm = build("""
    @R.function
    def main(x: R.Tensor(["n", "m"], "int32"), y: R.Object) -> R.Tensor(["m", "n"], dtype=None):
        return y

    @R.function
    def number(n: R.Prim(value="n")):
        n = T.int64()
        return R.prim_value(n * n)
    """)
    x = np.zeros((1, 2), "int32")
    equal(vm["main"](x, np.ones((2, 1), "f")), np.ones((2, 1), "f"))
    with pytest.raises(CallError, match="return_value: dimension 0 is 1, expected 2"):
        vm["main"](x, np.ones((1, 2), "f"))
    with pytest.raises(CallError, match="return_value has ndim 3, expected 2"):
        vm["main"](x, np.ones((2, 1, 1), "f"))
    with pytest.raises(TypeError, match="return_value must be a tensor; got str"):
        vm["main"](x, "text")
    with pytest.raises(TypeError, match="`n` must be a number"):
        vm["number"](rx.runtime.ShapeTuple([2]))


def test_a_number_of_results_must_be_known() -> None:
    with pytest.raises(TVMError, match="with a symbolic attribute the result cannot be told"):
        parse("""
    @R.function
    def main(x: R.Tensor((6,), "float32"), s: R.Shape(["a"])):
        a = T.int64()
        y = R.split(x, indices_or_sections=a, axis=0)
        return y
    """)
