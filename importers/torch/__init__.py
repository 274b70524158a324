"""PyTorch to Relax: ``from_exported_program`` for ``torch.export``, ``from_fx`` for FX graphs,
``relax_dynamo`` for ``torch.compile``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from relax2xla.importers.torch.engine.converters import register_converter as register_converter
from relax2xla.importers.torch.engine.custom import (
    ExportedProgramImporter as ExportedProgramImporter,
)
from relax2xla.importers.torch.engine.export import from_exported_program as from_exported_program
from relax2xla.importers.torch.engine.fx import TorchFXImporter as TorchFXImporter
from relax2xla.importers.torch.engine.fx import from_fx as from_fx
from relax2xla.importers.torch.source.dims import dim_names as dim_names

if TYPE_CHECKING:
    from relax2xla.importers.torch.compile.backend import relax_dynamo as relax_dynamo
    from relax2xla.importers.torch.compile.dynamo import ImporterOutput as ImporterOutput
    from relax2xla.importers.torch.compile.dynamo import (
        dynamo_capture_subgraphs as dynamo_capture_subgraphs,
    )
    from relax2xla.importers.torch.engine.tensor_data import load_state_dict as load_state_dict
    from relax2xla.importers.torch.verification import verify as verify

# What is not for every import: torch.compile takes a while to load.
_HOMES = {
    "ImporterOutput": "compile.dynamo",
    "dynamo_capture_subgraphs": "compile.dynamo",
    "load_state_dict": "engine.tensor_data",
    "relax_dynamo": "compile.backend",
    "verify": "verification",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
