"""Loads every file of converters, once."""

from __future__ import annotations

import importlib

FILES = (
    "aten_bag",
    "aten_complex",
    "aten_create",
    "aten_fft",
    "aten_image",
    "aten_index",
    "aten_linalg",
    "aten_math",
    "aten_nn",
    "aten_polynomial",
    "aten_pool",
    "aten_random",
    "aten_reduce",
    "aten_scatter",
    "aten_sets",
    "aten_shape",
    "aten_special",
    "aten_strided",
    "aten_window",
    "data_dependent",
)


def load() -> None:
    """Fill the registry."""
    for name in FILES:
        importlib.import_module(f"relax2xla.importers.torch.{name}")
