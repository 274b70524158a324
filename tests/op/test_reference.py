"""docs/ops.md and the stubs are what the operators say of themselves."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import relax2xla.op
from relax2xla.ir import Op
from relax2xla.op.__main__ import operators, reference, signature, stubs

PAGE = Path(__file__).parents[2] / "docs" / "ops.md"


def test_the_page_is_up_to_date():
    assert PAGE.read_text() == reference(), "run: python -m relax2xla.op > docs/ops.md"


def test_every_operator_is_on_it():
    page = PAGE.read_text()
    for made in operators():
        assert f"### `{made.name.removeprefix('relax.')}`" in page
        assert signature(made) in page


def test_the_stubs_are_up_to_date():
    for file, text in stubs().items():
        assert file.read_text() == text, f"{file}: run python -m relax2xla.op --stubs"


def test_the_stubs_name_what_is_there():
    for file, text in stubs().items():
        package = ".".join(file.parent.relative_to(PAGE.parents[1]).parts)
        names = re.findall(r"^from (\S+) import (\w+) as \2$", text, re.MULTILINE)
        home = importlib.import_module(package)
        for module, name in names:
            assert getattr(home, name) is getattr(importlib.import_module(module), name)
        own = {n for n, v in vars(home).items() if isinstance(v, Op)}
        assert own <= {name for _, name in names}


def test_what_is_no_operator_is_marked():
    composed = relax2xla.op.COMPOSED
    assert composed["linear"] is relax2xla.op.linear
    assert composed["roi_align"] is relax2xla.op.vision.roi_align
    assert all(isinstance(f, Op) or f.__doc__ for f in composed.values())
