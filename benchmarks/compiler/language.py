"""Long programs in the language itself: built, normalised, printed, parsed, saved, checked.

The program is one dataflow block of additions, sines and products over a symbolic dimension. Every
step is measured alone, in processor seconds of this process (so that other processes on the
machine count little), and should grow as the program does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from relax2xla import op, tir
from relax2xla.analysis import check_well_formed
from relax2xla.builder import BlockBuilder
from relax2xla.ir import (
    Expr,
    IRModule,
    TensorStructInfo,
    Var,
    assert_structural_equal,
    load_json,
    save_json,
)
from relax2xla.script import from_source

SIZES = (1_000, 10_000, 100_000)
# Seconds at 10,000 bindings that the project promises.
TARGETS = {"build": 1.0, "print": 1.5, "parse": 4.0}
STEPS: tuple[Callable[[Expr, Expr], Expr], ...] = (
    lambda x, y: op.add(y, x),
    lambda _, y: op.sin(y),
    op.multiply,
)


def program(bindings: int) -> IRModule:
    """``main`` with that many bindings, built through a BlockBuilder and inferred one by one."""
    bb, x = BlockBuilder(), Var("x", TensorStructInfo((tir.Var("n"), 16)))
    with bb.function("main", [x]):
        with bb.dataflow():
            y: Expr = x
            for i in range(bindings - 1):
                y = bb.emit(STEPS[i % 3](x, y))
            y = bb.emit_output(y)
        bb.emit_func_output(y)
    return bb.get()


def steps(bindings: int) -> Iterator[tuple[str, float]]:
    """Name and seconds of each step."""

    def timed(name: str, step: Callable[[], object]) -> Iterator[tuple[str, float]]:
        start = time.process_time()
        made.append(step())
        yield name, time.process_time() - start

    made: list[object] = []
    yield from timed("build", lambda: program(bindings))
    mod = made[-1]
    assert isinstance(mod, IRModule)
    yield from timed("check", lambda: check_well_formed(mod))
    yield from timed("print", mod.script)
    text = str(made[-1])
    yield from timed("parse", lambda: from_source(text))
    assert_structural_equal(made[-1], mod)
    yield from timed("save_json", lambda: save_json(mod))
    saved = str(made[-1])
    yield from timed("load_json", lambda: load_json(saved))
    again = made[-1]
    yield from timed("compare", lambda: assert_structural_equal(again, mod))


def main(quick: bool = False) -> None:
    """Print the table."""
    sizes = SIZES[:2] if quick else SIZES
    times = {size: dict(steps(size)) for size in sizes}
    print("| step | " + " | ".join(f"{s:,} bindings, s" for s in sizes) + " | goal at 10,000, s |")
    print("|---" * (len(sizes) + 2) + "|")
    for name in times[sizes[0]]:
        row = " | ".join(f"{times[size][name]:.2f}" for size in sizes)
        goal = TARGETS.get(name)
        print(f"| {name} | {row} | {'' if goal is None else goal} |")
