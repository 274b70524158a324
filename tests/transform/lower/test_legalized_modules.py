"""Modules that a program legalises itself, before ``build``: they compute what they did."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import relax2xla as rx
from relax2xla.analysis import well_formed
from relax2xla.ir import Function, IRModule
from relax2xla.script import from_source
from relax2xla.transform import (
    CallTIRRewrite,
    InlinePrivateFunctions,
    LegalizeOps,
    Pass,
    ToNonDataflow,
)

HEAD = """
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def half(A_: T.handle, B_: T.handle):
        n = T.int64()
        A = T.match_buffer(A_, (n, T.int64(4)), "float32")
        B = T.match_buffer(B_, (n, T.int64(4)), "float32")
        for i, j in T.grid(n, T.int64(4)):
            with T.block("b"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * T.float32(0.5)
"""
PRIVATE = """
    @R.function(private=True)
    def f(x: R.Tensor(("n", 4), "float32")) -> R.Tensor(("n", 4), "float32"):
        {body}
        return y
"""
RECURSIVE = """
    @R.function(private=True)
    def f(i: R.Tensor((), "int32"), x: R.Tensor(("n", 4), "float32")) -> R.Tensor(
        ("n", 4), "float32"
    ):
        cls = Module
        c = R.greater(i, R.const(0, "int32"))
        if c:
            w = cls.f(R.subtract(i, R.const(1, "int32")), x)
            y = R.tanh(w)
        else:
            y = x
        return y
"""
MAIN = """
    @R.function{flags}
    def main(x: R.Tensor(("n", 4), "float32")):
        cls = Module
        n = T.int64()
        c = R.greater(R.sum(x), R.const(0.0, "float32"))
"""
NAMED = "        n = T.int64()\n"
HALF = 'R.call_tir(cls.half, ({},), out_sinfo=R.Tensor((n, 4), "float32"))'


def module(body: str, before: str = "", flags: str = "", rows: str = '"n"') -> IRModule:
    lines = "".join(f"        {line}\n" for line in body.strip("\n").split("\n"))
    main = MAIN.format(flags=flags).replace('"n"', rows)
    return from_source(HEAD + before + (main if rows == '"n"' else main.replace(NAMED, "")) + lines)


def choice(yes: str, no: str = "y = R.tanh(x)") -> str:
    return f"if c:\n    {yes}\nelse:\n    {no}\nreturn y"


LOCAL = """
@R.function
def g(q: R.Tensor({dims}, "float32")) -> R.Tensor({dims}, "float32"):
    w = {half}
    return R.tanh(w)
y = g(x)
z = g(y)
return z
"""
PACKED = 'R.call_pure_packed("test.legalized.same", x, sinfo_args=R.Tensor((n, 4), "float32"))'
MODULES = {
    "kernels": module(f"y = {HALF.format('x')}\nz = {HALF.format('y')}\nreturn (z, y)"),
    "a kernel in a branch": module(choice(f"y = R.tanh({HALF.format('x')})")),
    "a kernel in a local function": module(LOCAL.format(dims="(n, 4)", half=HALF.format("q"))),
    "a local function with sizes of its own": module(
        LOCAL.format(dims='("m", 4)', half=HALF.format("q").replace("(n, 4)", "(m, 4)")).replace(
            "    w =", "    m = T.int64()\n    w =", 1
        )
    ),
    "a kernel, and a size that is a value": module(
        f"y = {HALF.format('x')}\nz = R.broadcast_to(R.sum(y), R.shape([n, 4]))\nreturn (y, z)"
    ),
    "a function called in a branch": module(
        choice("y = cls.f(x)"), PRIVATE.format(body="y = R.tanh(R.add(x, x))")
    ),
    "recursion": module('y = cls.f(R.const(2, "int32"), x)\nreturn y', RECURSIVE),
    "recursion in a branch": module(choice('y = cls.f(R.const(2, "int32"), x)'), RECURSIVE),
    "a packed function": module(f"y = {PACKED}\nreturn R.tanh(y)"),
    "a packed function in a branch": module(choice(f"y = {PACKED}")),
    "an impure packed function": module(
        'y = R.call_packed("test.legalized.same", x, sinfo_args=R.Tensor((n, 4), "float32"))\n'
        "return y",
        flags="(pure=False)",
    ),
    "a size that the machine computes": module(
        "y = R.sum(R.tanh(R.unique(x)))\nreturn y", rows="3"
    ),
}
PASSES: tuple[tuple[Pass, ...], ...] = (
    (),
    (LegalizeOps(),),
    (CallTIRRewrite(),),
    (CallTIRRewrite(), LegalizeOps()),
    (LegalizeOps(), CallTIRRewrite()),
    (LegalizeOps(), ToNonDataflow(), CallTIRRewrite()),
)
EXPECTED = {
    "kernels": lambda x: (x / 4, x / 2),
    "a kernel in a branch": lambda x: np.tanh(x / 2),
    "a kernel in a local function": lambda x: np.tanh(np.tanh(x / 2) / 2),
    "a local function with sizes of its own": lambda x: np.tanh(np.tanh(x / 2) / 2),
    "a kernel, and a size that is a value": lambda x: (x / 2, np.full_like(x, x.sum() / 2)),
    "a function called in a branch": lambda x: np.tanh(x + x),
    "recursion": lambda x: np.tanh(np.tanh(x)),
    "recursion in a branch": lambda x: np.tanh(np.tanh(x)),
    "a packed function": np.tanh,
    "a packed function in a branch": lambda x: x,
    "an impure packed function": lambda x: x,
    "a size that the machine computes": lambda x: np.tanh(np.unique(x)).sum(),
}


@pytest.mark.parametrize("name", MODULES)
def test_the_values_stay(name: str) -> None:
    rx.register_func("test.legalized.same", lambda x: x, override=True)
    x = np.linspace(-0.2, 1, 12, dtype="float32").reshape(3, 4)
    wanted = EXPECTED[name](x)
    for passes in PASSES:
        mod = MODULES[name]
        for p in passes:
            mod = p(mod)
        assert well_formed(mod)
        made: Any = rx.VirtualMachine(rx.build(mod))["main"](x)
        for got, want in zip(_several(made), _several(wanted), strict=True):
            np.testing.assert_allclose(np.asarray(got), want, rtol=1e-5, atol=1e-6)


def _several(value: Any) -> Sequence[Any]:
    return value if isinstance(value, tuple | list) else [value]


def test_neighbouring_blocks_are_one() -> None:
    mod = module(
        "y = cls.f(x)\nwith R.dataflow():\n    u = R.sin(y)\n    R.output(u)\n"
        f"z = {HALF.format('y')}\n"
        "return (z, R.broadcast_to(R.sum(z), R.shape([n, 4])))",
        PRIVATE.format(body="t = R.add(x, x)\n        y = R.tanh(t)"),
    )
    for p in (InlinePrivateFunctions(), LegalizeOps()):
        mod = p(mod)
        main = mod["main"]
        assert isinstance(main, Function)
        kinds = [type(block) for block in main.body.blocks]
        assert all(a is not b for a, b in pairwise(kinds)), p
