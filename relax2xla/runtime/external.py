"""External modules: functions that a module brings along, found before those of the registry.

The attribute ``external_mods`` of an IRModule is a tuple of them. Anything is one that has
``get_function(name)``, which gives a function, or None (or raises) where it has none of that name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from relax2xla.errors import TVMError

EXTERNAL_MODS: Final = "external_mods"


class PackedFunctions:
    """Python functions by name, as an external module."""

    def __init__(self, functions: Mapping[str, Callable[..., Any]]) -> None:
        for name, function in functions.items():
            if not callable(function):
                raise TypeError(f"{name}: a packed function must be callable; got {function!r}")
        self.functions = dict(functions)

    def get_function(self, name: str) -> Callable[..., Any] | None:
        """The function of that name; None without one."""
        return self.functions.get(name)

    def __repr__(self) -> str:
        return f"PackedFunctions({', '.join(self.functions)})"


def is_external(value: object) -> bool:
    """Whether ``value`` can be an external module."""
    return callable(getattr(value, "get_function", None))


def find_external(modules: Iterable[Any], name: str) -> Callable[..., Any] | None:
    """The function ``name`` of the first of ``modules`` that has one; None without one."""
    for module in modules:
        try:
            found = module.get_function(name)
        except (AttributeError, KeyError, TVMError):
            continue
        if found is not None:
            return found
    return None
