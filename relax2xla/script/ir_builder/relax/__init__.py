"""``R`` for IRBuilder: the statements of ``ir``, and annotations and operators of TVMScript's R."""

from __future__ import annotations

import importlib
from typing import Any

from relax2xla.script.ir_builder.relax import frame as frame
from relax2xla.script.ir_builder.relax import ir as ir
from relax2xla.script.ir_builder.relax.ir import *  # noqa: F403


def __getattr__(name: str) -> Any:
    return getattr(importlib.import_module("relax2xla.script.relax_names").relax, name)
