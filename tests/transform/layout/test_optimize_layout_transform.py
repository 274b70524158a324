"""OptimizeLayoutTransform: layouts that are undone, and those that only look like it."""

from __future__ import annotations

import numpy as np
import pytest

from relax2xla.transform import FastMathTransform, OptimizeLayoutTransform, RewriteDataflowReshape
from tests.transform.programs import module, operators, same_values, tensor

BLOCKED = "lambda i: (i // 4, i % 4)"
PAIRS = {
    "undone": (BLOCKED, "lambda a, b: (a * 4 + b,)", True),
    "in another order": (BLOCKED, "lambda a, b: (a + b * 4,)", False),
    "transposed": ("lambda i: (i % 4, i // 4)", "lambda a, b: (b * 4 + a,)", True),
}


@pytest.mark.parametrize("name", PAIRS)
def test_pairs(name: str) -> None:
    there, back, undone = PAIRS[name]
    mod = module(
        [tensor("x", 16)],
        "e = R.exp(x)",
        f"a = R.layout_transform(e, index_map={there})",
        f"b = R.layout_transform(a, index_map={back})",
        "c = R.sin(b)",
        f"out = R.layout_transform(c, index_map={there})",
    )
    step = OptimizeLayoutTransform()
    if not undone:
        assert step(mod) is mod
        return
    new = same_values(mod, step, np.arange(16, dtype="float32") / 16)
    assert operators(new) == ["exp", "sin", "layout_transform"]


def test_padding_stays() -> None:
    mod = module(
        [tensor("x", 14)],
        f"a = R.layout_transform(x, index_map={BLOCKED})",
        "out = R.layout_transform(a, index_map=lambda a, b: (a * 4 + b,))",
    )
    # The result has 16 elements.
    assert OptimizeLayoutTransform()(mod) is mod


def test_nothing_to_do() -> None:
    mod = module([tensor("x", 4)], "out = R.exp(x)")
    for step in (FastMathTransform(), RewriteDataflowReshape()):
        assert step(mod) is mod
