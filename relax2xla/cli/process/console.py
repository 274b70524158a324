"""What commands print: results on standard output, progress and errors on standard error.

Colours, spinners and boxes appear on terminals only; piped output is plain aligned text.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import re
import sys
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from relax2xla.budget import size_text as size
from relax2xla.budget import weights_text

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

__all__ = [
    "called", "coloured", "good", "keep_for_json", "loading", "note", "out", "plain_table",
    "print_json", "progress", "quiet", "said", "size", "standard_output", "status", "table",
    "weights_text",
]  # fmt: skip

_NUMBER = re.compile(r"-?[\d.,]+(e[-+]?\d+)?|-?inf|nan|")


# What the user calls a file that was made for a command, by its path.
_called: dict[str, str] = {}


def called(path: str, name: str) -> None:
    """From now on texts say ``name`` where they would say ``path``, which no user knows."""
    _called[path] = name


def said(text: str) -> str:
    """``text`` as the user is to read it."""
    for path, name in _called.items():
        text = text.replace(path, name)
    return text


def out(text: str = "") -> None:
    """One line, or several, on standard output."""
    sys.stdout.write(f"{said(text)}\n")


# Standard output, where JSON alone may be written to it.
_kept: list[TextIO] = []


def keep_for_json() -> None:
    """From now on only :func:`print_json` writes to standard output.

    What a plug-in, a package or the user's module prints goes to standard error instead.
    """
    if not _kept:
        _kept.append(sys.stdout)
        sys.stdout = sys.stderr


@contextlib.contextmanager
def standard_output() -> Generator[None]:
    """In the block both streams take any text; afterwards they are what they were, whoever kept it.

    What its encoding lacks, such as names of files that are no UTF-8, is written as ``\\xff``.
    """
    texts = [s for s in (sys.stdout, sys.stderr) if isinstance(s, io.TextIOWrapper)]
    errors = [s.errors for s in texts]
    for stream in texts:
        stream.reconfigure(errors="backslashreplace")
    try:
        yield
    finally:
        if _kept:
            sys.stdout = _kept.pop()
        for stream, before in zip(texts, errors, strict=True):
            if not stream.closed:
                stream.reconfigure(errors=before)


def print_json(data: Any) -> None:
    """``data`` as JSON on standard output; numbers that JSON has not ("inf", "nan") are text."""
    text = json.dumps(_plain(data), indent=2, allow_nan=False)
    (_kept[0] if _kept else sys.stdout).write(f"{text}\n")


def _plain(data: Any) -> Any:
    match data:
        case str():
            return said(data)
        case float():
            return data if math.isfinite(data) else str(data)
        case Mapping():
            return {k: _plain(v) for k, v in data.items()}
        case list() | tuple():
            return [_plain(v) for v in data]
        case _:
            return data


_quiet: list[bool] = [False]


def quiet(asked: bool) -> None:
    """Whether remarks and progress are left out."""
    _quiet[0] = asked


def note(text: str) -> None:
    """One line on standard error, unless the user wants none."""
    if not _quiet[0]:
        sys.stderr.write(f"{said(text)}\n")


def good(text: str, is_good: bool) -> str:
    """``text`` in green, or in red, where standard output is a terminal."""
    if not coloured(sys.stdout):
        return text
    return f"\x1b[{32 if is_good else 31}m{text}\x1b[0m"


def coloured(stream: object) -> bool:
    """Whether ``stream`` is a terminal that takes colours."""
    isatty = getattr(stream, "isatty", None)
    return bool(isatty and isatty()) and "NO_COLOR" not in os.environ


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], title: str = "") -> None:
    """A table; columns after the first that hold numbers are aligned to the right."""
    title, rows = said(title), [[said(cell) for cell in row] for row in rows]
    numeric = [i > 0 and all(_NUMBER.fullmatch(r[i]) for r in rows) for i in range(len(columns))]
    if coloured(sys.stdout):
        from rich import box
        from rich.console import Console
        from rich.table import Table

        made = Table(title=title or None, box=box.SIMPLE_HEAD, title_justify="left")
        for name, right in zip(columns, numeric, strict=True):
            made.add_column(name, justify="right" if right else "left", overflow="fold")
        for row in rows:
            made.add_row(*(cell.replace("[", r"\[") for cell in row))
        Console().print(made)
        return
    if title:
        out(title)
    out(plain_table(columns, rows, numeric))


def plain_table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[bool]
) -> str:
    """Aligned columns, two spaces apart."""
    lines = [columns, *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]
    return "\n".join(
        "  ".join(
            cell.rjust(w) if r else cell.ljust(w)
            for cell, w, r in zip(line, widths, right, strict=True)
        ).rstrip()
        for line in lines
    )


@contextlib.contextmanager
def status(message: str) -> Generator[None]:
    """A spinner beside ``message`` while the block runs; silent where no one watches."""
    if not coloured(sys.stderr):
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(message):
        yield


@contextlib.contextmanager
def progress(title: str, total: int) -> Generator[Callable[[str], None]]:
    """A bar on a terminal; call what it gives with the name of each of ``total`` steps begun."""
    if not coloured(sys.stderr):
        yield lambda name: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=total)
        begun = 0

        def step(name: str) -> None:
            nonlocal begun
            shown = name if len(name) <= 50 else f"...{name[-47:]}"
            bar.update(task, completed=begun, description=shown.replace("[", r"\["))
            begun += 1

        yield step


# Seconds before a bar is shown: most files are read faster.
_PATIENCE = 1.0


@contextlib.contextmanager
def loading(title: str) -> Generator[None]:
    """On a terminal a bar for what the library reports (``runtime.progress``), if it takes long."""
    if not coloured(sys.stderr):
        yield
        return
    from relax2xla.runtime.progress import watch

    start = time.monotonic()
    with contextlib.ExitStack() as stack:
        bars: list[tuple[Progress, dict[str, TaskID]]] = []

        def step(what: str, done: int, total: int, unit: str) -> None:
            if unit != "bytes":
                return
            if not bars:
                if time.monotonic() - start < _PATIENCE:
                    return
                bars.append((stack.enter_context(_bytes_bar()), {}))
            bar, tasks = bars[0]
            if what not in tasks:
                tasks[what] = bar.add_task(f"{title}: {what}".replace("[", r"\["), total=total)
            bar.update(tasks[what], completed=done, total=total)

        with watch(step):
            yield


def _bytes_bar() -> Progress:
    from rich import progress as bars
    from rich.console import Console

    columns = (bars.TextColumn("{task.description}"), bars.BarColumn(), bars.DownloadColumn())
    return bars.Progress(*columns, console=Console(stderr=True), transient=True)
