"""Functions with work on the host: packed functions, effects in order, control, closures."""

from __future__ import annotations

import threading
from typing import Any

import jax
import numpy as np
import pytest

import relax2xla as rx
from relax2xla.errors import AssertError, CallError
from relax2xla.vm.call.bytecode_function import VMFunction
from tests.vm.plan.host_programs import CUTS, LOG, X, build, equal, regions
from tests.vm.plan.host_programs import packed as packed  # pytest looks for it here


# ---- packed functions, effects, order
def test_tuples_are_printed_field_by_field(capsys: pytest.CaptureFixture[str]) -> None:
    _, vm = build("""
    @R.function(pure=False)
    def main(x: R.Tensor((2,), "float32"), s: R.Shape([3])):
        _ = R.print(x, (x, (s, R.str("a"))))
        return x
    """)
    vm["main"](np.ones(2, "float32"), (3,))
    assert capsys.readouterr().out == "[1. 1.] ([1. 1.], ((3), a))\n"


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


def test_an_object_is_changed_in_its_own_place() -> None:
    class Box:
        seen: list[float]

        def __init__(self) -> None:
            self.seen = []

    rx.register_func("rg.append", lambda box, x: (box.seen.append(float(x)), box)[1])
    _, vm = build("""
    @R.function
    def main(box: R.Object, x: R.Tensor((), "float32")):
        made = R.call_inplace_packed("rg.append", box, R.add(x, x), inplace_indices=[0],
            sinfo_args=R.Object)
        return made
    """)
    box = Box()
    assert vm["main"](box, np.float32(2)) is box
    assert box.seen == [4.0]


def test_arrays_move_to_a_device_by_tvms_numbers() -> None:
    _, vm = build("""
    @R.function
    def main(x: R.Tensor((3,), "float32")):
        y = R.call_pure_packed("vm.builtin.to_device", x, 1, 0,
            sinfo_args=R.Tensor((3,), "float32"))
        return y
    """)
    equal(vm["main"](np.ones(3, "float32")), np.ones(3, "float32"))


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
        bound.specialised.program = lambda infos, name=name: compiled.append(name)  # pyright: ignore
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
