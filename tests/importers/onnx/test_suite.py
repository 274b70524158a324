"""A fixed sample of the onnx package's own cases by the suite's runner, as docs/onnx.md says.

``python -m tests.importers.onnx.suite`` runs all of them.
"""

from __future__ import annotations

import functools
import re

import onnx
import pytest

from tests.importers.onnx import suite

# Loading the suite takes as long as half of the sample: one process does it, for all tests of it.
pytestmark = pytest.mark.xdist_group("onnx_suite")

# One case in so many, spread over the alphabet; light models take seconds.
STEP = 17


@functools.cache
def listed() -> list[str]:
    """The cases that docs/onnx.md says do not pass."""
    text = suite.DOCUMENT.read_text("utf-8").partition("## What does not pass")[2]
    return sorted(set(re.findall(r"`(\w+)`", text)))


def passing() -> list[str]:
    """Names only; they are the same in every run of one onnx release."""
    refused = set(listed())
    names = [n for n, (kind, _) in sorted(suite.load().items()) if kind != "light models"]
    return [n for n in names if n not in refused][::STEP]


@pytest.mark.parametrize("at", range(120))
def test_a_case_passes(at: int) -> None:
    names = passing()
    if at >= len(names):
        pytest.skip("this onnx release has fewer cases")
    outcome = suite.run(names[at], *suite.load()[names[at]])
    if suite.ROUNDED.fullmatch(outcome.name) and outcome.kind == suite.UNCOMPARED:
        pytest.skip(outcome.reason)
    assert outcome.kind == suite.PASSED, outcome


@pytest.mark.parametrize("at", range(12))
def test_what_does_not_pass_is_refused(at: int) -> None:
    names = listed()
    if at >= len(names):
        pytest.skip("fewer cases are listed")
    if names[at] not in suite.load():
        pytest.skip("this onnx release has no such case")
    outcome = suite.run(names[at], *suite.load()[names[at]])
    # A case that passes by now is no failure; docs/onnx.md wants to be written again.
    assert outcome.kind in (suite.PASSED, suite.REFUSED, suite.UNCOMPARED), outcome


def test_the_suite_is_the_one_that_was_counted() -> None:
    assert onnx.defs.onnx_opset_version() >= 24
