"""The PyTorch importer, under its name in TVM."""

from __future__ import annotations

from relax2xla.importers.torch import from_exported_program as from_exported_program
