"""EliminateCommonSubexpr."""

from __future__ import annotations

from relax2xla.transform import EliminateCommonSubexpr

from .compare import becomes, stays

RUN = EliminateCommonSubexpr()


def test_scopes() -> None:
    """What is known in branches, behind dataflow blocks and in local functions."""
    becomes(
        RUN,
        """
        @R.function
        def main(x: R.Tensor((2,), "float32"), c: R.Prim("bool")):
            with R.dataflow():
                a = R.exp(x)
                b = R.exp(x)
                s = R.sin(x)
                d = R.add(b, s)
                R.output(b, d)
            e = R.exp(x)
            t = R.sin(x)
            if c:
                f = R.sin(x)
                k = R.cos(e)
                g = R.add(k, f)
            else:
                k = R.cos(e)
                g = R.add(k, k)
            h = R.cos(e)
            return (d, e, t, g, h)
        """,
        """
        @R.function
        def main(x: R.Tensor((2,), "float32"), c: R.Prim("bool")):
            with R.dataflow():
                a = R.exp(x)
                b = a
                s = R.sin(x)
                d = R.add(a, s)
                R.output(b, d)
            e = b
            t = R.sin(x)
            if c:
                f = t
                k = R.cos(b)
                g = R.add(k, t)
            else:
                k = R.cos(b)
                g = R.add(k, k)
            h = R.cos(b)
            return (d, b, t, g, h)
        """,
    )


def test_tuples_fields_and_attributes() -> None:
    text = """
        @R.function
        def main(x: R.Tensor((2, 3), "float32")):
            t = (x, x)
            u = (x, x)
            p = R.sum(x, axis=[0])
            q = R.sum(x, axis=[1])
            r = R.sum(x, axis=[0])
            return (t, u, p, q, r)
        """
    expected = text.replace("r = R.sum(x, axis=[0])", "r = p").replace("q, r)", "q, p)")
    becomes(EliminateCommonSubexpr(call_only=True), text, expected)
    becomes(RUN, text, expected.replace("u = (x, x)", "u = t").replace("(t, u,", "(t, t,"))


def test_what_is_not_shared() -> None:
    stays(
        RUN,
        """
        @R.function(pure=False)
        def main(x: R.Tensor((2,), "float32")):
            a = R.print(x)
            b = R.print(x)
            c = R.builtin.alloc_tensor(R.shape([2]), R.dtype("float32"), R.prim_value(0))
            d = R.builtin.alloc_tensor(R.shape([2]), R.dtype("float32"), R.prim_value(0))
            e = R.add(x, R.const(0.0, "float32"))
            f = R.add(x, R.const(-0.0, "float32"))
            g = R.call_packed("f", x, sinfo_args=R.Tensor((2,)))
            h = R.call_packed("f", x, sinfo_args=R.Tensor((2,)))
            return (c, d, e, f, g, h)
        """,
    )


def test_casts() -> None:
    """Two that define the same symbolic variables check the same; others are different."""
    text = """
        @R.function
        def main(x: R.Tensor(ndim=1)):
            n, m = T.int64(), T.int64()
            a = R.match_cast(x, R.Tensor((n,)))
            b = R.match_cast(x, R.Tensor((n,)))
            c = R.match_cast(x, R.Tensor((m,)))
            return (a, b, c)
        """
    last = "b = R.match_cast(x, R.Tensor((n,)))"
    becomes(RUN, text, text.replace(last, "b = a").replace("(a, b, c)", "(a, a, c)"))
