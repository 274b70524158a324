"""What tests of the ONNX importer share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.quick_options import quick_options

# Tests of one operator each. Well compiled they are in test_suite, and in tests of models.
OPERATORS = (
    "test_by_value.py",
    "test_contracts.py",
    "test_detection.py",
    "test_edges.py",
    "test_image.py",
    "test_microsoft.py",
    "test_ml.py",
    "test_narrow.py",
    "test_old_opsets.py",
    "test_ops.py",
    "test_sequences.py",
)


@pytest.fixture(scope="module", autouse=True)
def operators_compiled_quickly(request: pytest.FixtureRequest) -> Iterator[None]:
    """XLA took three fifths of these tests' time to compile well what runs once."""
    if request.path.name not in OPERATORS:
        yield
        return
    with quick_options():
        yield
