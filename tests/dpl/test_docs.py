"""The programs of docs/patterns.md run, and do what the page says."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import numpy as np

from relax2xla.testing import evaluate

DOC = Path(__file__).resolve().parents[2] / "docs" / "patterns.md"


def test_the_page_is_true(tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", DOC.read_text("utf-8"), re.M | re.S)
    assert len(blocks) == 5
    program = tmp_path / "page.py"
    program.write_text("\n".join(blocks))
    names = runpy.run_path(str(program))
    x = np.float32([1, 2, 3, 4])
    text = names["after"].script()
    assert text.count("R.multiply") == 1
    np.testing.assert_array_equal(evaluate(names["after"], [x]), 6 * x)
    powers = names["powers"]
    assert powers.script().count("R.power") == 2
    np.testing.assert_allclose(evaluate(powers, [x]), x**4, rtol=1e-6)
    rng = np.random.default_rng(0)
    a, u, v = (rng.standard_normal(s).astype("f") for s in ((2, 8), (8, 4), (8, 4)))
    assert names["joined"].script().count("R.matmul") == 1
    left, right = evaluate(names["joined"], [a, u, v])
    np.testing.assert_allclose(left, a @ u, rtol=1e-5)
    np.testing.assert_allclose(right, a @ v, rtol=1e-5)
    assert names["fused"] is names["joined"]
    assert names["modified"] == 0
    offloaded = names["offloaded"]
    assert "call_pure_packed" in offloaded.script()
    np.testing.assert_allclose(evaluate(offloaded, [a, u]), np.maximum(a @ u, 0), rtol=1e-5)
