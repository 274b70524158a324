"""Converters register themselves when their module is loaded; they are found, not listed."""

from __future__ import annotations

import importlib
import pkgutil


def load_modules(package: str) -> None:
    """Import every module in ``package`` and its rooms, by name."""
    path = importlib.import_module(package).__path__
    for name in sorted(found.name for found in pkgutil.walk_packages(path, f"{package}.")):
        importlib.import_module(name)
