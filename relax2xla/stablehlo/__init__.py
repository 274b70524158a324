"""The StableHLO boundary: rows (one generic reader, one generic writer), parsing and serialising.

``rows`` and ``table`` need no jaxlib; everything named here loads it on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from relax2xla.stablehlo.emitter import emit as emit
    from relax2xla.stablehlo.mlir import context as context
    from relax2xla.stablehlo.reader import read as read
    from relax2xla.stablehlo.serialize import parse as parse
    from relax2xla.stablehlo.serialize import to_stablehlo as to_stablehlo

_HOMES = {
    "context": "mlir",
    "emit": "emitter",
    "parse": "serialize",
    "read": "reader",
    "to_stablehlo": "serialize",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    made = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = made
    return made
