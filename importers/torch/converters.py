"""Loads every file of converters, once."""

from __future__ import annotations

import functools
import importlib

from relax2xla.importers.torch.widening import widen

FILES = (
    "aten_bag",
    "aten_bits",
    "aten_complex",
    "aten_create",
    "aten_fft",
    "aten_grid",
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
    "aten_spectral",
    "aten_strided",
    "aten_window",
    "data_dependent",
)


@functools.cache
def load() -> None:
    """Fill the registry."""
    for name in FILES:
        importlib.import_module(f"relax2xla.importers.torch.{name}")
    widen()
