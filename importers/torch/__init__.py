"""PyTorch to Relax: ``from_exported_program`` for what ``torch.export.export`` gives."""

from __future__ import annotations

from relax2xla.importers.torch.export import from_exported_program as from_exported_program
