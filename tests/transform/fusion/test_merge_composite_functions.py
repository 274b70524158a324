"""MergeCompositeFunctions: neighbours for one code generator become one function."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import relax2xla
from relax2xla import op
from relax2xla.analysis import check_well_formed
from relax2xla.builder import BlockBuilder
from relax2xla.dpl import is_op, wildcard
from relax2xla.ir import Call, Function, GlobalVar, IRModule, TensorStructInfo, Tuple, Var
from relax2xla.ir.rewrite import bindings_deep
from relax2xla.transform import FuseOpsByPattern, MergeCompositeFunctions
from relax2xla.vm import VirtualMachine

PATTERNS = [
    *((f"a.{name}", is_op(f"relax.{name}")(wildcard())) for name in ("exp", "tanh")),
    *((f"b.{name}", is_op(f"relax.{name}")(wildcard(), wildcard())) for name in ("add",)),
]


def program(*steps: tuple[str, int, int], ends: tuple[int, ...]) -> IRModule:
    """A dataflow block; a step is an operator and the numbers of its operands (0 is ``x``)."""
    bb = BlockBuilder()
    values: list[Any] = [Var("x", TensorStructInfo((3,)))]
    with bb.function("main", [values[0]]):
        with bb.dataflow():
            for name, a, b in steps:
                two = name in ("add", "subtract")
                made = getattr(op, name)(*([values[a], values[b]] if two else [values[a]]))
                values.append(bb.emit(made))
            results = [bb.emit_output(values[i]) for i in ends]
        bb.emit_func_output(Tuple(results))
    return bb.get()


def merged(mod: IRModule) -> IRModule:
    made = MergeCompositeFunctions()(FuseOpsByPattern(PATTERNS)(mod))
    check_well_formed(made)
    return made


def run(mod: IRModule, x: Any) -> Any:
    return VirtualMachine(relax2xla.build(mod), relax2xla.cpu())["main"](x)


def codegens(mod: IRModule) -> list[tuple[str, int]]:
    """Code generator of each merged function, and how many calls it holds."""
    found = [f for f in mod.relax_functions().values() if "Codegen" in f.attrs]
    return sorted(
        (
            f.attrs["Codegen"],
            sum(
                isinstance(b.value, Call) and isinstance(b.value.op, Var) for b in bindings_deep(f)
            ),
        )
        for f in found
    )


def test_neighbours_are_merged() -> None:
    assert codegens(merged(program(("exp", 0, 0), ("tanh", 1, 0), ends=(2,)))) == [("a", 2)]


def test_what_lies_between_keeps_apart() -> None:
    # The sum of exp and of abs(exp): another code generator, or none, must run in between.
    diamond = program(("add", 0, 0), ("abs", 1, 0), ("add", 1, 2), ends=(3,))
    assert codegens(merged(diamond)) == [("b", 1), ("b", 1)]
    beside = program(("exp", 0, 0), ("add", 1, 1), ("tanh", 1, 0), ("add", 2, 3), ends=(4,))
    assert codegens(merged(beside)) == [("a", 2), ("b", 2)]


def test_one_function_is_bound_once() -> None:
    twice = program(("exp", 0, 0), ("exp", 1, 0), ends=(2,))
    (func,) = (f for f in merged(twice).relax_functions().values() if "Codegen" in f.attrs)
    values = [b.value for b in func.body.blocks[0].bindings]
    assert sum(isinstance(v, Function) for v in values) == 1


def test_without_composite_functions_the_module_comes_back() -> None:
    mod = program(("abs", 0, 0), ends=(1,))
    assert MergeCompositeFunctions()(mod) is mod


def test_a_part_that_grows_later_makes_no_circle() -> None:
    # Both sums read exp; the first also reads abs, so that what reads abs cannot join exp's part.
    steps = (("exp", 0, 0), ("abs", 1, 0), ("add", 1, 2), ("tanh", 1, 0), ("add", 4, 3))
    mod = program(*steps, ends=(5,))
    made = merged(mod)
    assert codegens(made) == [("a", 2), ("b", 2)]
    x = np.linspace(-1, 1, 3, dtype="float32")
    np.testing.assert_allclose(run(made, x)[0], run(mod, x)[0], rtol=1e-6)


NAMES = ("exp", "tanh", "add", "abs", "subtract")


STEP = st.tuples(st.sampled_from(NAMES), st.integers(0, 99), st.integers(0, 99))


@given(st.lists(STEP, min_size=1))
@settings(max_examples=60, deadline=None)
def test_any_program_is_merged_without_circles(steps: list[tuple[str, int, int]]) -> None:
    taken = [(name, a % (i + 1), b % (i + 1)) for i, (name, a, b) in enumerate(steps)]
    made = merged(program(*taken, ends=(len(taken),)))
    called = [b.value for b in bindings_deep(made["main"]) if isinstance(b.value, Call)]
    assert all(c.op in made for c in called if isinstance(c.op, GlobalVar))


def test_the_cost_is_linear() -> None:
    def seconds(length: int) -> float:
        steps = [("exp" if i % 3 else "abs", i, 0) for i in range(length)]
        mod = FuseOpsByPattern(PATTERNS)(program(*steps, ends=(length,)))
        start = time.perf_counter()
        MergeCompositeFunctions()(mod)
        return time.perf_counter() - start

    seconds(20)
    assert seconds(2000) < 30 * max(seconds(200), 0.01)


def test_a_cast_between_two_composites_keeps_them_apart() -> None:
    bb = BlockBuilder()
    x = Var("x", TensorStructInfo((3,)))
    with bb.function("main", [x]):
        with bb.dataflow():
            cast = bb.match_cast(bb.emit(op.exp(x)), TensorStructInfo((3,)))
            result = bb.emit_output(op.tanh(cast))
        bb.emit_func_output(result)
    mod = FuseOpsByPattern(PATTERNS)(bb.get())
    merged = MergeCompositeFunctions()(mod)
    check_well_formed(merged)
    assert sum("Codegen" in f.attrs for f in merged.relax_functions().values()) == 2
