"""Passes and pipelines; a pass never changes the module that it is given.

Every pass of the registry is here by its name (docs/passes.md lists them), loaded when it is first
asked for; ``__init__.pyi``, which ``python -m relax2xla.transform`` writes, tells type checkers.
"""

from __future__ import annotations

import importlib
from typing import Any

from relax2xla.transform.core import DataflowBlockPass as DataflowBlockPass
from relax2xla.transform.core import FunctionPass as FunctionPass
from relax2xla.transform.core import Pass as Pass
from relax2xla.transform.core import PassContext as PassContext
from relax2xla.transform.core import PassInfo as PassInfo
from relax2xla.transform.core import PassInstrument as PassInstrument
from relax2xla.transform.core import Sequential as Sequential
from relax2xla.transform.core import dataflowblock_pass as dataflowblock_pass
from relax2xla.transform.core import function_pass as function_pass
from relax2xla.transform.core import module_pass as module_pass
from relax2xla.transform.core.registry import OTHERS, all_passes


def __getattr__(name: str) -> Any:
    if name in OTHERS:
        return getattr(importlib.import_module(OTHERS[name]), name)
    found = None if name.startswith("_") else all_passes().get(name)
    if found is None:
        raise AttributeError(f"module 'relax2xla.transform' has no attribute {name!r}")
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *OTHERS, *all_passes()})
