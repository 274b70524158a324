"""Casts whose dimension is known from elsewhere check it, wherever they stand."""

from __future__ import annotations

import re
import textwrap

import numpy as np
import pytest

import relax2xla as rx
from relax2xla.errors import CallError
from relax2xla.script import from_source


def machine(body: str) -> rx.VirtualMachine:
    rx.register_func("casts.same", lambda x: x, override=True)
    text = "@I.ir_module\nclass M:\n" + textwrap.indent(textwrap.dedent(body), "    ")
    return rx.VirtualMachine(rx.build(from_source(text)))


def ones(n: int) -> np.ndarray:
    return np.ones(n, np.float32)


CHECKED = {
    "of a parameter of unknown shape": """
        @R.function
        def main(x: R.Tensor(("n",), "float32"), y: R.Tensor(ndim=1, dtype="float32")):
            n = T.int64()
            z = R.match_cast(y, R.Tensor((n,), "float32"))
            return R.sum(z)
    """,
    "of which nothing uses the result": """
        @R.function
        def main(x: R.Tensor(("n",), "float32"), y: R.Tensor(ndim=1, dtype="float32")):
            n = T.int64()
            z = R.match_cast(y, R.Tensor((n,), "float32"))
            return R.sum(x)
    """,
    "of which nothing uses the result, in a region": """
        @R.function
        def main(x: R.Tensor(("n",), "float32"), y: R.Tensor(ndim=1, dtype="float32")):
            n = T.int64()
            p = R.call_pure_packed("casts.same", y, sinfo_args=R.Tensor(ndim=1, dtype="float32"))
            q = R.sin(p)
            z = R.match_cast(q, R.Tensor((n,), "float32"))
            r = R.sum(x)
            k = R.call_pure_packed("casts.same", r, sinfo_args=R.Tensor((), dtype="float32"))
            return k
    """,
    "of what a cast before it has bound": """
        @R.function
        def main(x: R.Tensor(ndim=1, dtype="float32"), y: R.Tensor(ndim=1, dtype="float32")):
            n = T.int64()
            a = R.match_cast(x, R.Tensor((n,), "float32"))
            z = R.match_cast(y, R.Tensor((n,), "float32"))
            return R.sum(R.add(a, z)) / R.const(2.0, "float32")
    """,
    "in a branch": """
        @R.function
        def main(x: R.Tensor(("n",), "float32"), y: R.Tensor(ndim=1, dtype="float32")):
            n = T.int64()
            c = R.greater(R.sum(y), R.const(0.0, "float32"))
            if c:
                z = R.match_cast(y, R.Tensor((n,), "float32"))
                r: R.Tensor((), "float32") = R.sum(z)
            else:
                r: R.Tensor((), "float32") = R.max(y)
            return r
    """,
    "in a branch of a region, of a host step's result": """
        @R.function
        def main(x: R.Tensor(("n",), "float32"), y: R.Tensor(ndim=1, dtype="float32")):
            n = T.int64()
            p = R.call_pure_packed("casts.same", y, sinfo_args=R.Tensor(ndim=1, dtype="float32"))
            c = R.greater(R.sum(y), R.const(0.0, "float32"))
            if c:
                z = R.match_cast(p, R.Tensor((n,), "float32"))
                r: R.Tensor((), "float32") = R.sum(z)
            else:
                r: R.Tensor((), "float32") = R.max(p)
            return r
    """,
    "in a local function of a region": """
        @R.function
        def main(x: R.Tensor(("n",), "float32"), y: R.Tensor(ndim=1, dtype="float32")):
            n = T.int64()
            p = R.call_pure_packed("casts.same", y, sinfo_args=R.Tensor(ndim=1, dtype="float32"))
            @R.function
            def f(a: R.Tensor(ndim=1, dtype="float32")) -> R.Tensor((), "float32"):
                z = R.match_cast(a, R.Tensor((n,), "float32"))
                return R.sum(z)
            r: R.Tensor((), "float32") = f(p)
            return r
    """,
    "in a closure": """
        @R.function
        def main(x: R.Tensor(("n",), "float32"), y: R.Tensor(ndim=1, dtype="float32")):
            n = T.int64()
            @R.function
            def f(a: R.Tensor(ndim=1, dtype="float32")) -> R.Tensor((), "float32"):
                p = R.call_pure_packed("casts.same", a, sinfo_args=R.Tensor(dtype="float32"))
                z = R.match_cast(p, R.Tensor((n,), "float32"))
                return R.sum(z)
            r: R.Tensor((), "float32") = f(y)
            return r
    """,
}


@pytest.mark.parametrize("case", CHECKED)
def test_known_dimensions_are_checked(case: str) -> None:
    main = machine(CHECKED[case])["main"]
    assert main(ones(4), ones(4)) == 4
    found = r"R\.match_cast of z.*(3 in dimension 0|dimension 0 is 3), expected 4"
    with pytest.raises(CallError, match=found):
        main(ones(4), ones(3))
    assert main(ones(3), ones(3)) == 3


def test_casts_in_private_functions() -> None:
    vm = machine("""
        @R.function(private=True)
        def free(x: R.Tensor(ndim=1, dtype="float32")) -> R.Tensor((), "float32"):
            n = T.int64()
            z = R.match_cast(x, R.Tensor((n,), "float32"))
            return R.sum(z)
        @R.function(private=True)
        def fixed(x: R.Tensor((4,), "float32")):
            z = R.match_cast(x, R.Tensor((3,), "float32"))
            return z
        @R.function
        def good(x: R.Tensor((4,), "float32")):
            r = M.free(x)
            return r
        @R.function
        def wrong(x: R.Tensor((4,), "float32")):
            r = M.fixed(x)
            return r
    """)
    assert vm["good"](ones(4)) == 4
    with pytest.raises(
        CallError, match=r"wrong: R\.match_cast of z: the value has 4 in dimension 0"
    ):
        vm["wrong"](ones(4))


@pytest.mark.parametrize("value", ["R.add(x, x)", "R.nonzero(x)"], ids=["one program", "bytecode"])
def test_ranges_of_dimensions_are_checked_at_the_call(value: str) -> None:
    main = machine(f"""
        @R.function
        def main(x: R.Tensor(("n", "m"), "float32")):
            R.func_attr({{"tir_var_lower_bound": {{"n": 3, "m": 2}}}})
            R.func_attr({{"tir_var_upper_bound": {{"n": 5}}}})
            y = {value}
            return y
    """)["main"]
    for good in ((3, 1), (5, 9)):
        main(np.ones(good, np.float32))
    for wrong in (2, 6):
        with pytest.raises(CallError) as error:
            main(np.ones((wrong, 1), np.float32))
        assert str(error.value) == (
            f"main: the argument for parameter `x` has {wrong} as dimension 0 (`n`), "
            "outside of the range 3 to 5 of the program"
        )


@pytest.mark.parametrize("value", ["R.add(x, x)", "R.nonzero(x)"], ids=["one program", "bytecode"])
def test_conditions_on_dimensions_are_checked_at_the_call(value: str) -> None:
    main = machine(f"""
        @R.function
        def main(x: R.Tensor(("n", "m"), "float32")):
            R.func_attr({{"tir_var_conditions": ["n > m * 2", "n % T.max(m, 2) == 1"]}})
            y = {value}
            return y
    """)["main"]
    for good in ((3, 1), (7, 3)):
        main(np.ones(good, np.float32))
    for wrong, text in (((3, 2), "n > m * 2"), ((4, 1), "n % T.max(m, 2) == 1")):
        with pytest.raises(CallError, match=re.escape(f"main: `{text}` does not hold for")):
            main(np.ones(wrong, np.float32))


@pytest.mark.parametrize("text", ["n >", "__import__('os')", "n @ m", "n.real > 1"])
def test_a_text_that_is_no_condition(text: str) -> None:
    main = machine(f"""
        @R.function
        def main(x: R.Tensor(("n", "m"), "float32")):
            R.func_attr({{"tir_var_conditions": [{text!r}]}})
            y = R.add(x, x)
            return y
    """)["main"]
    with pytest.raises(CallError, match="is no condition on sizes"):
        main(np.ones((2, 2), np.float32))
