"""Every pass of the registry on programs of 1,000 to 100,000 bindings: microseconds a binding.

The program is a chain of sums, sines and products in a dataflow block, with what passes look for
in between: copies, constants, fields of tuples, values that are computed twice, and some that
nothing uses. A pass that is linear has the same figure in each column. Times are processor seconds
of this process; the second of two runs counts, so that nothing is imported in it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from relax2xla import op
from relax2xla.builder import BlockBuilder
from relax2xla.ir import Expr, IRModule, TensorStructInfo, Tuple, TupleGetItem, Var, const
from relax2xla.transform import BindParams, BindSymbolicVars, ConvertLayout, Pass
from relax2xla.transform.core.registry import all_passes

SIZES = (1_000, 10_000, 100_000)
GOAL = 20.0  # microseconds a binding
# Above this many at 10,000 bindings a pass is not measured on 100,000.
PATIENCE = 400.0
GIVEN: dict[str, Callable[[], Pass]] = {
    "BindParams": lambda: BindParams("main", {}),
    "BindSymbolicVars": lambda: BindSymbolicVars({}),
    "ConvertLayout": lambda: ConvertLayout({"relax.nn.conv2d": ["NHWC", "OHWI"]}),
}


def program(bindings: int) -> IRModule:
    """``main`` with about that many bindings."""
    bb, x = BlockBuilder(), Var("x", TensorStructInfo((4, 16)))
    steps: tuple[Callable[[Expr], Expr], ...] = (
        lambda y: op.add(y, x),
        op.sin,
        lambda y: op.multiply(y, const(0.5, "float32")),
        lambda y: y,
        op.sin,
        lambda y: Tuple([y, x]),
        lambda y: TupleGetItem(y, 0),
        lambda y: op.add(const(1.0, "float32"), const(2.0, "float32")),
        lambda y: op.multiply(y, x),
    )
    with bb.function("main", [x]):
        with bb.dataflow():
            y: Expr = x
            for i in range(bindings - 1):
                y = bb.emit(steps[i % len(steps)](y))
            y = bb.emit_output(op.add(y, x))
        bb.emit_func_output(y)
    return bb.get()


def seconds(made: Pass, mod: IRModule) -> float:
    """Processor seconds of the pass."""
    start = time.process_time()
    made(mod)
    return time.process_time() - start


def row(name: str, cls: type[Any], programs: dict[int, IRModule]) -> list[float | str]:
    """Microseconds a binding for each size; or why there is none."""
    found: list[float | str] = []
    for size, mod in programs.items():
        if found and (isinstance(found[-1], str) or found[-1] > PATIENCE):
            found.append("")
            continue
        made = GIVEN.get(name, cls)()
        try:
            if size == SIZES[0]:
                seconds(made, mod)
            found.append(1e6 * seconds(made, mod) / size)
        except Exception as e:
            found.append(type(e).__name__)
    return found


def main(quick: bool = False) -> None:
    """Print the table."""
    sizes = SIZES[:2] if quick else SIZES
    programs = {size: program(size) for size in sizes}
    print(
        "| pass | " + " | ".join(f"{s:,} bindings, us each" for s in sizes) + f" | goal {GOAL:g} |"
    )
    print("|---" * (len(sizes) + 2) + "|")
    for name, cls in all_passes().items():
        figures = row(name, cls, programs)
        shown = [f if isinstance(f, str) else f"{f:.1f}" for f in figures]
        last = [f for f in figures if not isinstance(f, str)]
        verdict = "" if not last else "met" if last[-1] <= GOAL else "missed"
        print(f"| `{name}` | {' | '.join(shown)} | {verdict} |", flush=True)
