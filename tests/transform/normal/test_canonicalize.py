"""CanonicalizeBindings."""

from __future__ import annotations

import pytest

from relax2xla.ir import DataflowVar
from relax2xla.transform import CanonicalizeBindings

from .compare import becomes, module, stays

RUN = CanonicalizeBindings()


def test_copies_and_fields_go() -> None:
    becomes(
        RUN,
        """
        @R.function
        def main(x: R.Tensor((2,), "float32"), t: R.Tuple(R.Tensor((2,)), R.Tensor((3,)))):
            y = x
            p = (y, t)
            z = p[0]
            q = p[1]
            again = (t[0], t[1])
            a = R.add(z, y)
            return (a, q, again)
        """,
        """
        @R.function
        def main(x: R.Tensor((2,), "float32"), t: R.Tuple(R.Tensor((2,)), R.Tensor((3,)))):
            p = (x, t)
            t0 = t[0]
            t1 = t[1]
            a = R.add(x, x)
            return (a, t, t)
        """,
    )


def test_the_name_of_an_output_is_the_name_inside() -> None:
    new = becomes(
        RUN,
        """
        @R.function
        def main(x: R.Tensor((2,), "float32")):
            with R.dataflow():
                a = R.exp(x)
                b = R.sin(a)
                out = a
                other = a
                R.output(b, out, other)
            return (out, other)
        """,
        """
        @R.function
        def main(x: R.Tensor((2,), "float32")):
            with R.dataflow():
                out = R.exp(x)
                b = R.sin(out)
                R.output(out)
            return (out, out)
        """,
    )
    names = [(b.var.name_hint, type(b.var)) for b in new["main"].body.blocks[0].bindings]
    assert names[0][0] == "out"
    assert names[1] == ("b", DataflowVar)


def test_constants_are_read_directly() -> None:
    becomes(
        RUN,
        """
        @R.function
        def main(x: R.Tensor((), "float32")):
            c = R.const(2.0, "float32")
            p = (c, x)
            d = p[0]
            return R.add(d, x)
        """,
        """
        @R.function
        def main(x: R.Tensor((), "float32")):
            c = R.const(2.0, "float32")
            p = (R.const(2.0, "float32"), x)
            return R.add(R.const(2.0, "float32"), x)
        """,
    )


def test_sizes_that_casts_show() -> None:
    becomes(
        RUN,
        """
        @R.function
        def main(x: R.Tensor((4, "m"), "float32"), s: R.Shape(ndim=1)):
            m, n, k, j = T.int64(), T.int64(), T.int64(), T.int64()
            y = R.match_cast(x, R.Tensor((n, k), "float32"))
            u = R.match_cast(s, R.Shape([j]))
            z = R.zeros(R.shape([n + k, j]), "float32")
            return (y, z)
        """,
        """
        @R.function
        def main(x: R.Tensor((4, "m"), "float32"), s: R.Shape(ndim=1)):
            m, j = T.int64(), T.int64()
            u = R.match_cast(s, R.Shape([j]))
            z = R.zeros(R.shape([m + 4, j]), "float32")
            return (x, z)
        """,
    )


def test_a_check_of_a_parameter_stays() -> None:
    """Nothing else would say that n is 4."""
    stays(
        RUN,
        """
        @R.function
        def main(x: R.Tensor(("n",), "float32"), y: R.Tensor((4,), "float32")):
            n = T.int64()
            z = R.match_cast(y, R.Tensor((n,), "float32"))
            return R.add(x, z)
        """,
    )


def test_casts_that_contradict_each_other() -> None:
    mod = module(
        """
        @R.function
        def main(x: R.Tensor((4,), "float32"), y: R.Tensor((5,), "float32")):
            n = T.int64()
            a = R.match_cast(x, R.Tensor((n,), "float32"))
            b = R.match_cast(y, R.Tensor((n,), "float32"))
            return (a, b)
        """
    )
    with pytest.raises(ValueError, match="must be consistent; that of b is not: it shows n to be"):
        RUN(mod)


def test_branches_end_in_what_they_gave_before() -> None:
    becomes(
        RUN,
        """
        @R.function
        def main(x: R.Tensor((4,), "float32"), y: R.Tensor(("n",), "float32"), c: R.Prim("bool")):
            n = T.int64()
            if c:
                a = R.match_cast(x, R.Tensor((n,), "float32"))
                b = R.exp(a)
                z = R.sin(b)
            else:
                z = R.exp(y)
            return z
        """,
        """
        @R.function
        def main(x: R.Tensor((4,), "float32"), y: R.Tensor(("n",), "float32"), c: R.Prim("bool")):
            n = T.int64()
            if c:
                b = R.exp(x)
                s = R.sin(b)
                z = R.match_cast(s, R.Tensor((n,), "float32"))
            else:
                z = R.exp(y)
            return z
        """,
    )


def test_local_functions_and_what_they_capture() -> None:
    becomes(
        RUN,
        """
        @R.function
        def main(x: R.Tensor((2,), "float32")):
            with R.dataflow():
                a = R.exp(x)
                copy = a

                @R.function
                def f(y: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
                    z = y
                    s = R.add(z, copy)
                    return s

                w = f(x)
                R.output(a, w)
            return w
        """,
        """
        @R.function
        def main(x: R.Tensor((2,), "float32")):
            with R.dataflow():
                a = R.exp(x)

                @R.function
                def f(y: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
                    s = R.add(y, a)
                    return s

                w = f(x)
                R.output(w)
            return w
        """,
    )


def test_nothing_to_do() -> None:
    stays(
        RUN,
        """
        @R.function
        def main(x: R.Tensor((2,), "float32")):
            with R.dataflow():
                a = R.exp(x)
                b = R.sin(a)
                R.output(b)
            return b
        """,
    )


def test_calls_read_shapes_directly() -> None:
    becomes(
        RUN,
        """
        @R.function
        def main(x: R.Tensor((2, 3), "float32")):
            s = R.shape([3, 2])
            t = s
            y = R.reshape(x, t)
            return (y, s)
        """,
        """
        @R.function
        def main(x: R.Tensor((2, 3), "float32")):
            s = R.shape([3, 2])
            y = R.reshape(x, R.shape([3, 2]))
            return (y, s)
        """,
    )
