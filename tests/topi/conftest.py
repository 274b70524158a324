"""How the tests of topi compile."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.quick_options import quick_options


@pytest.fixture(scope="module", autouse=True)
def compiled_quickly() -> Iterator[None]:
    """Half of these tests' time was XLA compiling well what runs once.

    Loops as rows under the options that users have: tests of te, tir and stablehlo.
    """
    with quick_options():
        yield
