"""The example of this importer runs as it stands."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")


def test_from_pytorch(capsys: pytest.CaptureFixture[str]) -> None:
    from examples import from_pytorch

    from_pytorch.main()
    shown = capsys.readouterr().out
    assert "batch  32" in shown
    assert "weights as arguments: 0.0e+00" in shown
