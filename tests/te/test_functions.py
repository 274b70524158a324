"""Functions of scalars in tensor expressions, beside numpy."""

from __future__ import annotations

import numpy as np
import pytest

import relax2xla as rx
from relax2xla import te, tir
from relax2xla.te import functions as f
from relax2xla.tir.kernel.interpret import Interpreter


def test_functions_of_elements() -> None:
    def compute(x: te.Tensor) -> te.Tensor:
        def element(i: tir.Var, j: tir.Var) -> tir.PrimExpr:
            v = x[i, j]
            powers = f.power(tir.const(2.0, "float32"), f.floor(v)) + f.sin(v) * te.exp(-te.abs(v))
            bits = f.bitwise_and(f.shift_right(f.round(v).astype("int32") + 8, 1), 3)
            return f.multiply(powers, 2.0) + bits.astype("float32") + f.min_value("int8")

        return te.compute(x.shape, element)

    builder = rx.BlockBuilder()
    x = rx.Var("x", rx.TensorStructInfo((3, 5), "float32"))
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit_te(compute, x))
    given = np.random.default_rng(0).normal(0, 2, (3, 5)).astype("float32")
    made = rx.VirtualMachine(rx.build(builder.get()))["main"](given)
    want = 2 * (2 ** np.floor(given) + np.sin(given) * np.exp(-abs(given)))
    want = want + ((np.round(given).astype(int) + 8) >> 1 & 3) - 128
    np.testing.assert_allclose(made, want, rtol=1e-5)


def test_equality_of_elements_is_an_expression() -> None:
    x = te.placeholder((4,), "int32", "x")
    n = tir.Var("n", "int64")

    def element(i: tir.Var) -> tir.PrimExpr:
        # In Python's own conditions and containers structure counts, as everywhere else.
        assert i == i
        assert i + 1 == i + 1
        assert i != i + 1
        assert {i: "index"}[i] == "index"
        assert i not in (n, n + 1)
        either = tir.Or(x[i] == 2, i == 0)  # pyright: ignore[reportArgumentType]
        return tir.Select(either, tir.const(1, "int32"), (x[i] != 5).astype("int32"))  # pyright: ignore

    func = te.create_prim_func([x, te.compute((4,), element)])
    made = np.zeros(4, np.int32)
    Interpreter().run(func, np.array([5, 2, 5, 3], np.int32), made)
    assert made.tolist() == [1, 1, 0, 1]
    assert (n == n + 1) is False
    assert (n != n) is False
    with pytest.raises(ValueError, match="cannot decide the truth"):
        bool(n.equal(4))


def test_names() -> None:
    assert {"exp", "max_value", "compute"} <= set(dir(te))
    assert "exp" in dir(f)
    for place in (te, f):
        with pytest.raises(AttributeError, match="nothing"):
            _ = place.nothing
