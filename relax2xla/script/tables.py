"""Texts whose metadata stay arrays, for files that keep arrays beside the text."""

from __future__ import annotations

from typing import Any

from relax2xla.script.printer import _Printer  # pyright: ignore[reportPrivateUsage]


def script_tables(node: Any) -> tuple[str, dict[str, list[Any]]]:
    """The text of ``node`` without its metadata section, and the tables that this would hold.

    ``from_source(text, {"metadata": tables})`` gives the node back, with the same arrays.
    """
    printer = _Printer(show_sources=True)
    text = printer.text(node)
    return text, printer.tables
