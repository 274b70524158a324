"""Source text of a program being parsed, and errors that point into it."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import difflib
import io
import tokenize
import unicodedata
from collections.abc import Generator, Iterable
from typing import NoReturn

from relax2xla import syntax
from relax2xla.errors import DiagnosticError
from relax2xla.ir import Span

_TOO_DEEP = "expressions are nested too deeply for Python's stack"
# What stands between a statement and the source's name of it.
SOURCE_MARK = "  #: "

Node = ast.expr | ast.stmt | ast.arg | ast.keyword | ast.alias


class Source:
    """Lines of one file. ``nodes`` that are given to methods come from its own syntax tree."""

    def __init__(self, text: str, filename: str) -> None:
        self.file = filename
        # Not splitlines(): Python's tokenizer knows no other line ends than these.
        self.lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        self.text = "\n".join(self.lines)

    def parse(self) -> ast.Module:
        """The syntax tree of the whole text."""
        try:
            return syntax.parse(self.text, self.file)
        except SyntaxError as e:
            line, column = e.lineno or 1, max(1, e.offset or 1)
            width = 1
            if e.end_lineno == e.lineno and e.end_offset and e.end_offset > column:
                width = e.end_offset - column
            self._raise(f"not valid Python: {e.msg}", line, column, width)
        except (RecursionError, MemoryError):
            line = self._deepest_line()
            column = len(self.lines[line - 1]) - len(self.lines[line - 1].lstrip()) + 1
            self._raise(_TOO_DEEP, line, column, len(self.lines[line - 1]) - column + 1)
        except ValueError as e:
            self._raise(f"not valid Python: {e}", 1, 1, 1)

    def _deepest_line(self) -> int:
        """Where the logical line of most operators begins: the deepest one, most probably."""
        first, count, found, most = 1, 0, 1, -1
        with contextlib.suppress(tokenize.TokenError, SyntaxError):
            for token in tokenize.generate_tokens(io.StringIO(self.text).readline):
                if not count:
                    first = token.start[0]
                count += token.type == tokenize.OP
                if token.type == tokenize.NEWLINE:
                    if count > most:
                        found, most = first, count
                    count = 0
        return found

    @contextlib.contextmanager
    def shallow(self, tree: ast.AST) -> Generator[None]:
        """Around a walk of ``tree``: a DiagnosticError at its deepest place, not RecursionError."""
        try:
            yield
        except RecursionError:
            self.fail(_deepest(tree), _TOO_DEEP)

    def column(self, line: int, offset: int) -> int:
        """1-based column in characters of a byte offset, as ``ast`` counts."""
        text = self.lines[line - 1] if line <= len(self.lines) else ""
        if text.isascii():
            return offset + 1
        return len(text.encode()[:offset].decode(errors="replace")) + 1

    def span(self, node: Node) -> Span:
        """The place of ``node``."""
        end_line = node.end_lineno or node.lineno
        return Span(
            "",
            self.file,
            node.lineno,
            self.column(node.lineno, node.col_offset),
            end_line,
            self.column(end_line, node.end_col_offset or node.col_offset),
            "file",
        )

    def statement_span(self, node: ast.stmt) -> Span:
        """The place of a statement, and the name in a comment ``#: encoder.0`` behind it.

        In ``#: node_linear  #: encoder.0`` the second is the module that it is in.
        """
        span = self.span(node)
        rest = self.lines[span.end_line - 1][span.end_column - 1 :] if node.end_lineno else ""
        before, mark, text = rest.strip().partition(SOURCE_MARK.strip())
        name, _, module = (part.strip() for part in text.partition(SOURCE_MARK))
        if before or not mark or not name:
            return span
        within = (Span(module),) if module else ()
        return dataclasses.replace(span, name=name, kind="name", children=within)

    def fail(self, node: Node, message: str, cause: BaseException | None = None) -> NoReturn:
        """Raise a DiagnosticError that shows ``node``'s line with carets under it."""
        column = self.column(node.lineno, node.col_offset)
        if node.end_lineno == node.lineno and node.end_col_offset is not None:
            end = self.column(node.lineno, node.end_col_offset)
        else:
            end = len(self.lines[node.lineno - 1].rstrip()) + 1
        self._raise(message, node.lineno, column, max(1, end - column), cause)

    def _raise(
        self, message: str, line: int, column: int, width: int, cause: BaseException | None = None
    ) -> NoReturn:
        text = self.lines[line - 1] if 0 < line <= len(self.lines) else ""
        margin = " " * len(str(line))
        before = "".join(map(_blank, text[: column - 1]))
        marked = text[column - 1 : column - 1 + width]
        carets = "^" * max(1, sum(len(_blank(c)) for c in marked))
        error = DiagnosticError(
            f"{self.file}:{line}:{column}: {message}\n"
            f" {margin} |\n"
            f" {line} | {text}\n"
            f" {margin} | {before}{carets}",
            Span("", self.file, line, column, line, column + width, "file"),
            message,
        )
        raise error from cause


def _blank(char: str) -> str:
    """White space as wide as ``char`` on a terminal."""
    if char == "\t":
        return char
    if unicodedata.combining(char):
        return ""
    return "  " if unicodedata.east_asian_width(char) in "WF" else " "


def suggestion(name: str, known: Iterable[str]) -> str:
    """``; did you mean ...?`` if a known name is close to ``name``."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def message_of(error: BaseException) -> str:
    """The message of an error with its notes."""
    text = error.args[0] if isinstance(error, KeyError) and error.args else error
    notes: list[str] = getattr(error, "__notes__", [])
    return "\n".join([str(text) or type(error).__name__, *notes])


def _deepest(tree: ast.AST) -> Node:
    """The expression or statement with the most others around it; Python's stack is not needed."""
    found, most = ast.Pass(lineno=1, col_offset=0, end_lineno=1, end_col_offset=0), -1
    waiting = [(tree, 0)]
    while waiting:
        node, depth = waiting.pop()
        if isinstance(node, ast.stmt | ast.expr) and depth > most:
            found, most = node, depth
        waiting.extend((child, depth + 1) for child in ast.iter_child_nodes(node))
    return found
