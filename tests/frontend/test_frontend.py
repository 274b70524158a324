"""The front ends as attributes of their package."""

from __future__ import annotations

import pytest

import relax2xla


@pytest.mark.parametrize("name", ["nn", "onnx", "stablehlo", "torch"])
def test_front_ends_are_found_without_importing_them(name: str) -> None:
    assert getattr(relax2xla.frontend, name).__name__ == f"relax2xla.frontend.{name}"


def test_a_wrong_name_says_so() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'tensorflow'"):
        _ = relax2xla.frontend.tensorflow
