"""``torch.compile`` with the backend ``relax2xla``."""

from __future__ import annotations

from relax2xla.importers.torch.compile.backend import relax2xla_backend as relax2xla_backend
