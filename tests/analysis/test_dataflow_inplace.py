"""Lives, aliases and places of dataflow blocks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from relax2xla import op
from relax2xla.analysis.dataflow_inplace import (
    _fit,  # pyright: ignore[reportPrivateUsage]
    dataflow_alias_analysis,
    dataflow_inplace_analysis,
    dataflow_liveness_analysis,
)
from relax2xla.builder import BlockBuilder
from relax2xla.ir import DataflowBlock, IRModule, TensorStructInfo, Var
from relax2xla.script import from_source

T = TypeVar("T")


def program(*lines: str) -> tuple[IRModule, DataflowBlock]:
    """``main(x, y, t)`` of one block, which gives ``gv``."""
    head = (
        "from relax2xla.script import ir as I, relax as R",
        "@I.ir_module",
        "class Module:",
        "    @R.function",
        "    def own(x: R.Tensor((2, 3), 'float32')) -> R.Tensor((2, 3), 'float32'):",
        "        return x",
        "    @R.function",
        "    def main(x: R.Tensor((2, 3), 'float32'), y: R.Tensor((3,), 'float32'),",
        "             t: R.Tuple(R.Tensor((2, 3), 'float32'), R.Tensor((2, 3), 'float32'))):",
        "        with R.dataflow():",
    )
    inside = (f"            {line}" for line in (*lines, "R.output(gv)"))
    mod = from_source("\n".join((*head, *inside, "        return gv")))
    assert isinstance(mod, IRModule)
    block = mod["main"].body.blocks[0]
    assert isinstance(block, DataflowBlock)
    return mod, block


def named(found: Mapping[Var, T]) -> dict[str, T]:
    return {v.name_hint: value for v, value in found.items()}


def test_lives() -> None:
    _, block = program("a = R.add(x, y)", "b = (a, x)", "c = b[0]", "gv = R.multiply(c, a)")
    lives = named(dataflow_liveness_analysis(block))
    assert lives == {
        "x": (-1, 4),
        "y": (-1, 4),
        "a": (0, 3),
        "b": (1, 1),
        "c": (2, 3),
        "gv": (3, 4),
    }


def test_aliases() -> None:
    mod, block = program(
        "a = x", "b = (a, y)", "c = b[1]", "d = t[0]", "e = Module.own(a)", "gv = R.add(e, c)"
    )
    sets, fields = dataflow_alias_analysis(block, mod["main"].params)
    own = {"x": {0}, "y": {1}, "t": {2}}
    made = {"a": {0}, "b": {5}, "c": {1}, "d": {3}, "e": {0, 6}, "gv": {7}}
    assert named(sets) == {**own, **made}
    assert fields == {2: [{3}, {4}], 5: [{0}, {1}]}


def test_unknown_code_may_give_any_part_of_its_arguments() -> None:
    mod, block = program(
        "a = (x, y)",
        "b = R.call_pure_packed('f', a, sinfo_args=[R.Tuple(R.Tensor((2, 3), 'float32'))])",
        "gv = b[0]",
    )
    sets, fields = dataflow_alias_analysis(block, mod["main"].params)
    assert named(sets)["gv"] == named(sets)["b"] == {0, 1, 5, 6, 7}
    assert fields[6] == [{0, 1, 5, 6, 7}]


def test_values_from_outside_are_not_written_into() -> None:
    bb = BlockBuilder()
    x = Var("x", TensorStructInfo((2,)))
    with bb.function("main", [x]):
        before = bb.emit(op.exp(x))
        with bb.dataflow():
            out = bb.emit_output(op.nn.relu(before))
        bb.emit_func_output(out)
    func = bb.get()["main"]
    block = func.body.blocks[1]
    assert isinstance(block, DataflowBlock)
    assert dataflow_inplace_analysis(block, func.params, bb.get()) == ([], [])


def places(*lines: str) -> Any:
    mod, block = program(*lines)
    return dataflow_inplace_analysis(block, mod["main"].params, mod)


def test_places() -> None:
    enough, exact = places(
        "a = R.add(x, y)",  # both are the caller's
        "b = R.exp(a)",  # no operator for that
        "c = R.add(a, b)",  # b is needed below
        "d = c",
        "e = R.multiply(c, b)",  # c goes on as d
        "gv = R.subtract(d, e)",
    )
    assert enough == exact == [(2, {0}), (4, {1}), (5, {0, 1})]


def test_large_enough_is_not_exact() -> None:
    # One operand has a row more than the other, and more axes than the result.
    info = TensorStructInfo
    a, b = Var("a", info((2, 3))), Var("b", info((3,)))
    assert _fit(a.struct_info, b.struct_info) is None
    assert _fit(b.struct_info, a.struct_info) is False
    assert _fit(a.struct_info, info((2, 3))) is True
    assert _fit(a.struct_info, info((2, 3), "int32")) is None
    assert _fit(a.struct_info, info(dtype="float32", ndim=2)) is None


def test_constants_are_not_written_into() -> None:
    enough, _ = places("a = R.exp(x)", "gv = R.add(a, R.const([[1, 2, 3], [4, 5, 6]], 'float32'))")
    assert enough == [(1, {0})]
