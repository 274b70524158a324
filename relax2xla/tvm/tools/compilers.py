"""``tvm.contrib.{cc,tar}``: compilers of this machine, which ``export_library`` takes for nothing.

Calling one is an error, as there is no code for it (``toolchains``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from relax2xla.tvm.tools import toolchains

_NAMES: Final = ("create_shared", "create_executable", "create_staticlib", "tar")
# Made once: ``export_library`` knows them by their identity.
OF_THIS_MACHINE: Final[dict[str, Callable[..., Any]]] = {
    name: getattr(toolchains, name) for name in _NAMES
}


def __getattr__(name: str) -> Any:
    return OF_THIS_MACHINE.get(name) or getattr(toolchains, name)


def __dir__() -> list[str]:
    return dir(toolchains)
