"""Passes over blocks: ConvertToDataflow, ToNonDataflow, TopologicalSort, and purity."""

from __future__ import annotations

from typing import Any

import pytest

from relax2xla.analysis import check_well_formed
from relax2xla.ir import BindingBlock, DataflowVar
from relax2xla.ir.rewrite import bindings_deep
from relax2xla.transform import (
    ConvertToDataflow,
    RemovePurityChecking,
    ToNonDataflow,
    TopologicalSort,
)

from .compare import becomes, module, stays

PLAIN = """
@R.function(pure=False)
def main(x: R.Tensor((2,), "float32"), c: R.Prim("bool")):
    a = R.exp(x)
    b = R.sin(a)
    _ = R.print(b)
    d = R.cos(b)
    if c:
        e = R.add(d, a)
        f = R.exp(e)
        g = R.sin(f)
    else:
        g = a
    return g
"""
FLOW = """
@R.function(pure=False)
def main(x: R.Tensor((2,), "float32"), c: R.Prim("bool")):
    with R.dataflow():
        a = R.exp(x)
        b = R.sin(a)
        R.output(a, b)
    _ = R.print(b)
    d = R.cos(b)
    if c:
        with R.dataflow():
            e = R.add(d, a)
            f = R.exp(e)
            h = R.sin(f)
            R.output(h)
        g = h
    else:
        g = a
    return g
"""


def test_pure_bindings_are_gathered() -> None:
    becomes(ConvertToDataflow(), PLAIN, FLOW)
    stays(ConvertToDataflow(min_size=4), PLAIN)
    stays(
        ConvertToDataflow(),
        becomes(ConvertToDataflow(1), PLAIN, ConvertToDataflow(1)(module(PLAIN))),
    )


def test_blocks_grow_by_their_neighbours() -> None:
    becomes(
        ConvertToDataflow(min_size=5),
        """
        @R.function
        def main(x: R.Tensor((2,), "float32")):
            a = R.exp(x)
            with R.dataflow():
                b = R.sin(a)
                R.output(b)
            c = R.cos(b)
            return c
        """,
        """
        @R.function
        def main(x: R.Tensor((2,), "float32")):
            with R.dataflow():
                a = R.exp(x)
                b = R.sin(a)
                c = R.cos(b)
                R.output(c)
            return c
        """,
    )


def test_without_dataflow() -> None:
    new = ToNonDataflow()(module(FLOW))
    assert not any(isinstance(b.var, DataflowVar) for b in bindings_deep(new["main"]))
    assert [type(b) for b in new["main"].body.blocks] == [BindingBlock]
    becomes(ToNonDataflow(), FLOW, PLAIN.replace("g = R.sin(f)", "h = R.sin(f)\n        g = h"))
    stays(ToNonDataflow(), PLAIN)


DIAMOND = """
@R.function
def main(x: R.Tensor((2,), "float32")):
    with R.dataflow():
        a = R.exp(x)
        b = R.sin(x)
        c = R.cos(b)
        d = R.tan(a)
        e = R.tanh(x)
        f = R.add(c, d)
        R.output(f)
    return f
"""


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (("depth-first", "from-inputs"), "adbcfe"),
        (("breadth-first", "from-inputs"), "abedcf"),
        (("depth-first", "from-outputs"), "ebcadf"),
        (("breadth-first", "from-outputs"), "abdcfe"),
    ],
)
def test_orders(settings: Any, expected: str) -> None:
    new = TopologicalSort(*settings)(module(DIAMOND))
    block = new["main"].body.blocks[0]
    assert "".join(b.var.name_hint for b in block.bindings) == expected
    assert TopologicalSort(*settings)(new) is new


def test_what_the_order_rests_on() -> None:
    """Captured variables, and symbolic variables that a cast defines."""
    mod = module(
        """
        @R.function
        def main(x: R.Tensor((2,), "float32"), y: R.Tensor(ndim=1)):
            with R.dataflow():
                n = T.int64()
                cast = R.match_cast(y, R.Tensor((n,)))
                zeros = R.zeros(R.shape([n]), "float32")
                a = R.exp(x)

                @R.function
                def f(z: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
                    unused = R.add(z, a)
                    with R.dataflow():
                        s = R.sin(z)
                        t = R.cos(a)
                        u = R.add(t, s)
                        R.output(u)
                    return u

                g = f(x)
                R.output(zeros, g)
            return (zeros, g)
        """
    )
    for order in ("depth-first", "breadth-first"):
        for direction in ("from-inputs", "from-outputs"):
            check_well_formed(TopologicalSort(order, direction)(mod))


def test_words_that_mean_nothing() -> None:
    with pytest.raises(ValueError, match="takes depth-first or breadth-first; got 'sideways'"):
        TopologicalSort("sideways")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="from-inputs or from-outputs"):
        TopologicalSort(direction="up")  # pyright: ignore[reportArgumentType]


def test_purity_is_believed() -> None:
    mod = becomes(
        RemovePurityChecking(),
        """
        @R.function
        def main(x: R.Tensor((2,), "float32")):
            y = R.call_pure_packed("f", x, sinfo_args=R.Tensor((2,), "float32"))
            z = R.call_inplace_packed("g", x, inplace_indices=0, sinfo_args=R.Tensor((2,)))
            return (y, z)

        @R.function(pure=False)
        def loud(x: R.Tensor((2,), "float32")):
            _ = R.print(x)
            return x
        """,
        """
        @R.function
        def main(x: R.Tensor((2,), "float32")):
            R.func_attr({"relax.force_pure": True})
            y = R.call_packed("f", x, sinfo_args=R.Tensor((2,), "float32"))
            z = R.call_packed("g", x, sinfo_args=R.Tensor((2,)))
            return (y, z)

        @R.function(pure=False)
        def loud(x: R.Tensor((2,), "float32")):
            _ = R.print(x)
            return x
        """,
    )
    stays(RemovePurityChecking(), mod)
