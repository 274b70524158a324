"""What every test may use. Settings of pytest itself are in pyproject.toml."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import settings

# No deadline: the first call of a function may compile. In CI the examples are the same each time,
# so a red run is a change in the code and not in the luck.
settings.register_profile("relax2xla", deadline=None, max_examples=50, print_blob=True)
settings.register_profile("ci", settings.get_profile("relax2xla"), derandomize=True)
# Compiled programs of other runs do not count; tests of the cache make their own.
os.environ["RELAX2XLA_CACHE"] = "0"
settings.load_profile("ci" if os.environ.get("CI") else "relax2xla")


@pytest.fixture
def rng() -> np.random.Generator:
    """A generator with a fixed seed, fresh for each test."""
    return np.random.default_rng(0)
