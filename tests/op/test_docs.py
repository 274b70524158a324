"""Each operator's docstring says of what shape and dtype its operands are, and its result."""

from __future__ import annotations

import inspect
import re

import pytest

from relax2xla.ir import Op
from relax2xla.op.__main__ import operators

OPERATORS = {made.name: made for made in operators()}


@pytest.mark.parametrize("name", OPERATORS)
def test_operands_and_result_are_described(name: str) -> None:
    made: Op[...] = OPERATORS[name]
    doc = inspect.cleandoc(made.__doc__ or "")
    summary, _, rest = doc.partition("\n")
    assert summary.endswith((".", ":")), "a sentence first"
    assert re.search(r"^result:\s+\S", rest, re.MULTILINE), "a line `result: shape, dtype`"
    for p in made.params:
        # In a line `x: (*s), dtype`, which may be that of several: `x1, x2: ...`.
        described = re.search(rf"(?<![\w.]){p.name}\b[^\n]*:", rest)
        assert not p.kind.operand or described or f"``{p.name}``" in doc, f"a line `{p.name}: ...`"
