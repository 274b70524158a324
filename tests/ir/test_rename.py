"""Functions under other names."""

from __future__ import annotations

import pytest

from relax2xla import tir
from relax2xla.analysis import collect_call_map
from relax2xla.errors import TVMError
from relax2xla.ir import IRModule, assert_structural_equal
from relax2xla.script import ir as I
from relax2xla.script import relax as R
from relax2xla.script import tir as T
from relax2xla.transform import NormalizeGlobalVar


@I.ir_module
class Before:
    @R.function
    def main(A: R.Tensor([16], "float32")) -> R.Tensor([16], "float32"):
        B = Before.part(A)
        C = R.call_tir(Before.kernel, B, out_sinfo=R.Tensor([16], "float32"))
        return C

    @R.function(private=True)
    def part(A: R.Tensor([16], "float32")) -> R.Tensor([16], "float32"):
        B = R.add(A, R.const(1.0, "float32"))
        return B

    @T.prim_func
    def kernel(A: T.Buffer(16, "float32"), B: T.Buffer(16, "float32")):
        Before.inner(A.data, B.data)

    @T.prim_func(private=True)
    def inner(A_data: T.handle("float32"), B_data: T.handle("float32")):
        A = T.decl_buffer(16, "float32", data=A_data)
        B = T.decl_buffer(16, "float32", data=B_data)
        for i in range(16):
            B[i] = A[i] + T.float32(1)


@I.ir_module
class After:
    @R.function
    def new_main(A: R.Tensor([16], "float32")) -> R.Tensor([16], "float32"):
        B = After.new_part(A)
        C = R.call_tir(After.new_kernel, B, out_sinfo=R.Tensor([16], "float32"))
        return C

    @R.function(private=True)
    def new_part(A: R.Tensor([16], "float32")) -> R.Tensor([16], "float32"):
        B = R.add(A, R.const(1.0, "float32"))
        return B

    @T.prim_func
    def new_kernel(A: T.Buffer(16, "float32"), B: T.Buffer(16, "float32")):
        After.new_inner(A.data, B.data)

    @T.prim_func(private=True)
    def new_inner(A_data: T.handle("float32"), B_data: T.handle("float32")):
        A = T.decl_buffer(16, "float32", data=A_data)
        B = T.decl_buffer(16, "float32", data=B_data)
        for i in range(16):
            B[i] = A[i] + T.float32(1)


def test_names_change_wherever_functions_are_named() -> None:
    names = ("main", "part", "kernel", "inner")
    new = Before.replace_global_vars({n: f"new_{n}" for n in names})
    assert_structural_equal(new, After)
    assert [g.name_hint for g in new] == [f"new_{n}" for n in names]
    assert new["new_main"].attrs["global_symbol"] == "new_main"
    assert new["new_kernel"].attrs["global_symbol"] == "new_kernel"
    one = Before.replace_global_vars({Before.get_global_var("inner"): "new_inner"})
    assert "new_inner" in one["kernel"].script()
    assert one["main"].attrs["global_symbol"] == "main"
    back = new.replace_global_vars({f"new_{n}": n for n in names})
    assert_structural_equal(back, Before)


def test_names_that_are_exchanged() -> None:
    new = Before.replace_global_vars({"part": "inner", "inner": "part"})
    assert isinstance(new["part"], tir.PrimFunc)
    assert collect_call_map(new)[new.get_global_var("kernel")] == [new.get_global_var("part")]


def test_names_that_stay_and_names_that_cannot_be() -> None:
    assert Before.replace_global_vars({}) is Before
    assert Before.replace_global_vars({"main": "main"}) is Before
    with pytest.raises(TVMError, match="the module has a function kernel already"):
        Before.replace_global_vars({"main": "kernel"})
    with pytest.raises(TVMError, match="already has another function named 'x'"):
        Before.replace_global_vars({"main": "x", "part": "x"})
    with pytest.raises(KeyError, match="other"):
        Before.replace_global_vars({"other": "x"})


def test_kernels_call_kernels_by_their_new_names() -> None:
    kernel = Before["kernel"].with_attr("global_symbol", "renamed")
    inner = Before["inner"].with_attr("global_symbol", "inside")
    new = NormalizeGlobalVar()(IRModule({"kernel": kernel, "inner": inner}))
    assert [g.name_hint for g in new] == ["renamed", "inside"]
    (called,) = collect_call_map(new)[new.get_global_var("renamed")]
    assert called.name_hint == "inside"


def test_who_names_whom() -> None:
    found = {k.name_hint: [g.name_hint for g in v] for k, v in collect_call_map(Before).items()}
    assert found == {"main": ["part", "kernel"], "part": [], "kernel": ["inner"], "inner": []}
