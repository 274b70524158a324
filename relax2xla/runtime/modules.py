"""``runtime.load_module``, the name that programs for TVM use."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any


def load_module(
    path: str | Path,
    compiled: bool = True,
    *,
    native: bool = False,
    allow_custom_calls: Sequence[str] = (),
) -> Any:
    """The executable that ``export_library`` saved: ``relax2xla.load_module``."""
    from relax2xla.vm.save.reader import load_module as load

    return load(path, compiled, native=native, allow_custom_calls=allow_custom_calls)
