"""The PyTorch importer, under its name in TVM."""

from __future__ import annotations

from relax2xla.importers.torch import from_exported_program as from_exported_program
from relax2xla.importers.torch import from_fx as from_fx
