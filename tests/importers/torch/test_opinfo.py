"""A fixed sample of torch's operator database; ``python -m benchmarks opinfo`` runs all of it."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("expecttest", reason="torch's database needs it")

from . import opinfo  # noqa: E402

#: Entries that pass in float32 and are quick to compile, across all families.
SAMPLE = (Path(__file__).parent / "opinfo_sample.txt").read_text().split()


@pytest.mark.filterwarnings("ignore")
def test_the_sample_passes() -> None:
    wanted = set(SAMPLE)
    todo = [c for c in opinfo.cases() if c.name in wanted and c.dtype == "float32"]
    assert len(todo) == len(wanted) == 150
    failed = [
        f"{o.name} {o.status}: {o.reason}"
        for case in todo
        for o in opinfo.run_case(case, samples=1)
        if o.status != opinfo.PASS
    ]
    assert not failed, "\n".join(failed)
