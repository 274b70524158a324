"""The name under which TVM's documentation imports ``from_fx``."""

from __future__ import annotations

from relax2xla.importers.torch import from_fx as from_fx
