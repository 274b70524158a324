"""Modules of the user that register something when they are imported."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys


def load_plugin(module: str | os.PathLike[str]) -> None:
    """Import a module that registers converters or types: its dotted name, or a file's path.

    Its code runs: give it only modules that you trust.
    """
    text = os.fspath(module)
    if not text.endswith(".py"):
        importlib.import_module(text)
        return
    name = f"relax2xla_plugin_{os.path.splitext(os.path.basename(text))[0]}"
    spec = importlib.util.spec_from_file_location(name, text)
    if spec is None or spec.loader is None or not os.path.isfile(text):
        raise FileNotFoundError(f"there is no plug-in {text!r}")
    made = importlib.util.module_from_spec(spec)
    sys.modules[name] = made
    spec.loader.exec_module(made)
