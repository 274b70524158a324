"""A fixed sample of the programs of openxla/stablehlo: read, written back identical, run by XLA.

``python -m benchmarks stablehlo`` does the same with all of them.
"""

from __future__ import annotations

import pytest

from benchmarks.stablehlo import TESTDATA, outcome, programs

SAMPLE = {"testdata": 110, "interpret": 40}
pytestmark = pytest.mark.skipif(
    not TESTDATA.exists(), reason="no folder ../shared/stablehlo_testdata beside the checkout"
)


def sample(kind: str) -> list[tuple[str, str]]:
    found = list(programs(kind))
    step = max(1, len(found) // SAMPLE[kind])
    return found[::step][: SAMPLE[kind]]


# What XLA:CPU cannot do: programs of several devices, types without a kernel; and where its results
# are not StableHLO's. Reading and writing has no such exceptions.
def excused(reason: str, text: str) -> bool:
    return (
        "unsupported op for export to XLA" in reason
        or "UNIMPLEMENTED" in reason
        or "quant" in reason
        or "denormal" in text
    )


@pytest.mark.parametrize("kind", SAMPLE)
def test_sample(kind: str) -> None:
    wrong: dict[str, str] = {}
    for name, text in sample(kind):
        state, reason = outcome(text)
        if state not in ("right", "unparsed") and not (state == "fails" and excused(reason, text)):
            wrong[name] = f"{state}: {reason}"
    assert wrong == {}
