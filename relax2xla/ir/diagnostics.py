"""What is wrong with a text, as data, and who is told: the names of ``tvm.ir.diagnostics``."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from relax2xla.errors import DiagnosticError

from .base import Span


class DiagnosticLevel(IntEnum):
    """How grave a diagnostic is."""

    BUG = 10
    ERROR = 20
    WARNING = 30
    NOTE = 40
    HELP = 50


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One thing that is wrong: ``message`` about the place ``span`` of a text."""

    level: DiagnosticLevel
    span: Span
    message: str


@dataclass(frozen=True, slots=True)
class DiagnosticContext:
    """What a renderer is given: the diagnostics of one text."""

    diagnostics: tuple[Diagnostic, ...]


Renderer = Callable[[DiagnosticContext], None]

_RENDERER: Final[ContextVar[Renderer | None]] = ContextVar("diagnostic_renderer", default=None)


def override_renderer(render_func: Renderer | None) -> None:
    """Call ``render_func`` with the diagnostics of each text that cannot be parsed.

    The DiagnosticError is raised all the same. None: nobody is told any more.
    """
    _RENDERER.set(render_func)


def get_renderer() -> Renderer | None:
    """The function that :func:`override_renderer` was given."""
    return _RENDERER.get()


@contextmanager
def reported() -> Generator[None]:
    """Tell the renderer of a DiagnosticError that leaves this block."""
    try:
        yield
    except DiagnosticError as e:
        render = _RENDERER.get()
        if render is not None and isinstance(e.span, Span):
            found = Diagnostic(DiagnosticLevel.ERROR, e.span, e.message)
            render(DiagnosticContext((found,)))
        raise
