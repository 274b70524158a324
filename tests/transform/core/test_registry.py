"""One registry: exports, files that are made from it, and what every pass says of itself."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from relax2xla import transform
from relax2xla.dpl.rewrite import PatternMatchingRewriter
from relax2xla.errors import TransformError
from relax2xla.transform.__main__ import FILES, summary
from relax2xla.transform.core import FunctionPass, Pass, register
from relax2xla.transform.core.registry import all_passes, get_pass

PASSES = all_passes()
TESTS = Path(__file__).parents[2]
ROOMS = (TESTS / "transform", TESTS / "kv_state")
# Passes that no test calls by their names, and where they are tested.
ELSEWHERE: dict[str, str] = {}
# Classes of passes that are made of others, and are no passes by themselves.
FAMILIES = {
    "Unchanged",
    "ApplyPassToFunction",
    "DataflowBlockPass",
    "FunctionPass",
    "LegalizeStatic",
    "Pipeline",
    "PrintIR",
    "Sequential",
    "_Decompose",
}


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name)
def test_files_from_the_registry_are_current(path: Path) -> None:
    assert path.read_text("utf-8") == FILES[path](), "run python -m relax2xla.transform"


def test_every_class_of_passes_is_registered() -> None:
    def heirs(kind: type[Pass]) -> set[type[Pass]]:
        return {h for c in kind.__subclasses__() for h in (c, *heirs(c))}

    # A user's patterns make rewriters, which have no name of their own.
    patterns = {PatternMatchingRewriter, *heirs(PatternMatchingRewriter)}
    ours = {h for h in heirs(Pass) if h.__module__.startswith("relax2xla.")} - patterns
    # Passes of training are there by their names in TVM.
    ours = {h for h in ours if not h.__module__.startswith("relax2xla.training.")}
    missing = {h.__name__ for h in ours} - FAMILIES - set(PASSES)
    assert not missing, "put @register(...) of relax2xla.transform.core on these classes"


@pytest.mark.parametrize("name", PASSES)
def test_every_pass_says_what_it_is(name: str) -> None:
    made = PASSES[name]
    assert made.info.name == made.__name__ == name
    assert summary(made).endswith("."), "the first sentence of the docstring is for docs/passes.md"
    assert 0 <= made.info.opt_level <= 3
    assert getattr(transform, name) is made
    assert name in dir(transform)


def test_every_pass_is_named_by_a_test() -> None:
    files = [p for room in ROOMS for p in room.rglob("*.py") if p != Path(__file__)]
    words = set(re.findall(r"\w+", "\n".join(p.read_text("utf-8") for p in files)))
    homes = {name: made.__module__.rpartition(".")[2] for name, made in PASSES.items()}
    untested = {name for name, home in homes.items() if name not in words and home not in words}
    assert untested == set(ELSEWHERE), (
        "compare Before and Expected in a test file of the same room of tests/transform"
    )


def test_names_that_do_not_exist() -> None:
    with pytest.raises(TransformError, match=r"no pass 'Nothing'; there are .*BindParams, "):
        get_pass("Nothing")
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = transform.Nothing  # pyright: ignore[reportAttributeAccessIssue]


def test_one_name_is_one_pass() -> None:
    with pytest.raises(TypeError, match="two passes named FoldBatchNorm"):

        @register()
        class FoldBatchNorm(FunctionPass):  # pyright: ignore[reportUnusedClass]
            """Another one."""


def test_passes_are_loaded_when_they_are_asked_for() -> None:
    program = (
        "import sys, relax2xla.transform as t\n"
        "assert not [m for m in sys.modules if m.startswith('relax2xla.transform.raising')]\n"
        "from relax2xla.transform import FoldBatchNorm\n"
        "assert FoldBatchNorm.info.opt_level == 1\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
