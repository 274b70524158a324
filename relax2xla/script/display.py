"""``show()``: TVMScript text on a terminal, highlighted, or as it is."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from relax2xla.script.printer import script

# How each formatter is called: it reads a text and writes it formatted.
FORMATTERS: Final = {
    "ruff": ("format", "--stdin-filename=tvmscript.py"),
    "black": ("--quiet", "-"),
}
# Names that TVM gives to styles of Pygments.
_THEMES: Final = {None: "ansi_dark", "ansi": "ansi_dark", "light": "xcode", "dark": "monokai"}


def show(
    node: Any,
    style: str | None = None,
    black_format: bool | None = None,
    *,
    color: bool | None = None,
    **options: Any,
) -> None:
    """Print :func:`script` of ``node``, highlighted where standard output is a terminal.

    style: "light", "dark", "ansi" or the name of a Pygments style; unknown ones are an error
    black_format: lay the text out with ruff or black, whichever is installed (with neither a
    warning says so); None asks the environment variable TVM_BLACK_FORMAT, as TVM does
    color: highlight even what is piped, or never
    options: those of :func:`script`
    """
    theme = _theme(style)
    text = script(node, **options)
    if _wants_format() if black_format is None else black_format:
        text = formatted(text)
    if not (sys.stdout.isatty() if color is None else color):
        sys.stdout.write(f"{text}\n")
        return
    from rich.console import Console
    from rich.syntax import Syntax

    console = Console(
        file=sys.stdout,
        force_terminal=True,
        color_system="auto" if color is None else "truecolor",
        # A pipe has no width: lines stay whole.
        width=None if sys.stdout.isatty() else max(map(len, text.split("\n"))),
    )
    shown = Syntax(text, "python", theme=theme, background_color="default")
    console.print(shown, soft_wrap=True)


def _theme(style: Any) -> Any:
    from pygments.style import StyleMeta
    from pygments.styles import get_all_styles

    if isinstance(style, StyleMeta):
        return style
    name = _THEMES.get(style, style)
    known = [*get_all_styles(), "ansi_dark", "ansi_light"]
    if name not in known:
        raise ValueError(
            f"show(): there is no style {style!r}; it is light, dark, ansi, or one of Pygments: "
            f"{', '.join(sorted(known))}"
        )
    return name


def _wants_format() -> bool:
    return os.environ.get("TVM_BLACK_FORMAT", "") not in ("", "0")


def formatted(text: str, find: Callable[[str], str | None] | None = None) -> str:
    """``text`` as ruff or black lay it out; unchanged, with a warning, where neither is found."""
    for name, arguments in FORMATTERS.items():
        program = (find or _program)(name)
        if program is None:
            continue
        done = subprocess.run(
            [program, *arguments], input=text, capture_output=True, encoding="utf-8", check=False
        )
        if done.returncode == 0:
            return done.stdout.rstrip("\n")
        warnings.warn(f"{name} could not format the text: {done.stderr.strip()}", stacklevel=3)
        return text
    warnings.warn(
        "black_format: neither ruff nor black is installed; the text keeps its layout",
        stacklevel=3,
    )
    return text


def _program(name: str) -> str | None:
    """The program beside this Python, else on the path."""
    beside = Path(sys.executable).with_name(name)
    return str(beside) if beside.is_file() else shutil.which(name)
