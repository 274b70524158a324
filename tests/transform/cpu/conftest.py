"""Fixtures of passes whose choice is that of a processor."""

from __future__ import annotations

import pytest

from relax2xla import processor


@pytest.fixture
def avx2(monkeypatch: pytest.MonkeyPatch) -> None:
    """A processor that was measured; the functions run on any."""
    monkeypatch.setattr(processor, "kind", lambda: "avx2")
