"""The PyTorch importer, under its name in TVM."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from relax2xla.importers import torch as _importer
from relax2xla.importers.torch import ExportedProgramImporter as ExportedProgramImporter
from relax2xla.importers.torch import TorchFXImporter as TorchFXImporter
from relax2xla.importers.torch import dim_names as dim_names
from relax2xla.importers.torch import from_exported_program as from_exported_program
from relax2xla.importers.torch import from_fx as from_fx

if TYPE_CHECKING:
    from relax2xla.importers.torch import ImporterOutput as ImporterOutput
    from relax2xla.importers.torch import dynamo_capture_subgraphs as dynamo_capture_subgraphs
    from relax2xla.importers.torch import relax_dynamo as relax_dynamo


def __getattr__(name: str) -> Any:
    """What needs torch.compile is loaded when it is used."""
    return getattr(_importer, name)
