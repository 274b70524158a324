"""How the operators' tests compile."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.quick_options import quick_options


@pytest.fixture(scope="module", autouse=True)
def compiled_quickly() -> Iterator[None]:
    """XLA took four fifths of these tests' time to compile well what runs once.

    The operators' values under the options that users have: the suites in tests/importers.
    """
    with quick_options():
        yield
