"""show(): plain where output is piped, highlighted on a terminal, formatted on request."""

from __future__ import annotations

import re
import sys
import warnings

import pytest

from relax2xla import ir
from relax2xla.script import display, from_source, show

TEXT = (
    "@R.function\ndef main(x: R.Tensor((2, 3, 4, 5), 'float32'), y: R.Tensor((2, 3, 4, 5), "
    "'float32')):\n    gv = R.add(R.exp(x), R.multiply(x, y))\n    return gv\n"
)


@pytest.fixture
def func() -> ir.Function:
    made = from_source(TEXT)
    assert isinstance(made, ir.Function)
    return made


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def test_piped_text_is_plain(func: ir.Function, capsys: pytest.CaptureFixture[str]) -> None:
    show(func)
    assert capsys.readouterr().out == func.script() + "\n"
    ir.IRModule({"main": func}).show("light", False, name="Net")
    assert "class Net:" in capsys.readouterr().out


def test_colour(func: ir.Function, capsys: pytest.CaptureFixture[str]) -> None:
    shown: list[str] = []
    for style in (None, "light", "dark", "ansi", "friendly"):
        func.show(style, color=True)
        shown.append(capsys.readouterr().out)
        assert "\x1b[" in shown[-1]
        lines = [x.rstrip() for x in plain(shown[-1]).rstrip("\n").split("\n")]
        assert lines == func.script().split("\n")
    assert len(set(shown)) >= 3


def test_terminal(
    func: ir.Function, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm-256color")
    func.show()
    assert "\x1b[" in capsys.readouterr().out
    func.show(color=False)
    assert capsys.readouterr().out == func.script() + "\n"


def test_format(
    func: ir.Function, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if display._program("ruff") is None and display._program("black") is None:
        pytest.skip("neither ruff nor black is installed")
    func.show(black_format=True)
    text = capsys.readouterr().out
    assert text != func.script() + "\n"
    assert max(map(len, text.split("\n"))) <= 100
    ir.assert_structural_equal(from_source(text), func)
    monkeypatch.setenv("TVM_BLACK_FORMAT", "1")
    func.show()
    assert capsys.readouterr().out == text
    func.show(black_format=False)
    assert capsys.readouterr().out == func.script() + "\n"


def test_no_formatter(func: ir.Function) -> None:
    with pytest.warns(UserWarning, match="neither ruff nor black is installed"):
        assert display.formatted("a  = 1", lambda name: None) == "a  = 1"
    with pytest.warns(UserWarning, match="could not format the text"):
        assert display.formatted("a  = 1", lambda name: "/bin/false") == "a  = 1"


def test_misuse(func: ir.Function) -> None:
    with warnings.catch_warnings(), pytest.raises(ValueError, match=r"no style 'pink'; it is ligh"):
        func.show("pink")
    with pytest.raises(TypeError, match="no option 'colour'"):
        func.show(colour=True)
