"""What packages of operators show: what their modules define, each at its own name, without lists.

``relax.nn.softmax``, whichever module of ``relax2xla.op.nn`` defines it, is ``op.nn.softmax``. A
function around an operator has the operator's name, and the operator is ``NAME_op``; a function
around several is marked :func:`composed`. Type checkers read the same in ``__init__.pyi``, which
``python -m relax2xla.op --stubs`` writes.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple, TypeVar

from relax2xla.ir.op import Op

F = TypeVar("F", bound=Callable[..., Any])
ROOT: Final = "relax2xla.op"
# Rooms whose operators TVM has without their name, too.
SHORT: Final = ("relax.vision",)
# What TVMScript may call as ``R.NAME`` beside the operators.
COMPOSED: Final[dict[str, Callable[..., Any]]] = {}


def composed(function: F) -> F:
    """Mark a function of a module of operators that builds calls of several."""
    home, _, _ = function.__module__.rpartition(".")
    COMPOSED[f"{home.removeprefix(ROOT)}.{function.__name__}".lstrip(".")] = function
    return function


class Export(NamedTuple):
    """A name that a package shows, and the module that has it."""

    module: str
    name: str
    value: Any


def exports(package: str) -> Iterator[Export]:
    """Operators and functions around them that belong to the package, by module."""
    prefix = package.replace(ROOT, "relax", 1)
    rooms = (prefix, *SHORT) if package == ROOT else (prefix,)
    for info in pkgutil.iter_modules(sys.modules[package].__path__):
        if info.name.startswith("_"):
            continue
        module = f"{package}.{info.name}"
        names = vars(importlib.import_module(module))
        for name, value in names.items():
            if isinstance(value, Op):
                room, _, tail = value.name.rpartition(".")
                if room in rooms and name == tail:
                    yield Export(module, name, value)
                elif room in rooms and name == f"{tail}_op":
                    yield Export(module, tail, names[tail])
                    yield Export(module, name, value)
        for function in COMPOSED.values():
            if function.__module__ == module:
                yield Export(module, function.__name__, function)


def show(package: str) -> None:
    """Import all modules of the package, and put what they export into its namespace."""
    found = {e.name: e.value for e in exports(package)}
    vars(sys.modules[package]).update(found)
    if package == ROOT:
        operators = {n: v for n, v in found.items() if isinstance(v, Op)}
        COMPOSED.update((n, v) for n, v in operators.items() if v.name.startswith(SHORT))
