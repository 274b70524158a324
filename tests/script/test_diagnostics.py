"""A renderer hears of what is wrong with a text, and where."""

from __future__ import annotations

import pytest

from relax2xla.errors import DiagnosticError
from relax2xla.ir.diagnostics import Diagnostic, DiagnosticLevel, override_renderer
from relax2xla.script import from_source


def test_a_renderer_is_told() -> None:
    heard: list[Diagnostic] = []
    override_renderer(lambda context: heard.extend(context.diagnostics))
    try:
        with pytest.raises(DiagnosticError) as raised:
            from_source("@T.prim_func\ndef main(a: T.handle):\n    T.evaluate(missing)\n")
        (one,) = heard
        assert (one.level, one.span.line) == (DiagnosticLevel.ERROR, 3)
        assert one.message in str(raised.value)
        assert "missing" in one.message
    finally:
        override_renderer(None)
    with pytest.raises(DiagnosticError):
        from_source("def main(: pass")
    assert len(heard) == 1
