"""What notebooks show of programs: collapsed, highlighted, without scripts or links."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

# Longer texts are cut: a page that holds a whole model's listing does not scroll.
_LONGEST = 200_000
# Programs up to so many lines are shown open.
_OPEN = 40


def program(title: str, text: str, language: str = "python") -> str:
    """A text under its title, which opens and closes it; short ones are open."""
    cut = text if len(text) <= _LONGEST else text[:_LONGEST]
    more = "" if cut is text else f"\n... {len(text) - len(cut):,} characters more"
    return _section(title, _highlighted(cut + more, language), text.count("\n") < _OPEN)


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table under its title."""
    head = "".join(f"<th>{escape(c)}</th>" for c in columns)
    cells = ("".join(f"<td>{escape(str(v))}</td>" for v in row) for row in rows)
    body = "".join(f"<tr>{line}</tr>" for line in cells)
    return _section(title, f"<table><tr>{head}</tr>{body}</table>", len(rows) < _OPEN)


def joined(title: str, parts: Sequence[str]) -> str:
    """Several sections under one title."""
    return f"<div><code><b>{escape(title)}</b></code>{''.join(parts)}</div>"


def _section(title: str, body: str, is_open: bool) -> str:
    state = " open" if is_open else ""
    return f"<details{state}><summary><code>{escape(title)}</code></summary>{body}</details>"


def _highlighted(text: str, language: str) -> str:
    """``text`` with colours where Pygments is installed; its styles stand in the elements."""
    try:
        from pygments import highlight
        from pygments.formatters import HtmlFormatter
        from pygments.lexers import get_lexer_by_name
    except ModuleNotFoundError:
        return f"<pre>{escape(text)}</pre>"
    shown = HtmlFormatter(noclasses=True, nobackground=True, style="default")
    return str(highlight(text, get_lexer_by_name(language), shown))
