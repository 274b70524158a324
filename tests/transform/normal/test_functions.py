"""Passes over the functions of a module: inlining, lifting, parameters and results."""

from __future__ import annotations

import numpy as np
import pytest

import relax2xla as rx
from relax2xla.errors import TransformError
from relax2xla.ir import Call, DataflowBlock, Function, GlobalVar, IRModule
from relax2xla.ir.rewrite import bindings_deep
from relax2xla.transform import (
    ExpandTupleArguments,
    InlinePrivateFunctions,
    LambdaLift,
    RemoveUnusedOutputs,
    RemoveUnusedParameters,
)

from .compare import CHECKED, becomes, module, stays

X = np.arange(4, dtype="float32") / 4


def run(mod: IRModule, *args: np.ndarray) -> list[np.ndarray]:
    """What ``main`` gives, as a flat list."""
    made = rx.VirtualMachine(rx.build(mod, relax_pipeline="zero"))["main"](*args)
    return [np.asarray(v) for v in (made if isinstance(made, tuple | list) else [made])]


def same_values(before: IRModule, after: IRModule, *args: np.ndarray) -> None:
    """Check that both modules compute the same."""
    for a, b in zip(run(before, *args), run(after, *args), strict=True):
        np.testing.assert_array_equal(a, b)


SUBROUTINES = """
@R.function
def main(x: R.Tensor((4,), "float32")):
    with R.dataflow():
        a = R.exp(x)
        b = M.outer(a)
        c = R.add(a, b)
        R.output(c)
    d = M.outer(c)
    return d

@R.function(private=True)
def outer(y: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
    z = R.sin(y)
    w = M.inner(z)
    return w

@R.function(private=True)
def inner(y: R.Tensor(("m",), "float32")) -> R.Tensor(("m",), "float32"):
    with R.dataflow():
        s = R.cos(y)
        R.output(s)
    return s
"""


def test_private_functions_are_inlined() -> None:
    mod = module(SUBROUTINES)
    with CHECKED:
        new = InlinePrivateFunctions()(mod)
    assert [g.name_hint for g in new] == ["main"]
    assert not any(isinstance(b.value, GlobalVar) for b in bindings_deep(new["main"]))
    # The dataflow block is cut around the ordinary block of the callee.
    kinds = [type(block) is DataflowBlock for block in new["main"].body.blocks]
    assert kinds == [True, False, True, False, True]
    same_values(mod, new, X)
    assert InlinePrivateFunctions()(new) is new


def test_functions_that_stay() -> None:
    stays(
        InlinePrivateFunctions(),
        """
        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Object:
            f = M.value
            return (M.again(x), f)

        @R.function(private=True)
        def value(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            return x

        @R.function(private=True)
        def again(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            return M.again(x)
        """,
    )


def test_inline_functions() -> None:
    mod = module(SUBROUTINES)
    main: Function = mod["main"]
    once = main.inline_functions({"outer": mod["outer"]})
    assert mod["main"] is main
    calls = [b.value for b in bindings_deep(once) if isinstance(b.value, Call)]
    assert sum(isinstance(c.op, GlobalVar) for c in calls) == 2
    outer = mod.get_global_var("outer")
    with pytest.raises(ValueError, match="hold 'outer' twice"):
        main.inline_functions({outer: mod["outer"], "outer": mod["outer"]})
    circle = {"outer": mod["outer"], "inner": mod["outer"]}
    with pytest.raises(TransformError, match="round in a circle"):
        main.inline_functions(circle)
    with pytest.raises(TransformError, match="takes 0 arguments and is called with 1"):
        main.inline_functions({"outer": mod["outer"].replace(params=[])})


CLOSURES = """
@R.function
def main(x: R.Tensor((4,), "float32")):
    e = R.exp(x)

    @R.function
    def plain(y: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        s = R.sin(y)
        return s

    @R.function
    def capture(y: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        p = plain(y)

        @R.function
        def deep(z: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            t = R.add(z, e)
            u = R.multiply(t, p)
            return u

        r = deep(p)
        return r

    a = capture(x)
    b = plain(a)
    return (a, b)
"""


def test_local_functions_are_lifted() -> None:
    mod = module(CLOSURES)
    with CHECKED:
        new = LambdaLift()(mod)
    assert [g.name_hint for g in new] == ["main", "main_plain", "main_deep", "main_capture"]
    assert not any(isinstance(b.value, Function) for f in new.values() for b in bindings_deep(f))
    assert [p.name_hint for p in new["main_deep"].params] == ["z", "e", "p"]
    assert LambdaLift()(new) is new
    same_values(mod, new, X)


def test_recursive_closures_and_sizes_from_outside() -> None:
    mod = module(
        """
        @R.function
        def main(x: R.Tensor(("n",), "float32"), i: R.Tensor((), "int32")):
            n = T.int64()

            @R.function
            def loop(k: R.Tensor((), "int32")) -> R.Tensor(ndim=1, dtype="float32"):
                stop = R.less_equal(k, R.const(0))
                if stop:
                    r = R.zeros(R.shape([n]), "float32")
                else:
                    m = R.subtract(k, R.const(1))
                    q = loop(m)
                    r = R.add(q, x)
                return r

            out = loop(i)
            return out
        """
    )
    with CHECKED:
        new = LambdaLift()(mod)
    assert [p.name_hint for p in new["main_loop"].params] == ["k", "x"]
    args = X, np.array(3, "int32")
    np.testing.assert_allclose(run(new, *args)[0], 3 * X)


def test_names_of_lifted_functions() -> None:
    mod = module(
        """
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            @R.function
            def f(y: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
                @R.function
                def f(z: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
                    return z
                return f(y)
            return f(x)

        @R.function
        def main_f_f(x: R.Tensor((4,), "float32")):
            return x
        """
    )
    assert [g.name_hint for g in LambdaLift()(mod)][2:] == ["main_f_1", "main_f_0"]


def test_unused_parameters_go() -> None:
    becomes(
        RemoveUnusedParameters(),
        """
        @R.function
        def main(x: R.Tensor(("n", 4), "float32")):
            a = R.exp(x)
            b = M.f(a, x)
            return b

        @R.function(private=True)
        def f(a: R.Tensor(("n", 4), "float32"), b: R.Tensor(("k", 4), "float32")):
            k = T.int64()
            return R.add(b, R.zeros(R.shape([k, 4]), "float32"))
        """,
        """
        @R.function
        def main(x: R.Tensor(("n", 4), "float32")):
            b = M.f(x)
            return b

        @R.function(private=True)
        def f(b: R.Tensor(("k", 4), "float32")):
            k = T.int64()
            return R.add(b, R.zeros(R.shape([k, 4]), "float32"))
        """,
    )


def test_parameters_that_stay() -> None:
    """Of public functions, of values, and where nothing says a size."""
    stays(
        RemoveUnusedParameters(),
        """
        @R.function
        def main(x: R.Tensor(ndim=1), y: R.Tensor((4,), "float32")):
            return M.f(x)

        @R.function(private=True)
        def f(x: R.Tensor(("n",))):
            n = T.int64()
            return R.zeros(R.shape([n]), "float32")
        """,
    )


def test_tuples_are_taken_apart() -> None:
    text = """
        @R.function
        def main(x: R.Tensor((4,), "float32"), t: R.Tuple(R.Tensor((4,), "float32"))):
            a = R.exp(x)
            b = M.f((a, t), x)
            return b

        @R.function(private=True)
        def f(
            t: R.Tuple(R.Tensor((4,), "float32"), R.Tuple(R.Tensor((4,), "float32"))),
            x: R.Tensor((4,), "float32"),
        ):
            u = t[1]
            s = R.add(t[0], u[0])
            return R.multiply(s, x)
        """
    becomes(
        ExpandTupleArguments(),
        text,
        """
        @R.function
        def main(x: R.Tensor((4,), "float32"), t: R.Tuple(R.Tensor((4,), "float32"))):
            a = R.exp(x)
            t0 = t[0]
            b = M.f(a, t0, x)
            return b

        @R.function(private=True)
        def f(
            p: R.Tensor((4,), "float32"),
            q: R.Tensor((4,), "float32"),
            x: R.Tensor((4,), "float32"),
        ):
            s = R.add(p, q)
            return R.multiply(s, x)
        """,
    )


OUTPUTS = """
@R.function
def main(x: R.Tensor((4,), "float32")):
    r = M.f(x)
    a = r[3]
    q = M.f(a)
    b = q[1]
    return (a, b)

@R.function(private=True)
def f(x: R.Tensor((4,), "float32")):
    a = R.exp(x)
    b = R.sin(x)
    c = R.cos(x)
    d = R.tanh(x)
    t = (a, b, c, d)
    return t
"""


def test_unused_outputs_go() -> None:
    mod = module(OUTPUTS)
    new = becomes(
        RemoveUnusedOutputs(),
        mod,
        """
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            r = M.f(x)
            a = r[1]
            q = M.f(a)
            b = q[0]
            return (a, b)

        @R.function(private=True)
        def f(x: R.Tensor((4,), "float32")):
            b = R.sin(x)
            d = R.tanh(x)
            return (b, d)
        """,
    )
    same_values(mod, new, X)
    stays(RemoveUnusedOutputs(), OUTPUTS.replace("(a, b)\n\n", "(a, b, r, q)\n\n"))
