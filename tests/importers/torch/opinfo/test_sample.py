"""A fixed sample of torch's operator database; ``python -m benchmarks opinfo`` runs all of it."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("expecttest", reason="torch's database needs it")

from . import suite  # noqa: E402

#: Entries that pass in float32 and are quick to compile, across all families.
SAMPLE = (Path(__file__).parent / "sample.txt").read_text().split()


@pytest.mark.filterwarnings("ignore")
def test_the_sample_passes() -> None:
    wanted = set(SAMPLE)
    todo = [c for c in suite.cases() if c.name in wanted and c.dtype == "float32"]
    assert len(todo) == len(wanted) == 150
    failed = [
        f"{o.name} {o.status}: {o.reason}"
        for case in todo
        for o in suite.run_case(case, samples=1)
        if o.status != suite.PASS
    ]
    assert not failed, "\n".join(failed)
