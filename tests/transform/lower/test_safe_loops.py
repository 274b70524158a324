"""Loops whose counters are added to themselves: XLA must not end the process."""

from __future__ import annotations

import pytest

from relax2xla.frontend.stablehlo import from_stablehlo
from relax2xla.ir import Call, Function
from relax2xla.ir.rewrite import post_order_deep
from relax2xla.transform.core import run_on_function
from relax2xla.transform.lower.safe_loops import ShieldCounters
from tests.processes import run_python

LOOP = """
func.func public @main(%v: tensor<i32>) -> (tensor<i32>, tensor<i32>) {
  %one = stablehlo.constant dense<1> : tensor<i32>
  %l:3 = stablehlo.while(%x = %one, %y = %one, %z = %v)
      : tensor<i32>, tensor<i32>, tensor<i32>
  cond {
    %end = stablehlo.constant dense<9> : tensor<i32>
    %c = stablehlo.compare LT, %x, %end : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %two = stablehlo.constant dense<2> : tensor<i32>
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %w = stablehlo.add %z, %two : tensor<i32>
    ROUND
    stablehlo.return %r, %y, %w : tensor<i32>, tensor<i32>, tensor<i32>
  }
  return %l#0, %l#2 : tensor<i32>, tensor<i32>
}
func.func private @twice(%x: tensor<i32>) -> tensor<i32> {
  %r = stablehlo.add %x, %x : tensor<i32>
  return %r : tensor<i32>
}
"""
# What a round makes of the counter, the counter behind the loop that starts at 1 and ends at 9, and
# what has been added to %v by then.
ADDED = {
    "itself": ("%r = stablehlo.add %x, %x : tensor<i32>", 16, 8),
    "behind a barrier": (
        """%b = stablehlo.optimization_barrier %x : tensor<i32>
        %r = stablehlo.add %b, %x : tensor<i32>""",
        16,
        8,
    ),
    "in a function": ("%r = func.call @twice(%x) : (tensor<i32>) -> tensor<i32>", 16, 8),
    "times one": (
        """%b = stablehlo.multiply %x, %one : tensor<i32>
        %r = stablehlo.add %x, %b : tensor<i32>""",
        16,
        8,
    ),
    "with zero": (
        """%o = stablehlo.multiply %z, %zero : tensor<i32>
        %b = stablehlo.add %x, %o : tensor<i32>
        %r = stablehlo.add %b, %x : tensor<i32>""",
        16,
        8,
    ),
    "inside another loop": (
        """%n = stablehlo.while(%i = %one) : tensor<i32>
        cond {
          %c = stablehlo.compare LT, %i, %two : (tensor<i32>, tensor<i32>) -> tensor<i1>
          stablehlo.return %c : tensor<i1>
        } do {
          %j = stablehlo.add %i, %i : tensor<i32>
          stablehlo.return %j : tensor<i32>
        }
        %r = stablehlo.add %x, %n : tensor<i32>""",
        9,
        8,
    ),
}


def test_no_counter_ends_the_process() -> None:
    lines = run_python(
        f"""
        import numpy as np
        import relax2xla as rx
        from relax2xla.frontend.stablehlo import from_stablehlo

        for given in {[LOOP.replace("ROUND", text) for text, _, _ in ADDED.values()]!r}:
            mod = from_stablehlo(given)
            counter, other = rx.VirtualMachine(rx.build(mod))["main"](np.int32(100))
            print(int(counter), int(other) - 100)
        """
    ).splitlines()
    assert lines[: len(ADDED)] == [f"{counter} {other}" for _, counter, other in ADDED.values()]


def hidden(text: str) -> int:
    """How many values of a loop the pass hides."""
    func = run_on_function(
        [ShieldCounters()],
        from_stablehlo(LOOP.replace("ROUND", text), raise_ops=False)["main"],
        "main",
    )
    assert isinstance(func, Function)
    calls = [e for e in post_order_deep(func) if isinstance(e, Call)]
    return sum(str(c.op).endswith("stablehlo.xor") for c in calls) // 2


@pytest.mark.parametrize("name", ADDED)
def test_what_is_hidden(name: str) -> None:
    assert hidden(ADDED[name][0]) == 1


@pytest.mark.parametrize(
    "text",
    [
        "%r = stablehlo.add %x, %two : tensor<i32>",
        "%r = stablehlo.add %one, %x : tensor<i32>",
        "%r = stablehlo.subtract %x, %y : tensor<i32>",
        """%s = stablehlo.add %two, %y : tensor<i32>
        %r = stablehlo.add %s, %x : tensor<i32>""",
        "%r = stablehlo.add %two, %y : tensor<i32>",
    ],
)
def test_loops_that_xla_counts_stay_as_they_are(text: str) -> None:
    assert hidden(text) == 0
