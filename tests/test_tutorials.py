"""What the tutorials say runs, and prints what they say it prints.

`make newcomer` does the same, and README, from the wheel in fresh environments.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.installed import ROOT
from tests.newcomer import blocks
from tests.newcomer.blocks import Differs, run_document

TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.md"))
# Their programs share what they import.
pytestmark = pytest.mark.xdist_group("tutorials")


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda p: p.stem)
def test_a_tutorial_is_true(path: Path) -> None:
    text = path.read_text("utf-8")
    install = re.search(r"`pip install '?\.(?:\[([\w,]+)\])?'?`", text)
    assert install, "a tutorial says how to install what it needs"
    for package in (install[1] or "").split(","):
        if package:
            pytest.importorskip(package)
    assert run_document(path) >= 4


def test_what_is_not_true_is_found(tmp_path: Path) -> None:
    document = tmp_path / "said.md"

    def check(text: str) -> int:
        document.write_text(text, "utf-8")
        return run_document(document)

    block = "```python\nn = 2\nprint(n + 1)\n```\n"
    assert check(block + "```text\n3\n```\n```python\nassert n == 2\n```\n") == 2
    assert check("```console\n$ python -c 'print(3)'\n3\n$ python -c ''\n```\n") == 2
    for untrue in (
        block,
        block + "```text\n4\n```\n",
        "```console\n$ python -c 'print(3)'\n4\n```\n",
    ):
        with pytest.raises(Differs, match="printed was\n3"):
            check(untrue)
    with pytest.raises(Differs, match="ended with 2"):
        check("```console\n$ relax2xla inspect none.onnx\n```\n")
    with pytest.raises(ZeroDivisionError) as info:
        check("\n\n```python\nn = 1\nn / 0\n```\n")
    assert info.traceback[-1].lineno == 4
    assert info.value.__notes__ == [f"in the block at {document}:4"]
    assert blocks.blocks_of("```python\nx\n```\n")[0].line == 2
