"""What notebooks show of programs: collapsed, highlighted, without scripts or links."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from html import escape
from typing import Any

# Longer texts are cut: a page that holds a whole model's listing does not scroll.
_LONGEST = 200_000
# Programs up to so many lines are shown open, and tables up to so many rows.
_OPEN, _OPEN_ROWS = 40, 12
# Not every notebook shows a `pre` in a font for code, and most break its lines within words.
_PRE = "font-family: ui-monospace, monospace; white-space: pre; overflow-x: auto"
# By Pygments' kinds of tokens. Notebooks are light or dark, and styles in elements cannot ask
# which: each colour has a contrast of 4.3 to white, and to JupyterLab's dark ground (#111) too.
_COLOURS = {
    "Keyword": "#b346d8",
    "Name.Function": "#2078dd",
    "Name.Class": "#2078dd",
    "Name.Decorator": "#cf3d9e",
    "Name.Builtin": "#078a69",
    "Literal.String": "#bf5f0a",
    "Literal.Number": "#d24949",
    "Comment": "italic #797979",
}


def program(title: str, text: str, language: str = "python") -> str:
    """A text under its title, which opens and closes it; short ones are open."""
    cut = text if len(text) <= _LONGEST else text[:_LONGEST]
    more = "" if cut is text else f"\n... {len(text) - len(cut):,} characters more"
    return _section(title, _highlighted(cut + more, language), text.count("\n") < _OPEN)


def signature(name: str, func: Any) -> str:
    """``main(x: Tensor((2,), dtype="float32")) -> Tensor(...)`` of a Relax function."""
    given = ", ".join(f"{p.name_hint}: {p.struct_info_}" for p in func.params)
    return f"{name}({given}) -> {func.ret_struct_info}"


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table under its title."""
    head = "".join(f"<th>{escape(c)}</th>" for c in columns)
    cells = ("".join(f"<td>{escape(str(v))}</td>" for v in row) for row in rows)
    body = "".join(f"<tr>{line}</tr>" for line in cells)
    return _section(title, f"<table><tr>{head}</tr>{body}</table>", len(rows) <= _OPEN_ROWS)


def note(text: str) -> str:
    """A line of text."""
    return f"<div>{escape(text)}</div>"


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
        return f'<pre style="{_PRE}">{escape(text)}</pre>'
    shown = HtmlFormatter(noclasses=True, nobackground=True, style=_style(), prestyles=_PRE)
    return str(highlight(text, get_lexer_by_name(language), shown))


@functools.cache
def _style() -> Any:
    """Pygments' style of ``_COLOURS``."""
    from pygments.style import Style
    from pygments.token import string_to_tokentype

    styles = {string_to_tokentype(kind): colour for kind, colour in _COLOURS.items()}
    return type("Notebook", (Style,), {"styles": styles})
