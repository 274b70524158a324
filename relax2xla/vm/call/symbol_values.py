"""What symbols of a function stand for, in messages: sizes, or halves of the bits of a number.

``R.tensor_to_bits`` gives two integers for a number; where attributes put them together again with
``T.reinterpret``, messages say the number.
"""

from __future__ import annotations

from collections.abc import Mapping

from relax2xla import tir
from relax2xla.ir import Call, Function, PrimValue
from relax2xla.ir.base import Attrs
from relax2xla.ir.rewrite import post_order_deep

# A shape holds no negative numbers: importers bind integers of either sign with so much added.
OFFSET = 1 << 40


def halves(func: Function) -> dict[tir.Var, tir.Var]:
    """For the first half of each number in an attribute of ``func`` the second."""
    found: dict[tir.Var, tir.Var] = {}

    def look(value: object) -> None:
        if isinstance(value, tuple):
            for v in value:
                look(v)
        elif isinstance(value, Attrs):
            look(tuple(value.values()))
        elif isinstance(value, tir.Call) and value.op == "tir.reinterpret":
            (bits,) = value.args
            if isinstance(bits, tir.Sub) and isinstance(bits.a, tir.Var):
                if isinstance(bits.b, tir.Var):
                    found[bits.a] = bits.b

    for node in post_order_deep(func):
        if isinstance(node, Call) and node.attrs:
            look(node.attrs)
        elif isinstance(node, PrimValue):
            look(node.value)
    return found


def named(func: Function, env: Mapping[tir.Var, tir.Dim]) -> dict[str, int | float]:
    """The symbols of ``func`` that have numbers in ``env``, by name."""
    known = {v: n for v, n in env.items() if isinstance(n, int)}
    second = {a: b for a, b in halves(func).items() if a in known and b in known}
    left = {v: n for v, n in known.items() if v not in set(second.values())}
    return {
        v.name: tir.float_of_bits(n - known[second[v]]) if v in second else _either(n)
        for v, n in left.items()
    }


def _either(value: int) -> int:
    """A number that may have been moved; no size is as large."""
    return value - OFFSET if value >= OFFSET // 2 else value
