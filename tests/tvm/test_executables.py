"""Kernels that ``tvm.compile`` gives: they write into arguments, and return numbers."""

from __future__ import annotations

import numpy as np

from relax2xla import tir
from relax2xla.script import from_source
from relax2xla.tvm.executables import build


def kernel(text: str) -> tir.PrimFunc:
    made = from_source(f"from relax2xla.script import tir as T\n\n@T.prim_func\n{text}\n")
    assert isinstance(made, tir.PrimFunc)
    return made


def test_a_number_is_returned() -> None:
    product = build(kernel("def f(x: T.int8, y: T.int8) -> T.int8:\n    return x * y"))
    assert product(100, 2) == product["f"](100, 2) == -56
    assert type(product(1, 1)) is int


def test_a_number_beside_what_is_written() -> None:
    square = build(kernel('def f(x: T.float32, z: T.Buffer((), "float32")):\n    z[()] = x * x'))
    z = np.zeros((), "float32")
    assert square(3.0, z) is None
    assert z == 9
