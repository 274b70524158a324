"""The example of this importer runs as it stands."""

from __future__ import annotations

import re

import pytest

pytest.importorskip("torch")


def test_from_pytorch(capsys: pytest.CaptureFixture[str]) -> None:
    from examples import from_pytorch

    from_pytorch.main()
    shown = capsys.readouterr().out
    assert "batch  32" in shown
    off = re.search(r"weights as arguments: (\S+)", shown)
    # Constant weights may be packed for a kernel of ours, arguments go to XLA: rounding apart.
    assert off, shown
    assert float(off[1]) < 1e-5
