"""Executables with a program for each operator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relax2xla as rx
from relax2xla.errors import UnsupportedError
from relax2xla.runtime.registry import register_func, remove_global_func
from relax2xla.script import from_source
from relax2xla.testing import to_numpy
from relax2xla.vm.call.bound import BoundFunction
from relax2xla.vm.plan.operators import by_operator

SOURCE = """
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def twice(a: T.Buffer((4,), "float32"), b: T.Buffer((4,), "float32")):
        for i in range(4):
            with T.block("b"):
                v = T.axis.spatial(4, i)
                b[v] = a[v] * T.float32(2)

    @R.function(private=True)
    def inner(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        y = R.exp(x)
        return R.negative(y)

    @R.function
    def main(x: R.Tensor((4,), "float32"), c: R.Tensor((), "bool")):
        cls = Module
        a = R.add(x, R.const([1.0, 2.0, 3.0, 4.0], "float32"))
        b = cls.inner(a)
        if c:
            d = R.add(b, a)
        else:
            e = R.tanh(b)
            d = R.subtract(e, a)
        t = R.split(d, 2)
        u = R.concat((t[1], t[0]))
        w = R.call_tir(cls.twice, (u,), R.Tensor((4,), "float32"))
        return (w, (a, b))

    @R.function
    def symbolic(x: R.Tensor(("n", 3), "float32")):
        n = T.int64()
        a = R.reshape(x, R.shape([n * 3]))
        b = R.match_cast(a, R.Tensor(("m",), "float32"))
        m = T.int64()
        return R.add(b, R.zeros(R.shape([m]), "float32"))

    @R.function
    def looped(x: R.Tensor((), "int32")) -> R.Tensor((), "int32"):
        @R.function
        def more(y: R.Tensor((), "int32")) -> R.Tensor((), "int32"):
            return R.add(y, x)

        z = more(x)
        return more(z)
"""


def modules(source: str = SOURCE) -> Any:
    built = rx.build(from_source(source))
    return built, by_operator(built)


def both(built: Any, apart: Any, name: str, *args: Any) -> list[list[Any]]:
    """Results of the program, and of its operators one by one."""
    plain = rx.VirtualMachine(built)
    function = plain.function(name)
    assert isinstance(function, BoundFunction)
    weights = function.weights()
    machines = (plain[name](*args), rx.VirtualMachine(apart)[name](*args, *weights))
    return [_flat(to_numpy(m)) for m in machines]


def _flat(value: Any) -> list[Any]:
    return [x for v in value for x in _flat(v)] if isinstance(value, list | tuple) else [value]


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("main", (np.ones(4, "float32"), np.array(True))),
        ("main", (np.ones(4, "float32"), np.array(False))),
        ("symbolic", (np.ones((5, 3), "float32"),)),
        ("looped", (np.array(3, "int32"),)),
    ],
)
def test_the_results_are_those_of_the_program(name: str, args: tuple[Any, ...]) -> None:
    program, operators = both(*modules(), name, *args)
    for a, b in zip(program, operators, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_regions_are_named_after_operators() -> None:
    _, apart = modules()
    names = set(apart.regions)
    assert names >= {"add", "split", "concat", "twice_1", "exp", "negative", "tanh", "subtract"}
    assert "more" in names  # a local function is one region
    assert not apart.entries


def test_equal_operators_share_a_region() -> None:
    _, apart = modules(
        "@I.ir_module\nclass Module:\n    @R.function\n"
        "    def main(x: R.Tensor((4, 4), 'float32'), y: R.Tensor((4, 4), 'float32')):\n"
        "        a = R.matmul(x, y)\n        b = R.matmul(a, x)\n"
        "        c = R.sum(b, axis=0)\n        d = R.sum(b, axis=1)\n"
        "        return R.add(c, d)\n"
    )
    assert list(apart.regions) == ["matmul", "sum", "sum_1", "add"]


def test_weights_are_arguments() -> None:
    weight = np.arange(256, dtype="float32").reshape(16, 16)
    x = rx.Var("x", rx.TensorStructInfo((2, 16), "float32"))
    bb = rx.BlockBuilder()
    with bb.function("main", [x]):
        y = bb.emit(rx.op.matmul(x, rx.const(weight)))
        bb.emit_func_output(bb.emit(rx.op.matmul(y, rx.const(weight + 1))))
    built = rx.build(bb.get())
    apart = by_operator(built)
    assert list(apart.regions) == ["matmul"]
    program, operators = both(built, apart, "main", np.ones((2, 16), "float32"))
    np.testing.assert_allclose(program[0], operators[0], rtol=1e-5)


def test_a_saved_executable(tmp_path: Path) -> None:
    built = rx.build(from_source(SOURCE))
    built.export_library(tmp_path / "model.r2x")
    loaded = rx.load_module(tmp_path / "model.r2x")
    args = (np.ones(4, "float32"), np.array(True))
    program, operators = both(loaded, by_operator(loaded), "main", *args)
    np.testing.assert_allclose(program[0], operators[0], rtol=1e-6)


def test_packed_functions_stay_calls() -> None:
    register_func("test_operators.plus", lambda a: np.asarray(a) + 1)
    try:
        _, apart = modules(
            "@I.ir_module\nclass Module:\n    @R.function(pure=False)\n"
            "    def main(x: R.Tensor((4,), 'float32')):\n"
            "        a = R.exp(x)\n"
            "        b = R.call_packed('test_operators.plus', a,"
            " sinfo_args=R.Tensor((4,), 'float32'))\n"
            "        c = R.negative(b)\n        return R.exp(c)\n"
        )
        assert list(apart.regions) == ["exp", "negative"]
        made = rx.VirtualMachine(apart)["main"](np.zeros(4, "float32"))
        np.testing.assert_allclose(np.asarray(made), np.exp(np.full(4, -2.0)), rtol=1e-6)
    finally:
        remove_global_func("test_operators.plus")


def test_one_device_alone() -> None:
    built = rx.build(
        from_source(
            "@I.ir_module\nclass Module:\n    @R.function\n"
            "    def main(x: R.Tensor((4,), 'float32')):\n"
            "        a = R.to_vdevice(x, 'cpu:1')\n        b = R.exp(a)\n"
            "        return R.to_vdevice(b, 'cpu:0')\n"
        )
    )
    with pytest.raises(UnsupportedError, match="operators run one by one on one device"):
        by_operator(built)
