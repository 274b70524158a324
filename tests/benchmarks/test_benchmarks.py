"""The benchmarks run and print tables; their figures are not judged here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.compiler import raising
from benchmarks.machine import imports

ROOT = Path(__file__).parents[2]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=300
    )


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("dispatch", ["1 argument, jax array", "200 weights", "| relax2xla |", "| jax.jit |"]),
        ("language", ["| build |", "| parse |", "goal at 10,000"]),
        ("imports", ["| import numpy |", "| import relax2xla |", "`import relax2xla` loads none"]),
    ],
)
def test_quick(name: str, rows: list[str]) -> None:
    done = run("-m", "benchmarks", name, "--quick")
    assert done.returncode == 0, done.stderr
    for row in rows:
        assert row in done.stdout


def test_raising_beside_reading(capsys: pytest.CaptureFixture[str]) -> None:
    raising.main({"mixed": raising.mixed(60)}, quick=True)
    shown = capsys.readouterr().out
    assert "| raise / read |" in shown
    assert all(row in shown for row in ("| mixed |", "GPT-2", "residual blocks"))


def test_unknown_name_lists_the_benchmarks() -> None:
    done = run("-m", "benchmarks", "nothing")
    assert done.returncode == 2
    assert "dispatch" in done.stderr
    assert "imports" in done.stderr


def test_heavy_packages_are_seen() -> None:
    assert imports.loaded("import jaxlib") == ["jaxlib"]
    assert imports.loaded("import relax2xla") == []


def test_a_failing_command_is_no_figure() -> None:
    with pytest.raises(subprocess.CalledProcessError):
        imports.run([sys.executable, "-c", "raise SystemExit(3)"])
