"""``relax2xla.frontend.stablehlo``: the home of the StableHLO importer."""

from __future__ import annotations

from relax2xla.importers.stablehlo import from_stablehlo as from_stablehlo
