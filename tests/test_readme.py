"""The Python blocks of README.md run as they stand, in order, in an empty folder."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

README = Path(__file__).resolve().parent.parent / "README.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.filterwarnings("ignore")  # torch's exporter warns of what it itself does
def test_blocks_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("torch", "onnx", "onnxscript"):
        pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    assert len(BLOCKS) == 3
    names: dict[str, Any] = {}
    results = []
    for block in BLOCKS:
        exec(compile(block, str(README), "exec"), names)
        assert isinstance(names["y"], jax.Array)
        results.append(names["y"])
        assert "R.function" in names["mod"].script()
        assert "stablehlo." in names["relax2xla"].to_stablehlo(names["mod"])
    want = names["model"](names["torch"].ones(2, 8)).detach().numpy()
    for result in results[:2]:
        np.testing.assert_allclose(np.asarray(result), want, rtol=1e-5)
    np.testing.assert_allclose(
        np.asarray(results[2]), np.asarray(names["f"](names["x"])), rtol=1e-6
    )
