"""TailRecursionToLoops against what the virtual machine makes of the same functions."""

from __future__ import annotations

import numpy as np
import pytest

import relax2xla as rx
from relax2xla.errors import TransformError
from relax2xla.ir.check import check_well_formed
from relax2xla.ir.equal import assert_structural_equal
from relax2xla.script import from_source
from relax2xla.transform.lower.tail_recursion import TailRecursionToLoops

HEAD = "from tvm.script import ir as I, relax as R, tir as T\n@I.ir_module\nclass M:\n"

SUM = """
    @R.function
    def main(n: R.Tensor((), "int64"), t: R.Tensor((), "int64")) -> R.Tensor((), "int64"):
        c = R.equal(n, R.const(0, "int64"))
        if c:
            r = t
        else:
            m = R.subtract(n, R.const(1, "int64"))
            u = R.add(t, n)
            r = M.main(m, u)
        return r
"""
SYMBOLIC = """
    @R.function
    def main(
        n: R.Tensor((), "int64"), x: R.Tensor(("k",), "float32")
    ) -> R.Tuple(R.Tensor(("k",), "float32"), R.Tensor((), "int64")):
        c = R.equal(n, R.const(0, "int64"))
        if c:
            r: R.Tuple(R.Tensor(("k",), "float32"), R.Tensor((), "int64")) = (x, n)
        else:
            big = R.greater(n, R.const(5, "int64"))
            m = R.subtract(n, R.const(1, "int64"))
            if big:
                y = R.add(x, x)
                s: R.Tuple(R.Tensor(("k",), "float32"), R.Tensor((), "int64")) = M.main(m, y)
            else:
                z = R.add(x, R.const(1.0, "float32"))
                s: R.Tuple(R.Tensor(("k",), "float32"), R.Tensor((), "int64")) = M.main(m, z)
            r = s
        return r
"""
MUTUAL = """
    @R.function
    def main(n: R.Tensor((), "int64"), x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
        c = R.equal(n, R.const(0, "int64"))
        if c:
            r = x
        else:
            m = R.subtract(n, R.const(1, "int64"))
            y = R.add(x, x)
            r = M.odd(m, y)
        return r
    @R.function
    def odd(n: R.Tensor((), "int64"), x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
        c = R.equal(n, R.const(0, "int64"))
        if c:
            r = R.negative(x)
        else:
            m = R.subtract(n, R.const(1, "int64"))
            y = R.add(x, R.const(1.0, "float32"))
            r = M.main(m, y)
        return r
"""


def parse(text: str) -> rx.IRModule:
    mod = from_source(HEAD + text)
    assert isinstance(mod, rx.IRModule)
    return mod


@pytest.mark.parametrize(
    ("text", "args", "expected"),
    [
        (SUM, (5000, 0), np.int64(5000 * 5001 // 2)),
        (SYMBOLIC, (7, np.ones(3, "f")), (np.full(3, 9, "f"), np.int64(0))),
        (SYMBOLIC, (0, np.ones(4, "f")), (np.ones(4, "f"), np.int64(0))),
        (MUTUAL, (3, np.ones(2, "f")), np.full(2, -6, "f")),
        (MUTUAL, (4, np.ones(2, "f")), np.full(2, 7, "f")),
    ],
)
def test_loops(text: str, args: tuple[object, ...], expected: object) -> None:
    ex = rx.build(parse(text))
    assert not ex.regions
    assert not ex.code.functions
    got = rx.VirtualMachine(ex)["main"](*args)
    for g, e in zip(
        got if isinstance(got, tuple) else (got,),
        expected if isinstance(expected, tuple) else (expected,),
        strict=True,
    ):
        np.testing.assert_array_equal(np.asarray(g), e)


@pytest.mark.parametrize("text", [SUM, SYMBOLIC, MUTUAL], ids=["sum", "symbolic", "mutual"])
def test_the_result_is_well_formed(text: str) -> None:
    mod = TailRecursionToLoops()(parse(text))
    check_well_formed(mod)
    assert "while_" in mod.script()


@pytest.mark.parametrize(
    "text",
    [
        # Not last.
        SUM.replace("r = M.main(m, u)", "r = R.add(M.main(m, u), u)"),
        # Arrays that grow.
        """
    @R.function
    def main(x: R.Tensor(("k",), "float32")) -> R.Tensor(ndim=1, dtype="float32"):
        y = R.concat((x, x))
        r: R.Tensor(ndim=1, dtype="float32") = M.main(y)
        return r
    """,
        # Effects.
        SUM.replace("@R.function", "@R.function(pure=False)").replace(
            "u = R.add(t, n)", "u = R.add(t, n)\n            _ = R.print(u)"
        ),
    ],
    ids=["not last", "growing", "effects"],
)
def test_other_recursion_stays(text: str) -> None:
    mod = parse(text)
    assert_structural_equal(TailRecursionToLoops()(mod), mod)


@pytest.mark.parametrize(
    "work",
    ["found = R.nonzero(x)", 'found = R.call_pure_packed("test.tail", x, sinfo_args=R.Object)'],
)
def test_a_round_with_work_for_the_host_stays_recursion(work: str) -> None:
    text = f"""
    @R.function
    def main(
        i: R.Tensor((), "int32"), x: R.Tensor((2,), "float32")
    ) -> R.Tensor((2,), "float32"):
        c = R.less(i, R.const(3, "int32"))
        if c:
            {work}
            r = M.main(R.add(i, R.const(1, "int32")), R.add(x, x))
        else:
            r = x
        return r
    """
    rx.register_func("test.tail", lambda x: x, override=True)
    machine = rx.VirtualMachine(rx.build(parse(text)))
    got = machine["main"](np.int32(0), np.ones(2, np.float32))
    np.testing.assert_array_equal(np.asarray(got), [8, 8])


@pytest.mark.parametrize(
    "body",
    [
        "r: R.Tensor((), 'float32') = M.main(x, c)",
        "r: R.Tensor((), 'float32') = M.other(x, c)",
        """if c:
            r = M.main(R.add(x, x), c)
        else:
            r = M.other(x, c)""",
    ],
    ids=["at once", "by another", "in both branches"],
)
def test_what_never_ends_is_refused(body: str) -> None:
    text = f"""
    @R.function
    def main(x: R.Tensor((), "float32"), c: R.Tensor((), "bool")) -> R.Tensor((), "float32"):
        {body}
        return r

    @R.function(private=True)
    def other(x: R.Tensor((), "float32"), c: R.Tensor((), "bool")) -> R.Tensor((), "float32"):
        r: R.Tensor((), "float32") = M.main(x, c)
        return r
    """
    with pytest.raises(TransformError, match="main calls itself on every path"):
        rx.build(parse(text))
