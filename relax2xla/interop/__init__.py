"""To and from other frameworks' programs in memory: ``relax2xla.interop.jax``."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from relax2xla.interop import jax as jax


def __getattr__(name: str) -> Any:
    """The room of a framework, which loads it when it is first named."""
    if name != "jax":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(f"{__name__}.{name}")
