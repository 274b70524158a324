"""Programs in a process of their own, which would end this one if they ended theirs."""

from __future__ import annotations

import subprocess
import sys
import textwrap


def run_alone(program: str) -> list[str]:
    """Lines that a Python program prints in a process of its own, which must not die."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])
    return done.stdout.split("\n")
