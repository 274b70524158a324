"""Names of TVMScript that mean something to its parser only."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from relax2xla.script.source import Source


class Marker:
    """A name that the parser knows, such as ``R.output``; it cannot be called from Python."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError(
            f"{self.name} works only in TVMScript: below @I.ir_module or @R.function, or in text "
            "given to from_source"
        )

    def __repr__(self) -> str:
        return self.name


class Statement(Marker):
    """A marker that stands in the body of a class: Python runs it there, and the parser reads it.

    ``@I.ir_module`` comes to see the class only when its body has been run.
    """

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        frame = inspect.currentframe()
        outer = {} if frame is None or frame.f_back is None else frame.f_back.f_locals
        if not {"__module__", "__qualname__"} <= set(outer):
            raise TypeError(f"{self.name} stands in the body of a class below @I.ir_module")


class Decorator:
    """``@R.function`` and ``@R.function(private=True)``.

    What it does is the parser's, which knows these names: :mod:`entry` gives it.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._decorate: Callable[..., Any]

    def given(self, decorate: Callable[..., Any]) -> None:
        """Let ``decorate(thing, **options)`` be what the decorator does."""
        self._decorate = decorate

    def __call__(self, thing: Any = None, /, **options: Any) -> Any:
        if thing is None:
            return lambda later: self._decorate(later, **options)
        return self._decorate(thing, **options)

    def __repr__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True, repr=False)
class Macro:
    """A function under ``@R.macro``. ``outside``: what its definition could name."""

    node: ast.FunctionDef
    source: Source
    signature: inspect.Signature
    outside: Mapping[str, Any]
    hygienic: bool

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError(
            f"the macro {self.node.name!r} can be called in TVMScript only: below @R.function or "
            "@I.ir_module, or in text given to from_source"
        )

    def __repr__(self) -> str:
        return ast.unparse(self.node)


class Namespace:
    """``R``, ``T`` or ``I``: names from a table, the others from ``more``."""

    def __init__(
        self,
        name: str,
        table: Mapping[str, Any],
        more: Callable[[str], Any] | None = None,
        names: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        self._name = name
        self._table = table
        self._more = more
        self._names = names

    def __getattr__(self, name: str) -> Any:
        found = self._table.get(name)
        if found is not None:
            return found
        if self._more is None or name.startswith("__"):
            raise AttributeError(f"{self._name} has no {name!r}")
        return self._more(name)

    def __dir__(self) -> list[str]:
        return sorted({*self._table, *self._names()})

    def __repr__(self) -> str:
        return self._name
