"""Kernels that ``tvm.compile`` gives: they write into arguments, and return numbers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from relax2xla import IRModule, VMExecutable, tir
from relax2xla.errors import FileFormatError
from relax2xla.script import from_source
from relax2xla.tvm.runtime.arrays import array, empty
from relax2xla.tvm.runtime.executables import KernelModule, Module, build, load_module


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


def test_kernels_are_saved(tmp_path: Path) -> None:
    """Several in one file: of any size, with results out of order, with a number."""
    module = from_source(
        """
from relax2xla.script import ir as I, tir as T

@I.ir_module
class Kernels:
    @T.prim_func
    def grow(a: T.handle, b: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n,), "float32")
        B = T.match_buffer(b, (n,), "float32")
        for i in range(n):
            B[i] = A[i] + T.float32(1)

    @T.prim_func
    def both(P: T.Buffer((2,), "float32"), A: T.Buffer((2,), "float32"),
             Q: T.Buffer((2,), "float32")):
        for i in range(2):
            Q[i] = A[i] * T.float32(2)
            P[i] = A[i] * T.float32(3)

    @T.prim_func
    def half(x: T.int32) -> T.int32:
        return x // 2
"""
    )
    path = tmp_path / "kernels.tar"
    build(module).export_library(path)
    for compiled in (True, False):
        lib = load_module(path, compiled=compiled)
        assert isinstance(lib, KernelModule)
        assert isinstance(lib, Module)
        for n in (3, 5):
            out = empty((n,))
            lib["grow"](array(np.arange(n, dtype="float32")), out)
            assert out.tolist() == list(range(1, n + 1))
        p, q = empty((2,)), empty((2,))
        lib["both"](p, array(np.array([1, 2], "float32")), q)
        assert (p.tolist(), q.tolist()) == ([3, 6], [2, 4])
        assert lib["half"](9) == 4
        assert lib.time_evaluator("half", number=1)(9).mean > 0


def test_a_saved_kernel_that_is_none(tmp_path: Path) -> None:
    """What the file says of kernels is looked at when it is loaded."""
    built = build(kernel('def f(A: T.Buffer((2,), "float32")):\n    A[0] = T.float32(1)'))
    assert built.entry_name == "f"
    path = tmp_path / "f.r2x"
    for changed, message in (
        ({"prim_funcs": ("g",)}, "no function for the PrimFunc g"),
        ({"in_place": {"f": ((7, 0),)}}, "writes to a parameter"),
    ):
        replace(built.executable, **changed).export_library(path)
        with pytest.raises(FileFormatError, match=message):
            load_module(path)


def test_executables_of_relax_are_loaded_as_such(tmp_path: Path) -> None:
    function = from_source(
        """
from relax2xla.script import relax as R

@R.function
def main(x: R.Tensor((2,), "float32")):
    return R.add(x, x)
"""
    )
    path = tmp_path / "main.so"
    build(IRModule({"main": function})).export_library(path)
    assert isinstance(load_module(path), VMExecutable)
