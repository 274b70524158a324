"""Programs through all layers: text, Relax, passes, rows, XLA; and back to the same text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import relax2xla as rx
from relax2xla import tir
from relax2xla.errors import CallError
from relax2xla.frontend.stablehlo import from_stablehlo
from relax2xla.ir import assert_structural_equal
from relax2xla.script import from_source
from relax2xla.stablehlo import emit
from relax2xla.testing import to_numpy

MODULE = "@I.ir_module\nclass Module:\n"
X = np.arange(6, dtype="f").reshape(2, 3)
W = np.linspace(-1, 1, 300, dtype="f").reshape(3, 100)


def both(mod: rx.IRModule, name: str, *args: Any) -> Any:
    """The result of ``name``, which must be the same with and without optimisation."""
    results = []
    for pipeline in ("zero", "default"):
        executable = rx.build(mod, relax_pipeline=pipeline)
        assert executable.stats()
        assert executable.as_text()
        results.append(rx.VirtualMachine(executable)[name](*args))
    jax.tree.map(np.testing.assert_array_equal, *map(to_arrays, results))
    return results[1]


def to_arrays(value: Any) -> Any:
    """Arrays and host values as numpy, tuples kept."""
    return tuple(map(to_arrays, value)) if isinstance(value, tuple) else np.asarray(value)


def plain(value: Any) -> Any:
    """Shapes, which are leaves to JAX, as the tuples that they equal."""
    return tuple(map(plain, value)) if isinstance(value, tuple) else value


def check(text: str, args: tuple[Any, ...], want: Any) -> None:
    """``entry`` of the functions in ``text`` gives ``want``; the text survives a round."""
    mod = from_source(MODULE + text)
    assert_structural_equal(from_source(mod.script(show_meta=True)), mod)
    got = plain(both(mod, "entry", *args))
    assert jax.tree.structure(got) == jax.tree.structure(want)
    for g, w in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert np.asarray(g).dtype == np.asarray(w).dtype
        np.testing.assert_array_equal(np.asarray(g), np.asarray(w))


PROGRAMS: dict[str, tuple[str, tuple[Any, ...], Any]] = {
    "callees, one of them public and called main": (
        """
    @R.function
    def main(x: R.Tensor((2, 3), "float32")) -> R.Tensor((2, 3), "float32"):
        return R.add(x, x)
    @R.function(private=True)
    def helper(x: R.Tensor((2, 3), "float32")) -> R.Tuple(
        R.Tensor((2, 3), "float32"),
        R.Tuple(R.Tensor((3, 2), "float32"), R.Tensor((2, 3), "float32")),
    ):
        cls = Module
        y = cls.main(x)
        z = R.permute_dims(y)
        return (y, (z, x))
    @R.function
    def entry(x: R.Tensor((2, 3), "float32")):
        cls = Module
        t = cls.helper(x)
        u = t[1]
        v = u[0]
        w = cls.main(t[0])
        return (w, v, t, t)
""",
        (X,),
        (4 * X, 2 * X.T, (2 * X, (2 * X.T, X)), (2 * X, (2 * X.T, X))),
    ),
    "callee with a nested tuple as parameter": (
        """
    @R.function(private=True)
    def helper(
        t: R.Tuple(R.Tensor((2, 3), "float32"), R.Tuple(R.Tensor((2,), "int64"))),
        y: R.Tensor((2, 3), "float32"),
    ) -> R.Tuple(R.Tensor((2, 3), "float32"), R.Tensor((2,), "int64")):
        a = t[0]
        b = t[1][0]
        c = R.add(a, y)
        return (c, b)
    @R.function
    def entry(x: R.Tensor((2, 3), "float32"), i: R.Tensor((2,), "int64")):
        cls = Module
        t = cls.helper((x, (i,)), x)
        return t
""",
        (X, np.array([2**40, 3])),
        (2 * X, np.array([2**40, 3])),
    ),
    "no argument": (
        """
    @R.function
    def entry() -> R.Tensor((3,), "float32"):
        return R.ones(R.shape([3]), "float32")
""",
        (),
        np.ones(3, "f"),
    ),
    "no result": (
        """
    @R.function
    def entry(x: R.Tensor((2, 3), "float32")):
        y = R.add(x, x)
        return R.tuple()
""",
        (X,),
        (),
    ),
    "neither": ("\n    @R.function\n    def entry():\n        return R.tuple()\n", (), ()),
    "arguments and constants as results, empty and 0-d": (
        """
    @R.function
    def entry(
        x: R.Tensor((2, 3), "float32"),
        e: R.Tensor((0, 4), "int64"),
        s: R.Tensor((), "bool"),
        unused: R.Tensor((7,), "float64"),
    ):
        z = R.concat((e, e), axis=0)
        m = R.sum(e, axis=[0])
        return (x, x, R.const(5, "float64"), e, s, z, m)
""",
        (X, np.zeros((0, 4), "int64"), True, np.zeros(7)),
        (
            X,
            X,
            np.float64(5),
            np.zeros((0, 4), "int64"),
            np.True_,
            np.zeros((0, 4), "int64"),
            np.zeros(4, "int64"),
        ),
    ),
    "match_cast names dimensions": (
        """
    @R.function
    def entry(x: R.Tensor("float32", ndim=2)):
        n = T.int64()
        m = T.int64()
        y = R.match_cast(x, R.Tensor((n, m), "float32"))
        z = R.reshape(y, R.shape([m, n]))
        return (R.add(y, y), z, R.shape([n * 2, m + 1]))
""",
        (X,),
        (2 * X, X.reshape(3, 2), (4, 4)),
    ),
    "callee with a match_cast of its own, called for two shapes": (
        """
    @R.function(private=True)
    def turn(x: R.Tensor("float32", ndim=2)) -> R.Tensor("float32", ndim=1):
        n = T.int64()
        m = T.int64()
        y = R.match_cast(x, R.Tensor((n, m), "float32"))
        z = R.reshape(y, R.shape([m * n]))
        return z
    @R.function
    def entry(x: R.Tensor((2, 3), "float32"), y: R.Tensor((1, 2), "float32")):
        cls = Module
        a = cls.turn(x)
        b = cls.turn(y)
        return (a, b)
""",
        (X, X[:1, :2]),
        (X.ravel(), X[0, :2]),
    ),
    "a shape as argument": (
        """
    @R.function
    def entry(x: R.Tensor((6,), "float32"), s: R.Shape(["a", "b"])):
        y = R.reshape(x, s)
        return (y, s)
""",
        (X.ravel(), (3, 2)),
        (X.reshape(3, 2), (3, 2)),
    ),
    "a number as argument": (
        """
    @R.function
    def entry(x: R.Tensor((6,), "float32"), k: R.Prim(value="n"), b: R.Prim("bool")):
        n = T.int64()
        y = R.reshape(x, R.shape([n, 6 // n]))
        return (y, k, b)
""",
        (X.ravel(), np.int64(3), True),
        (X.reshape(3, 2), 3, True),
    ),
    "callees that take and give shapes": (
        """
    @R.function(private=True)
    def split(x: R.Tensor((6,), "float32"), s: R.Shape([2, 3])) -> R.Tensor((2, 3), "float32"):
        a = R.reshape(x, s)
        return a
    @R.function(private=True)
    def target(x: R.Tensor((6,), "float32")) -> R.Shape([2, 3]):
        return R.shape([2, 3])
    @R.function
    def entry(x: R.Tensor((6,), "float32")):
        cls = Module
        s = cls.target(x)
        y = cls.split(x, R.shape([2, 3]))
        z = R.reshape(x, s)
        return (y, z)
""",
        (X.ravel(),),
        (X, X),
    ),
    "branches in branches, tuples": (
        """
    @R.function
    def entry(
        c: R.Tensor((), "bool"), d: R.Tensor((), "bool"), x: R.Tensor((2, 3), "float32")
    ):
        if c:
            if d:
                y = R.add(x, x)
                z = (y, (x, y))
            else:
                y = R.negative(x)
                z = (y, (y, x))
            r = z
        else:
            r = (x, (x, x))
        q = r[1]
        w = q[0]
        return (w, r)
""",
        (True, False, X),
        (-X, (-X, (-X, X))),
    ),
    "symbolic callee in a branch": (
        """
    @R.function(private=True)
    def twice(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
        cls = Module
        y = cls.once(x)
        z = cls.once(y)
        return z
    @R.function(private=True)
    def once(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
        with R.dataflow():
            a = R.add(x, x)
            R.output(a)
        return a
    @R.function
    def entry(c: R.Tensor((), "bool"), x: R.Tensor(("m",), "float32")):
        cls = Module
        m = T.int64()
        if c:
            y: R.Tensor((m,), "float32") = cls.twice(x)
        else:
            y: R.Tensor((m,), "float32") = x
        return y
""",
        (True, X.ravel()),
        4 * X.ravel(),
    ),
    "a local function that reads a parameter": (
        """
    @R.function
    def entry(x: R.Tensor((2, 3), "float32")) -> R.Tensor((2, 3), "float32"):
        @R.function
        def inner(y: R.Tensor((2, 3), "float32")) -> R.Tensor((2, 3), "float32"):
            z = R.add(y, x)
            return z
        a = inner(x)
        b = inner(a)
        return b
""",
        (X,),
        3 * X,
    ),
    "empty tuples everywhere": (
        """
    @R.function(private=True)
    def g() -> R.Tuple():
        return R.tuple()
    @R.function(private=True)
    def h(t: R.Tuple()) -> R.Tuple(R.Tuple(), R.Tensor((), "int32")):
        c = R.const(3, "int32")
        return (t, c)
    @R.function
    def entry(t: R.Tuple(), x: R.Tensor((2, 3), "float32"), c: R.Tensor((), "bool")):
        cls = Module
        a = cls.g()
        b = cls.h(a)
        if c:
            r = (x, R.tuple())
        else:
            r = (x, R.tuple())
        return (a, b, t, r)
""",
        ((), X, False),
        ((), ((), np.int32(3)), (), (X, ())),
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str) -> None:
    check(*PROGRAMS[name])


def test_casts_are_checked() -> None:
    mod = from_source(MODULE + PROGRAMS["match_cast names dimensions"][0])
    with pytest.raises(CallError, match="ndim 1, expected 2"):
        rx.VirtualMachine(rx.build(mod))["entry"](X.ravel())


def test_host_arguments_that_do_not_fit() -> None:
    f = rx.VirtualMachine(rx.build(from_source(MODULE + PROGRAMS["a shape as argument"][0])))
    for wrong in (5, "ab", None, (2.0, 3)):
        with pytest.raises(CallError, match="must be a shape"):
            f["entry"](X.ravel(), wrong)
    g = rx.VirtualMachine(rx.build(from_source(MODULE + PROGRAMS["a number as argument"][0])))
    for wrong in (2.5, "a", None):
        with pytest.raises(CallError, match="must be a number"):
            g["entry"](X.ravel(), wrong, True)


def test_weights_used_twice_and_in_two_functions() -> None:
    weight = rx.const(W)
    builder = rx.BlockBuilder()
    for name in ("left", "right"):
        x = rx.Var("x", rx.TensorStructInfo((tir.Var("n"), 3), "float32"))
        with builder.function(name, [x]):
            with builder.dataflow():
                a = builder.emit(rx.op.matmul(x, weight))
                b = builder.emit(rx.op.matmul(rx.op.negative(x), weight))
                out = builder.emit_output(rx.Tuple([a, b, weight, weight]))
            builder.emit_func_output(out)
    mod = builder.get()
    for name in ("left", "right"):
        a, b, *same = to_numpy(both(mod, name, X))
        np.testing.assert_allclose(a, X @ W, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(b, -(X @ W), rtol=1e-5, atol=1e-5)
        for s in same:
            np.testing.assert_array_equal(s, W)
    assert rx.build(mod).stats().count("1 weight, ") == 2


A = np.random.default_rng(0).standard_normal((4, 6)).astype("f")
D = np.random.default_rng(1).standard_normal((4, 6))
IMAGE = np.random.default_rng(2).standard_normal((2, 4, 9, 8)).astype("f")
KERNEL = np.random.default_rng(3).standard_normal((6, 2, 3, 3)).astype("f")
LARGE = np.random.default_rng(4).standard_normal((100, 6))


def _conv(x: Any, w: Any) -> Any:
    return lax.conv_general_dilated(
        x, w, (1, 2), [(1, 1), (0, 2)], rhs_dilation=(2, 1), feature_group_count=2
    )


def _window(x: Any) -> Any:
    return (
        lax.reduce_window(x, -jnp.inf, lax.max, (2, 2), (1, 2), "SAME"),
        lax.reduce_window(x, 0.0, lax.add, (2, 3), (2, 1), [(1, 0), (1, 1)]),
    )


def _calls(x: Any) -> Any:
    return jax.jit(lambda y: jax.jit(jnp.sin)(y) + jax.jit(jnp.sin)(2 * y))(x)


def _loss(x: Any) -> Any:
    return jax.checkpoint(lambda y: jnp.sin(jnp.sin(y)))(x).sum()


JAX: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "while": (
        lambda x: lax.while_loop(lambda c: c[0] < 5, lambda c: (c[0] + 1, c[1] * 2), (0, x)),
        (A,),
    ),
    "cond": (
        lambda c, x: lax.cond(c, lambda v: v * 2, lambda v: v - 1, x),
        (np.bool_(True), D),
    ),
    "switch": (lambda i, x: lax.switch(i, [jnp.sin, jnp.cos, lambda v: v], x), (np.int32(1), A)),
    "scan": (
        lambda x: lax.scan(lambda c, v: (c + v, (c * v, v.sum())), jnp.zeros(6), x),
        (D,),
    ),
    "sort": (
        lambda x: (jnp.argsort(x, axis=1), lax.sort((x, x * 2), num_keys=1), lax.top_k(x, 3)),
        (D,),
    ),
    "gather": (
        lambda x, i: (x[i, :3], jnp.take(x, i, axis=1, mode="fill")),
        (D, np.array([[0, 2], [1, -1]])),
    ),
    "scatter": (
        lambda x, i: (x.at[i].add(1.0).at[0, 0].set(5), x.at[i].min(0.0)),
        (D, np.array([1, 1, 3])),
    ),
    "fft": (lambda x: (jnp.fft.fft(x), jnp.fft.irfft(jnp.fft.rfft(x))), (D,)),
    "reduce_window": (_window, (A,)),
    "select_and_scatter": (
        jax.grad(lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (2, 2), (2, 2), "VALID").sum()),
        (A,),
    ),
    "int64": (lambda x: (x * x, x // 3, x % 7, x >> 2), (np.array([2**40 + 1, -5, 7]),)),
    "uint8": (lambda x: (x + x, ~x, x << 1), (np.array([250, 5, 7], "uint8"),)),
    "bfloat16": (lambda x: (jnp.exp(x), x.max(axis=0)), (A.astype(jnp.bfloat16),)),
    "complex128": (lambda x: (x * x.conj(), jnp.imag(x), x @ x.T), (D + 1j * D,)),
    "bool": (lambda x, y: (x & y, ~x, x.any(), jnp.where(x, 1, 2)), (A > 0, A < 1)),
    "convolution": (_conv, (IMAGE, KERNEL)),
    "linear algebra": (lambda x: jnp.linalg.solve(x @ x.T + jnp.eye(4), x), (D,)),
    "random": (
        lambda k: (jax.random.normal(k, (3,)), jax.random.permutation(k, 5)),
        (np.zeros(2, "uint32"),),
    ),
    "no argument": (lambda: jnp.arange(3), ()),
    "results that are arguments": (lambda x: (x, x, x + 1), (D,)),
    "no elements": (
        lambda x: (x.sum(), jnp.concatenate([x, x]), x.max(initial=-1.0)),
        (np.zeros((0, 3)),),
    ),
    "0-d": (lambda x: x + 1, (np.float64(2),)),
    "large constants": (lambda x: (x @ jnp.asarray(LARGE.T), x @ jnp.asarray(LARGE.T)), (D,)),
    "nan and infinity": (
        lambda x: (jnp.where(x > 0, jnp.nan, -jnp.inf), jnp.minimum(x, jnp.nan)),
        (D,),
    ),
    "calls in calls": (_calls, (D,)),
    "gradient": (jax.grad(_loss), (D,)),
    "special functions": (lambda x: (lax.erf(x), lax.lgamma(x), lax.nextafter(x, x + 1)), (D,)),
    "bitcast": (lambda x: lax.bitcast_convert_type(x, jnp.int8), (D,)),
    "dynamic slices": (
        lambda x, i: (lax.dynamic_slice(x, (i, 0), (2, 3)), lax.pad(x, i * 0.0, ((1, -1, 2),) * 2)),
        (D, np.int64(1)),
    ),
}


@pytest.mark.parametrize("name", JAX)
def test_jax_program_runs_and_keeps_its_text(name: str) -> None:
    function, args = JAX[name]
    with jax.enable_x64(True):
        lowered = jax.jit(function, keep_unused=True).lower(*args)
        want = jax.tree.leaves(jax.jit(function)(*args))
    text = lowered.as_text()
    mod = from_stablehlo(text, raise_ops=False)
    got = jax.tree.leaves(rx.VirtualMachine(rx.build(mod))["main"](*args))
    assert len(got) == len(want)
    for g, w in zip(map(np.asarray, got), map(np.asarray, want), strict=True):
        assert g.dtype == w.dtype
        wide = "complex128" if g.dtype.kind == "c" else "float64"
        np.testing.assert_allclose(g.astype(wide), w.astype(wide), rtol=1e-5, atol=1e-5)
    assert str(emit(mod)) == text
    # Through TVMScript, where functions are sorted by name.
    again = str(emit(from_source(mod.script(show_meta=True))))
    assert sorted(again.splitlines()) == sorted(text.splitlines())
