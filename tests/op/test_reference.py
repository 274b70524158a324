"""docs/ops.md is what the operators say of themselves."""

from __future__ import annotations

from pathlib import Path

from relax2xla.op.__main__ import operators, reference, signature

PAGE = Path(__file__).parents[2] / "docs" / "ops.md"


def test_the_page_is_up_to_date():
    assert PAGE.read_text() == reference(), "run: python -m relax2xla.op > docs/ops.md"


def test_every_operator_is_on_it():
    page = PAGE.read_text()
    for made in operators():
        assert f"### `{made.name.removeprefix('relax.')}`" in page
        assert signature(made) in page
