"""C++ of this project is compiled once for all processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from relax2xla.errors import CompilerError
from relax2xla.runtime.compiler import has_compiler
from relax2xla.vm.pjrt import cache, own_library
from relax2xla.vm.pjrt.own_library import shared_library

pytestmark = pytest.mark.skipif(not has_compiler(), reason="needs a C++ compiler")


def test_a_library_is_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "current", lambda: cache.DiskCache(tmp_path))
    made = shared_library("few_rows.cpp", ["-O0"], "it does not compile")
    compiled: list[str] = []

    def note(command: list[str], what: str) -> None:
        compiled.append(what)
        raise CompilerError(what)

    monkeypatch.setattr(own_library, "run_compiler", note)
    assert shared_library("few_rows.cpp", ["-O0"], "again") == made
    assert not compiled
    # Other options, or other headers of others, are another library.
    for options, beside in ((["-O1"], ""), (["-O0"], "2.0")):
        with pytest.raises(CompilerError, match="anew"):
            shared_library("few_rows.cpp", options, "anew", beside)
