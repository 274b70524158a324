"""Build executables and run them on XLA.

From the bottom: ``host`` (what runs on the host), ``pjrt`` (XLA through jaxlib), ``observe``
(timing, profiles, instruments), ``code`` (bytecode), ``call`` (the machine and its calls), ``save``
(files), ``plan`` (from a module to an executable).
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from relax2xla.vm.call.machine import VirtualMachine as VirtualMachine
    from relax2xla.vm.observe.instrument import VMInstrumentReturnKind as VMInstrumentReturnKind
    from relax2xla.vm.plan.build import build as build
    from relax2xla.vm.plan.build import compile as compile
    from relax2xla.vm.plan.exec_builder import ExecBuilder as ExecBuilder
    from relax2xla.vm.save.executable import VMExecutable as VMExecutable
    from relax2xla.vm.save.reader import load_module as load_module

# Where names that are loaded on first use live: the disk cache, for one, needs none of them.
_HOMES = {
    "ExecBuilder": "plan.exec_builder",
    "VMExecutable": "save.executable",
    "VMInstrumentReturnKind": "observe.instrument",
    "VirtualMachine": "call.machine",
    "build": "plan.build",
    "compile": "plan.build",
    "load_module": "save.reader",
}
_ROOMS = ("call", "code", "host", "observe", "pjrt", "plan", "save")


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return importlib.import_module(f"relax2xla.vm.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'relax2xla.vm' has no attribute {name!r}")
    made = getattr(importlib.import_module(f"relax2xla.vm.{_HOMES[name]}"), name)
    globals()[name] = made
    return made


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES, *_ROOMS})
