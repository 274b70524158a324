"""DeadCodeElimination: what of a module goes and what stays."""

from __future__ import annotations

import pytest

import relax2xla as rx
from relax2xla import transform
from relax2xla.script import from_source

TEXT = """
from tvm.script import ir as I, relax as R, tir as T
@I.ir_module
class M:
    @T.prim_func(private=True)
    def inner(a: T.Buffer((2,), "float32")):
        T.evaluate(0)

    @T.prim_func(private=True)
    def outer(a: T.Buffer((2,), "float32"), b: T.Buffer((2,), "float32")):
        M.inner(a.data)

    @T.prim_func(private=True)
    def loose(a: T.Buffer((2,), "float32"), b: T.Buffer((2,), "float32")):
        T.evaluate(0)

    @R.function(private=True)
    def used(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
        y = R.add(x, x)
        return y

    @R.function(private=True)
    def used_by_the_dead(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
        y = R.exp(x)
        return y

    @R.function(private=True)
    def entry(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
        y = R.negative(x)
        return y

    @R.function
    def main(x: R.Tensor((2,), "float32")):
        dead = M.used_by_the_dead(x)
        y = M.used(x)
        z = R.call_tir(M.outer, (y,), R.Tensor((2,), "float32"))
        return z

    @R.function
    def public(x: R.Tensor((2,), "float32")):
        return x
"""
STAYS = {"inner", "outer", "used", "main", "public"}


def names(mod: rx.IRModule) -> set[str]:
    return {g.name_hint for g in mod}


def module() -> rx.IRModule:
    mod = from_source(TEXT)
    assert isinstance(mod, rx.IRModule)
    return mod


def test_functions_that_nothing_reaches_go() -> None:
    assert names(transform.DeadCodeElimination()(module())) == STAYS
    assert names(transform.DeadCodeElimination(["entry"])(module())) == {*STAYS, "entry"}
    again = transform.DeadCodeElimination()(transform.DeadCodeElimination()(module()))
    assert names(again) == STAYS


def test_an_entry_has_to_be_there() -> None:
    with pytest.raises(KeyError, match="the module has no function 'gone'"):
        transform.DeadCodeElimination(entry_functions=["gone"])(module())
