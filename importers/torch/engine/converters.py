"""Loads every file of converters, once."""

from __future__ import annotations

import functools

import torch

from relax2xla.importers.shared.modules import load_modules
from relax2xla.importers.torch.engine.registry import CONVERTERS
from relax2xla.importers.torch.engine.widening import widen

# Other names that torch has for an operator, with the same arguments in the same order; some are
# called otherwise. torch.export keeps them.
ALIASES = {
    "arccos": "acos",
    "arccosh": "acosh",
    "arcsin": "asin",
    "arcsinh": "asinh",
    "arctan": "atan",
    "arctan2": "atan2",
    "arctanh": "atanh",
    "divide": "div",
    "fix": "trunc",
    "greater": "gt",
    "greater_equal": "ge",
    "inverse": "linalg_inv",
    "less": "lt",
    "less_equal": "le",
    "max.other": "maximum",
    "min.other": "minimum",
    "multiply": "mul",
    "negative": "neg",
    "not_equal": "ne",
    "orgqr": "linalg_householder_product",
    "special_erfinv": "erfinv",
    "subtract": "sub",
    "true_divide": "div",
}


@functools.cache
def load() -> None:
    """Fill the registry."""
    load_modules("relax2xla.importers.torch.aten")
    for alias, name in ALIASES.items():
        _also(alias, name)
    widen()


def _also(alias: str, name: str) -> None:
    """Let the overloads of ``alias`` have the converters of those of ``name``."""
    packet = getattr(torch.ops.aten, alias.partition(".")[0])
    for overload in packet.overloads():
        suffix = "" if overload == "default" else f".{overload}"
        own = packet.__name__ + suffix
        if alias in (packet.__name__, own):
            converter = CONVERTERS.get(name + ("" if alias == own else suffix))
            if converter is not None:
                CONVERTERS.setdefault(own, converter)
