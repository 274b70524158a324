"""PyTorch to Relax: ``from_exported_program`` for ``torch.export``, ``from_fx`` for FX graphs."""

from __future__ import annotations

from relax2xla.importers.torch.export import from_exported_program as from_exported_program
from relax2xla.importers.torch.fx import from_fx as from_fx
from relax2xla.importers.torch.state import Stateful as Stateful
