"""DataflowUseInplaceCalls: operators whose operand is free become kernels that write into it."""

from __future__ import annotations

import numpy as np
import pytest

from relax2xla.analysis.dataflow_inplace import INPLACE
from relax2xla.errors import TransformError
from relax2xla.ir import Call, GlobalVar, IRModule, MatchCast
from relax2xla.ir.rewrite import bindings_deep
from relax2xla.script import from_source
from relax2xla.testing.transform import dataflow_single_inplace_call
from relax2xla.tir import PrimFunc
from relax2xla.transform import DataflowUseInplaceCalls
from relax2xla.transform.fusion.inplace import KERNELS
from tests.transform.programs import module, operators, same_values, tensor


def kernels(mod: IRModule) -> dict[str, PrimFunc]:
    return {g.name_hint: f for g, f in mod.items() if isinstance(f, PrimFunc)}


def written(mod: IRModule) -> list[tuple[str, tuple[int, ...]]]:
    """Kernel and places of each call that writes into an operand."""
    calls = [b.value for b in bindings_deep(mod["main"]) if isinstance(b.value, Call)]
    return [
        (c.args[0].name_hint, tuple(c.attrs["inplace_indices"]))
        for c in calls
        if isinstance(c.args[0], GlobalVar) and "inplace_indices" in c.attrs
    ]


def test_there_is_a_kernel_for_each_operator_of_the_analysis() -> None:
    assert set(KERNELS) == INPLACE


@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize("operator", ["add", "subtract", "multiply", "divide"])
def test_of_two_operands_the_free_one_is_written_into(operator: str, dtype: str) -> None:
    mod = module(
        [tensor("x", 2, 3, dtype=dtype), tensor("y", 3, dtype=dtype)],
        "a = R.add(x, y)",
        f"out = R.{operator}(a, y)",
    )
    args = [np.array([[-7, 2, 3], [4, -5, 6]], dtype), np.array([2, -3, 4], dtype)]
    made = same_values(mod, DataflowUseInplaceCalls(), *args)
    assert written(made) == [(f"{operator}_inplace", (0,))]
    kernel = kernels(made)[f"{operator}_inplace"]
    assert len(kernel.params) == 2
    assert "global_symbol" not in kernel.attrs


@pytest.mark.parametrize("operator", ["relu", "silu"])
def test_of_one_operand(operator: str) -> None:
    mod = module([tensor("x", "n", 3)], "a = R.exp(x)", f"out = R.nn.{operator}(a)")
    made = same_values(
        mod, DataflowUseInplaceCalls(), np.linspace(-2, 2, 12, dtype="float32").reshape(4, 3)
    )
    assert written(made) == [(f"{operator}_inplace", (0,))]


def test_calls_of_one_shape_share_a_kernel() -> None:
    mod = module(
        [tensor("x", 2, 3), tensor("y", 2, 3), tensor("z", 3)],
        "a = R.add(x, y)",
        "b = R.add(a, y)",
        "c = R.add(b, y)",
        "out = R.add(c, z)",
    )
    ones = np.ones((2, 3), "float32")
    made = same_values(mod, DataflowUseInplaceCalls(), ones, ones, ones[0])
    names = [name for name, _ in written(made)]
    assert names == ["add_inplace", "add_inplace", "add_inplace1"]
    assert len(kernels(made)) == 2


def test_one_operand_twice() -> None:
    mod = module([tensor("x", 4)], "a = R.exp(x)", "out = R.subtract(a, a)")
    made = same_values(mod, DataflowUseInplaceCalls(), np.ones(4, "float32"))
    assert written(made) == [("subtract_inplace", (1,))]


def test_a_checked_value_stays_checked() -> None:
    mod = module(
        [tensor("x", 2, 3)],
        "a = R.exp(x)",
        "out = R.match_cast(R.nn.relu(a), R.Tensor((2, 3), 'float32'))",
    )
    made = same_values(mod, DataflowUseInplaceCalls(), np.ones((2, 3), "float32"))
    assert written(made) == [("relu_inplace", (0,))]
    assert isinstance(list(bindings_deep(made["main"]))[-1], MatchCast)


@pytest.mark.parametrize(
    "body",
    [
        ("a = R.exp(x)", "b = R.nn.relu(a)", "out = R.add(a, b)"),
        ("out = R.nn.relu(x)",),
        ("a = R.exp(x)", "out = R.tanh(a)"),
    ],
    ids=["read later", "a parameter", "another operator"],
)
def test_what_stays(body: tuple[str, ...]) -> None:
    mod = module([tensor("x", 2, 3)], *body)
    made = DataflowUseInplaceCalls()(mod)
    assert "relu_inplace" not in kernels(made)
    assert operators(made)[0] == operators(mod)[0]


def test_a_module_without_such_calls_is_the_same() -> None:
    mod = module([tensor("x", 2, 3)], "a = R.exp(x)", "out = R.tanh(a)")
    assert DataflowUseInplaceCalls()(mod) is mod


def test_sizes_that_may_differ_stay() -> None:
    mod = from_source(
        "from relax2xla.script import ir as I, relax as R\n"
        "@I.ir_module\nclass Module:\n    @R.function\n"
        "    def main(x: R.Tensor(('a', 'b'), 'float32'), y: R.Tensor(('c', 'd'), 'float32')):\n"
        "        with R.dataflow():\n            z = R.add(x, y)\n            gv = R.add(z, y)\n"
        "            R.output(gv)\n        return gv\n"
    )
    assert isinstance(mod, IRModule)
    assert DataflowUseInplaceCalls()(mod) is mod


def test_a_single_call() -> None:
    mod = module([tensor("x", 2, 3)], "a = R.exp(x)", "out = R.tanh(a)")
    first = next(bindings_deep(mod["main"])).value
    assert isinstance(first, Call)
    with pytest.raises(TransformError, match=r"relax\.exp with the places \[0\]: .*relax\.add"):
        dataflow_single_inplace_call(mod, first, [0])
    added = module([tensor("x", 2, 3)], "a = R.exp(x)", "out = R.add(a, x)")
    call = list(bindings_deep(added["main"]))[1].value
    assert isinstance(call, Call)
    made, kernel = dataflow_single_inplace_call(added, call, [0])
    assert made.attrs["inplace_indices"] == (0,)
    assert list(kernels(kernel)) == ["add_inplace"]
    with pytest.raises(TransformError, match=r"\[0, 1\]"):
        dataflow_single_inplace_call(added, call, [0, 1])
