"""Pictures of the gallery: those that docs/gallery.py draws, and drawn anew where that is quick."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import xml.etree.ElementTree as ET
from types import ModuleType

from tests.installed import ROOT


def gallery() -> ModuleType:
    path = ROOT / "docs" / "gallery.py"
    spec = importlib.util.spec_from_file_location("docs_gallery", path)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def test_every_example_that_is_drawn_has_its_picture() -> None:
    made = gallery()
    examples = {p.stem for p in (ROOT / "examples").glob("*.py")}
    assert set(made.EXAMPLES) <= examples
    assert {p.stem for p in made.PICTURES.glob("*.svg")} == set(made.EXAMPLES)
    for path in made.PICTURES.glob("*.svg"):
        assert ET.parse(path).getroot().tag.endswith("svg")
        assert path.stat().st_size < 60_000


def test_a_picture_is_what_the_example_builds() -> None:
    code = (
        "import importlib.util as u; s = u.spec_from_file_location('g', 'docs/gallery.py'); "
        "m = u.module_from_spec(s); s.loader.exec_module(m); "
        "print(m.draw('symbolic_batch'), end='')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == (ROOT / "docs/gallery/symbolic_batch.svg").read_text("utf-8")
