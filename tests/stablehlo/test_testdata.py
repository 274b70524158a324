"""A fixed sample of the programs of openxla/stablehlo: read, written back identical, run by XLA.

``python -m benchmarks stablehlo`` does the same with all of them.
"""

from __future__ import annotations

import pytest

from benchmarks.compiler.stablehlo import TESTDATA, outcome, programs

SAMPLE = {"testdata": 110, "interpret": 40}
pytestmark = pytest.mark.skipif(
    not TESTDATA.exists(), reason="no folder ../shared/stablehlo_testdata beside the checkout"
)


def sample(kind: str) -> list[tuple[str, str]]:
    found = list(programs(kind))
    step = max(1, len(found) // SAMPLE[kind])
    return found[::step][: SAMPLE[kind]]


# Where XLA:CPU by itself is not StableHLO: denormals, order of complex numbers, sums of bools, bits
# that are not packed, and what it cannot translate. Reading and writing has no such exceptions.
XLA = {
    *("add 13", "all_to_all 5", "bitcast_convert 1", "bitcast_convert 3", "ceil 1", "ceil 3"),
    *("ceil 4", "dynamic_conv 1", "minimum 16", "minimum 17"),
}
# Programs for several devices, which run_parallel starts.
DEVICES = ("runs on one", "it waits for another host or device")
UNCHECKED = {"api_input_arguments 1"}


@pytest.mark.parametrize("kind", SAMPLE)
def test_sample(kind: str) -> None:
    wrong: dict[str, str] = {}
    for name, text in sample(kind):
        state, reason = outcome(text)
        known = name in XLA | UNCHECKED or any(d in reason for d in DEVICES)
        if state not in ("right", "unparsed") and not (state == "fails" and known):
            wrong[name] = f"{state}: {reason}"
    assert wrong == {}
