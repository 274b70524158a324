"""The listing of docs/vm.md is what its program prints."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

import relax2xla as rx
from relax2xla.script import from_source

DOC = Path(__file__).resolve().parents[2] / "docs" / "vm.md"


def plain(text: str) -> list[str]:
    """Lines without places in the source."""
    return [re.sub(r"(\s+# |\(at )\S+:\d+:\d+\)?", "", line).rstrip() for line in text.splitlines()]


def test_the_listing_is_real() -> None:
    program, stats, listing = re.findall(r"```(?:python)?\n(.*?)```", DOC.read_text("utf-8"), re.S)[
        :3
    ]
    module = program.split("\nex = ")[0]
    mod = from_source(module)
    assert isinstance(mod, rx.IRModule)
    ex = rx.build(mod)
    assert "\n".join(plain(stats)).strip() in "\n".join(plain(ex.stats()))
    assert plain(ex.as_text())[: len(plain(listing))] == plain(listing)
    x = np.array([[1, -1], [0, 2]], "f")
    np.testing.assert_array_equal(np.asarray(rx.VirtualMachine(ex)["main"](x)), [1, 2])
