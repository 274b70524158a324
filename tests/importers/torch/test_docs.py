"""The Python blocks of docs/torch.md run as they stand, in order."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

PAGE = Path(__file__).resolve().parents[3] / "docs" / "torch.md"


@pytest.mark.filterwarnings("ignore")
def test_blocks_run(capsys: pytest.CaptureFixture[str]) -> None:
    from relax2xla.importers.torch.engine.converters import CONVERTERS

    names: dict[str, Any] = {}
    for block in re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.M | re.S):
        exec(block, names)
    CONVERTERS.pop("mylib::scale")
    assert names["report"].ok
    assert "1 of 1 outputs agree" in capsys.readouterr().out
