"""Parts of a text that are underlined or have a note beside them.

While a program is written, what ``Marks`` names stands between two characters that no text has;
:meth:`Marks.taken` takes them out of the whole text, and :func:`marked` draws the underlines.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from relax2xla import ir, tir
from relax2xla.ir.object_path import ObjectPath

# Strings of a program have control characters as escapes only.
_BEGIN, _END = "\x01", "\x02"
_STATEMENTS: Final[tuple[type[Any], ...]] = (
    ir.Function,
    tir.PrimFunc,
    ir.Binding,
    tir.Stmt,
    tir.Block,
)
_PARTS: Final[tuple[type[Any], ...]] = (ir.IRModule, *_STATEMENTS, tir.PrimExpr)


class Marks:
    """What of a program is underlined, and which notes its statements have."""

    def __init__(
        self,
        root: Any,
        objects: Iterable[Any] = (),
        paths: Iterable[ObjectPath] = (),
        notes: Mapping[Any, str] | None = None,
        path_notes: Mapping[ObjectPath, str] | None = None,
    ) -> None:
        """``root``: what is written, from which the paths go.

        ValueError for objects, and for ends of paths, that cannot be shown.
        """
        shown = [*objects, *(_at(root, p) for p in paths)]
        noted = [
            *(notes or {}).items(),
            *((_at(root, p), t) for p, t in (path_notes or {}).items()),
        ]
        for part, kinds in (*((x, _PARTS) for x in shown), *((x, _STATEMENTS) for x, _ in noted)):
            if not isinstance(part, kinds):
                names = ", ".join(str(k.__name__) for k in kinds)
                raise ValueError(
                    f"script() cannot mark a {type(part).__name__}; it marks these: {names}"
                )
        # Held, so that their ids stay theirs.
        self._held = shown, noted
        self._under = {id(x) for x in shown}
        self.notes = {id(x): text for x, text in noted}

    def __bool__(self) -> bool:
        return bool(self._under or self.notes)

    def names(self, part: object) -> bool:
        """Whether ``part`` is underlined or has a note."""
        return id(part) in self._under or id(part) in self.notes

    def around(self, part: object, pieces: Sequence[Any]) -> Sequence[Any]:
        """The pieces of an expression, with its mark."""
        return (_BEGIN, *pieces, _END) if id(part) in self._under else pieces

    def lines(self, part: object, lines: list[str], start: int) -> None:
        """Mark the lines from ``start`` on, which are the text of ``part``."""
        if start == len(lines):
            return
        if id(part) in self._under:
            lines[start] = _BEGIN + lines[start]
            lines[-1] += _END
        note = self.notes.get(id(part))
        if note is None:
            return
        if start + 1 == len(lines) and "\n" not in note:
            lines[-1] += f"  # {note}"
        else:
            lines[start:start] = [f"# {line}" for line in note.split("\n")]

    @staticmethod
    def taken(text: str) -> tuple[str, list[tuple[int, int]]]:
        """The text without the marks, and where what they marked begins and ends."""
        out: list[str] = []
        length = 0
        begins: list[int] = []
        spans: list[tuple[int, int]] = []
        for i, part in enumerate(text.replace(_END, _BEGIN + _END).split(_BEGIN)):
            if part.startswith(_END):
                spans.append((begins.pop(), length))
            elif i:
                begins.append(length)
            out.append(part.removeprefix(_END))
            length += len(out[-1])
        return "".join(out), spans


def _at(root: Any, path: ObjectPath) -> Any:
    """What a path leads to, or the last thing before it that can be shown."""
    ways: list[Any] = [root]
    for kind, key in path.steps:
        try:
            ways.append(getattr(ways[-1], key) if kind == "attr" else ways[-1][key])
        except (AttributeError, IndexError, KeyError, TypeError):
            break
    return next((x for x in reversed(ways) if isinstance(x, _PARTS)), root)


def marked(
    text: str,
    spans: Sequence[tuple[int, int]],
    numbers: bool = False,
    context: int | None = None,
) -> str:
    """``text`` with carets under ``spans``, numbers before its lines, and lines left out."""
    lines = text.split("\n")
    under = _carets(lines, spans)
    width = len(str(len(lines))) + 1 if numbers else 0
    kept = _kept(len(lines), [i for i, x in enumerate(under) if x], context)
    out: list[str] = []
    skipped = 0
    for i, line in enumerate(lines):
        if i not in kept:
            skipped += 1
            continue
        if skipped:
            out.append(f"(... {skipped} lines skipped ...)")
            skipped = 0
        out.append(f"{i + 1:>{width - 1}} {line}" if numbers else line)
        if under[i]:
            out.append(" " * width + under[i])
    if skipped:
        out.append(f"(... {skipped} lines skipped ...)")
    return "\n".join(out)


def _carets(lines: Sequence[str], spans: Sequence[tuple[int, int]]) -> list[str]:
    """What stands below each line; white space at its start is not underlined."""
    under: list[str] = []
    start = 0
    for line in lines:
        marks = [" "] * len(line)
        first = len(line) - len(line.lstrip())
        for begin, end in spans:
            for i in range(max(begin - start, first), min(end - start, len(line))):
                marks[i] = "^"
        under.append("".join(marks).rstrip())
        start += len(line) + 1
    return under


def _kept(count: int, centres: Sequence[int], context: int | None) -> set[int]:
    """The lines that are shown; one that would be left out alone is shown, too."""
    if context is None or context < 0 or not centres:
        return set(range(count))
    kept = {i for c in centres for i in range(max(0, c - context), min(count, c + context + 1))}
    kept |= {-1, count}
    return kept | {i for i in range(count) if i - 1 in kept and i + 1 in kept}
