"""The Python blocks of docs/nn.md run as they stand, in order."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

DOC = Path(__file__).resolve().parents[3] / "docs" / "nn.md"


def test_blocks_of_the_tutorial_run() -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", DOC.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 8
    names: dict[str, Any] = {}
    for block in blocks:
        exec(compile(block, str(DOC), "exec"), names)
    assert names["y"].shape == (2, 3)
    assert [n for n, _ in names["params"]][:2] == ["up.weight", "up.bias"]
