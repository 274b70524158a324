"""What counts as near enough, and results of a worker beside what torch prints."""

from __future__ import annotations

import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("expecttest", reason="torch's database needs it")

from . import suite  # noqa: E402
from .checks import as_exact  # noqa: E402

EXACT = torch.tensor([100.0, 1e-6, 3.0], dtype=torch.float64)
TORCHS = (EXACT + torch.tensor([1e-3, 1e-7, 0])).float()


@pytest.mark.parametrize(
    ("error", "near"),
    [
        ([5e-4, 1e-6, 0], True),  # on the whole it is nearer, at one small element it is not
        ([2e-3, 0, 0], True),  # of each element's size it is nearer
        ([2e-3, 1e-6, 0], False),
        ([0, 0, float("nan")], False),
    ],
)
def test_nearer_to_the_exact_result(error: list[float], near: bool) -> None:
    ours = (EXACT + torch.tensor(error)).float()
    assert as_exact([ours], [TORCHS], lambda: [EXACT]) == near


NOISY = """
import os
from tests.importers.torch.opinfo import suite

def run_case(*args):
    os.write(1, b"On entry to SGESDD parameter number 5 had an illegal value\\n")
    yield suite.Outcome("x", "float32", 0, suite.PASS)

suite.database, suite.run_case = list, run_case
suite.work()
"""


def test_a_worker_whose_libraries_print() -> None:
    """LAPACK writes to the standard output, on which the outcomes go out."""
    made = subprocess.run(
        [sys.executable, "-c", NOISY],
        cwd=suite.ROOT,
        input='[0, "x", "float32"]\n',
        capture_output=True,
        text=True,
        check=True,
    )
    assert made.stdout == 'ready\n["x", "float32", 0, "pass", "", 0.0]\n\n'
    assert "SGESDD" in made.stderr
