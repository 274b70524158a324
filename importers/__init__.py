"""Importers: foreign model formats to Relax.

Installed as ``relax2xla.importers``. Each sub-package turns one source format into an
``IRModule`` and imports its framework only when it is itself imported:

``relax2xla.importers.torch``      ``torch.export`` programs, FX graphs, ``torch.compile``
``relax2xla.importers.onnx``       ONNX models
``relax2xla.importers.stablehlo``  StableHLO text, bytecode and portable artefacts

Code here uses absolute imports and the public names of ``relax2xla`` only.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from relax2xla.importers import onnx as onnx
    from relax2xla.importers import stablehlo as stablehlo
    from relax2xla.importers import torch as torch


def __getattr__(name: str) -> Any:
    """The sub-packages, which load their frameworks when they are first named."""
    if name not in ("onnx", "stablehlo", "torch"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(f"{__name__}.{name}")
