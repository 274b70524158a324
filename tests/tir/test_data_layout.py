"""Layouts by letters: their axes, and indices and shapes from one to another.

Expected values are those of TVM's wheel 0.25.
"""

from __future__ import annotations

from typing import Any

import pytest

from relax2xla import tir
from relax2xla.errors import OpError
from relax2xla.topi.utils import get_const_float, get_const_int, get_const_tuple

SAME = ("NCHW", "NCHW16c")


def test_axes() -> None:
    made = tir.layout("NCHW16c", dtype="int64")
    assert [made[i] for i in range(len(made))] == ["N", "C", "H", "W", "c"]
    assert made.factor_of("C") == made.factor_of("c") == 16
    assert made.factor_of("N") == -1
    assert made.index_of("c") == 4
    assert "O" not in made
    assert [a.var.name for a in made.axes] == ["N", "C", "H", "W", "16c"]
    assert made.axes[4].dom is not None
    assert made.axes[4].dom.extent == 16
    assert made.axes[0].var.dtype == "int64"


@pytest.mark.parametrize("text", ["NCHWc", "N16c", "NCHW0c", "n", "", "NC16c8c", "NC16c4h", "N-C"])
def test_a_text_that_is_no_layout(text: str) -> None:
    with pytest.raises(OpError, match="expected letters such as NCHW"):
        tir.layout(text)


@pytest.mark.parametrize("dtype", ["float32", "bool", None])
def test_indices_are_integers(dtype: Any) -> None:
    with pytest.raises(TypeError, match="integers"):
        tir.layout("NCHW", dtype=dtype)


def test_layouts_that_nothing_leads_between() -> None:
    pairs = [("NCHW", "ABCD"), ("__undef__", "NCHW"), ("NCHW", ""), ("", "")]
    assert [tir.bijective_layout(a, b) for a, b in pairs] == [None] * 4
    with pytest.raises(OpError, match="different axes"):
        tir.BijectiveLayout(tir.layout("NC"), tir.layout("AB"))


def both(a: str, b: str) -> tir.BijectiveLayout:
    made = tir.bijective_layout(a, b)
    assert made is not None
    return made


def test_shapes() -> None:
    assert both(*SAME).forward_shape((1, 33, 7, 7)) == (1, 3, 7, 7, 16)
    assert both(*SAME).backward_shape((1, 3, 7, 7, 16)) == (1, 48, 7, 7)
    assert both("NCHW", "NHWC").forward_shape((1, 2, 3, 4)) == (1, 3, 4, 2)
    wider = both("NCHW8c", "NCHW16c")
    assert wider.forward_shape((1, 4, 7, 7, 8)) == (1, 2, 7, 7, 16)
    assert wider.backward_shape((1, 2, 7, 7, 16)) == (1, 4, 7, 7, 8)
    n = tir.Var("n", "int32")
    assert str(both(*SAME).forward_shape((1, n, 7, 7))[1]) == "(n + T.int32(15)) // T.int32(16)"


def test_indices() -> None:
    assert both(*SAME).forward_index([0, 18, 6, 6]) == (0, 1, 6, 6, 2)
    assert both(*SAME).backward_index([0, 1, 6, 6, 2]) == (0, 18, 6, 6)
    assert both("NCHW8c", "NCHW16c").forward_index((0, 3, 1, 1, 5)) == (0, 1, 1, 1, 13)
    n = tir.Var("n", "int32")
    assert [str(x) for x in both(*SAME).forward_index((0, n, 1, 1))][1::3] == [
        "n // T.int32(16)",
        "n % T.int32(16)",
    ]
    with pytest.raises(OpError, match="takes 4 indices; got 3"):
        both(*SAME).forward_index((1, 2, 3))


def test_known_numbers() -> None:
    n = tir.Var("n", "int32")
    assert get_const_tuple((tir.IntImm("int32", 2), 3, n, n - n + 1)) == (2, 3, n, 1)
    assert get_const_int(tir.IntImm("int64", 4)) == 4
    assert get_const_float(tir.FloatImm("float32", 0.5)) == 0.5
    with pytest.raises(ValueError, match="known"):
        get_const_int(n)
    with pytest.raises(ValueError, match="known"):
        get_const_float(n)
