"""Programs with work on the host: what the tests of their division and of their runs share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import relax2xla as rx
from relax2xla.runtime import list_global_func_names, remove_global_func
from relax2xla.script import from_source

HEAD = "from tvm.script import ir as I, relax as R, tir as T\n@I.ir_module\nclass M:\n"
X = np.arange(6, dtype=np.float32).reshape(2, 3)
LOG: list[Any] = []


def note(tag: str) -> Any:
    return lambda *values: LOG.append((tag, *(np.asarray(v).tolist() for v in values)))


@pytest.fixture(autouse=True)
def packed() -> Iterator[None]:
    """Functions that the programs call, for one test."""
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


# Programs by what cuts them: the text, how many regions there are, arguments, the result.
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
