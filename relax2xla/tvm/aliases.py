"""``import tvm`` served by relax2xla: a finder of modules that have no file."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.util
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Final

from relax2xla.script import printer
from relax2xla.tvm.names import HELD, MODULES, NEWER, REGISTERING


class Alias(ModuleType):
    """A module of ``tvm``: its names are those of the modules that serve it."""

    _serving: tuple[str, ...]

    def __init__(self, name: str, serving: Sequence[str]) -> None:
        super().__init__(name)
        self.__dict__["_serving"] = tuple(serving)
        self.__dict__["__path__"] = []

    @property
    def __all__(self) -> list[str]:
        return dir(self)

    def __dir__(self) -> list[str]:
        found: set[str] = set()
        for served in self._serving:
            module = _module(served)
            found.update(n for n in dir(module) if not n.startswith("_"))
        return sorted(found)

    def __getattr__(self, name: str) -> Any:
        # Programs ask the package for both; another module's file is that of what serves it.
        asked = self.__name__ == "tvm" and name in ("__file__", "__version__")
        if name.startswith("__") and not asked:
            raise AttributeError(name)
        wanted = NEWER.get(name, name)
        full = f"{self.__name__}.{wanted}"
        if full in MODULES or _is_parent(full):
            return importlib.import_module(full)
        for served in self._serving:
            module = _module(served)
            try:
                found = getattr(module, wanted)
            except AttributeError:
                continue
            if isinstance(found, ModuleType) and found.__name__.startswith("relax2xla"):
                MODULES[full] = (found.__name__,)
                return importlib.import_module(full)
            return found
        raise AttributeError(
            f"{self.__name__}.{name} is not part of relax2xla; docs/parity.md lists what is"
        )


def _module(name: str) -> ModuleType | None:
    """A module of relax2xla, or None where there is none of that name."""
    return importlib.import_module(name) if exists(name) else None


def _public(module: ModuleType) -> dict[str, Any]:
    return {name: value for name, value in vars(module).items() if not name.startswith("_")}


def exists(name: str) -> bool:
    """Whether there is a module of this name."""
    try:
        return name in sys.modules or importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # of the package that it would be in
        return False


def _is_parent(name: str) -> bool:
    return any(known.startswith(f"{name}.") for known in MODULES)


# Packages of TVM; 0.25 has its containers in the second.
_ROOTS: Final = ("tvm", "tvm_ffi")


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds ``tvm`` and what is below it, and ``tvm_ffi``."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        first, _, rest = fullname.partition(".")
        if first not in _ROOTS:
            return None
        known = ".".join([first, *(NEWER.get(part, part) for part in rest.split("."))]).rstrip(".")
        if known in MODULES or _is_parent(known) or _below(known):
            return ModuleSpec(fullname, self, is_package=True)
        raise ModuleNotFoundError(
            f"{fullname} is not part of relax2xla, which serves `import tvm` here; docs/tvm.md "
            "says what is",
            name=fullname,
        )

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        known = ".".join(NEWER.get(part, part) for part in spec.name.split("."))
        return Alias(spec.name, MODULES.get(known, ()))

    def exec_module(self, module: ModuleType) -> None:
        """Names are looked up when they are asked for, save as HELD and REGISTERING say."""
        if module.__name__ in HELD:
            for served in MODULES[module.__name__]:
                module.__dict__.update(_public(importlib.import_module(served)))
        if module.__name__ in REGISTERING:
            importlib.import_module(REGISTERING[module.__name__])


def _below(name: str) -> bool:
    """Whether a module that serves the parent has a module of this name."""
    parent, _, last = name.rpartition(".")
    for served in MODULES.get(parent, ()):
        if not exists(served):
            continue
        found = getattr(importlib.import_module(served), last, None)
        if isinstance(found, ModuleType) and found.__name__.startswith("relax2xla"):
            MODULES[name] = (found.__name__,)
            return True
    return False


def install() -> None:
    """Serve ``import tvm`` from now on; ImportError where the real one was imported before."""
    if any(isinstance(f, _Finder) for f in sys.meta_path):
        return
    if "tvm" in sys.modules:
        raise ImportError(
            "tvm was imported before relax2xla.tvm.install, which would serve it; install first, "
            "or run the program with python -m relax2xla.tvm"
        )
    sys.meta_path.insert(0, _Finder())
    # Texts name the modules that the program that prints them imports.
    printer.PACKAGE = "tvm.script"
