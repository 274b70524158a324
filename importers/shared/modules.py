"""Converters register themselves when their module is loaded; they are found, not listed."""

from __future__ import annotations

import importlib
import pkgutil


def load_modules(package: str) -> None:
    """Import every module that stands in ``package``, by name."""
    for found in sorted(pkgutil.iter_modules(importlib.import_module(package).__path__)):
        importlib.import_module(f"{package}.{found.name}")
