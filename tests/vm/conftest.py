"""What tests of the machine share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from relax2xla.vm.pjrt import cache
from relax2xla.vm.pjrt.cache import DiskCache


@pytest.fixture
def store(tmp_path: Path) -> Iterator[DiskCache]:
    """A cache of its own, which compilations of this process use."""
    made = DiskCache(tmp_path / "cache")
    before = cache.use(made)
    yield made
    cache.use(before)
