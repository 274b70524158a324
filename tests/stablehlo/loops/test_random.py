"""Random kernels against the interpreter of the tree.

`python -m tests.stablehlo.loops.test_random 20000` tries more of them: StableHLO's reference
interpreter runs the rows of each, XLA those of one in 64, for it takes ten times as long.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from jaxlib.mlir.dialects import stablehlo

from relax2xla.errors import LegalizeError
from relax2xla.ir import IRModule
from relax2xla.script import from_source
from relax2xla.stablehlo.emitter import emit
from relax2xla.stablehlo.loops import Lowered
from relax2xla.stablehlo.mlir import ir
from relax2xla.tir import PrimFunc
from relax2xla.tir.kernel.interpret import interpret
from tests.stablehlo.loops.programs import program
from tests.stablehlo.loops.test_kernels import lowered, run


def _arguments(seed: int, parameters: list[tuple[tuple[int, ...], str]]) -> list[np.ndarray]:
    """Small integers, so that sums are exact in any order."""
    rng = np.random.default_rng(seed)
    return [rng.integers(-3, 4, s).astype(d) for s, d in parameters]


# ``C[i] = T.min(C[i], x)``
_EXTREMUM = re.compile(r"(\w+\[.*\]) = T\.(?:min|max)\(\1, ")

Judge = Callable[[str, list[Any]], tuple[list[np.ndarray], Lowered]]


def by_interpreter(text: str, args: list[Any]) -> tuple[list[np.ndarray], Lowered]:
    """The written buffers after a kernel, by StableHLO's reference interpreter."""
    main, made = lowered(text, args)
    module = emit(IRModule.from_expr(main))
    with module.context, ir.Location.unknown():
        module.operation.walk(_keep_operand)
        elements: Any = ir.DenseElementsAttr.get
        given = [elements(np.ascontiguousarray(a)) for a in args]
        results: Any = stablehlo.eval_module(module, given)
        shapes = [args[i].shape for i in sorted(made.written)]
        return [np.array(r).reshape(s) for r, s in zip(results, shapes, strict=True)], made


def _keep_operand(op: Any) -> Any:
    """Give a scatter a copy of its operand: the interpreter writes the results into it."""
    if op.name == "stablehlo.scatter":
        with ir.InsertionPoint(op):
            op.operands[0] = stablehlo.maximum(op.operands[0], op.operands[0])
    return ir.WalkResult.ADVANCE


def check(seed: int, judge: Judge = run) -> str:
    """Run the kernel of a seed both ways; raises AssertionError where they differ.

    Gives how many loops stayed, or "refused".
    """
    made = program(seed)
    args = _arguments(seed, made.parameters)
    func = from_source("from relax2xla.script import tir as T\n" + made.text)
    assert isinstance(func, PrimFunc)
    wanted = [a.copy() for a in args]
    interpret(func, *wanted)
    try:
        results, became = judge(made.text, args)
    except LegalizeError as e:
        raise AssertionError(f"seed {seed}: {e}\n{made.text}") from e
    for i, got in zip(sorted(became.written), results, strict=True):
        want = wanted[i]
        if got.dtype.kind == "f":
            # Sums of large numbers are not exact: they depend on the order.
            small = np.nan_to_num(abs(want), nan=np.inf) < 1e5
            if _EXTREMUM.search(made.text):
                # A reduction with min or max gives NaN where there is one (loops/scalars.py); the
                # interpreter, as TVM's code, what comes after it.
                small &= ~np.isnan(got)
            same = np.array_equal(got[small], want[small])
        else:
            same = np.array_equal(got, want)
        assert same, f"seed {seed}, parameter {i}:\n{made.text}\n{got}\n{want}"
    return f"{became.forms.get('while', 0)}"


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 1 << 40))
def test_random_kernels(seed: int) -> None:
    check(seed)


def _many(first: int, count: int) -> Iterator[str]:
    """What there is to say of the kernels of many seeds."""
    loops: dict[str, int] = {}
    wrong = 0
    for seed in range(first, first + count):
        try:
            found = check(seed, run if seed % 64 == 0 else by_interpreter)
            loops[found] = loops.get(found, 0) + 1
        except Exception as e:  # any error is a finding here
            wrong += 1
            yield f"{type(e).__name__} of {seed}: {e}"
        if seed % 500 == 499:
            yield f"{seed + 1 - first} kernels, {wrong} wrong; loops that stayed: {loops}"
    yield f"{count} kernels, {wrong} wrong; loops that stayed: {loops}"


if __name__ == "__main__":
    for line in _many(int(sys.argv[2]) if len(sys.argv) > 2 else 0, int(sys.argv[1])):
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
