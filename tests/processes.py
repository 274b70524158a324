"""Python in a process of its own: with other devices or settings, or because it might end."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import relax2xla

_ROOT = Path(relax2xla.__file__).resolve().parent.parent


def run_python(*command: str, devices: int = 0, timeout: float = 300, **environment: str) -> str:
    """What Python prints for arguments, or for a program, which may be indented; it must succeed.

    devices: how many the process sees of the host; 0: as here
    """
    if len(command) == 1 and "\n" in command[0]:
        command = ("-c", textwrap.dedent(command[0]))
    own = {**os.environ, "PYTHONPATH": str(_ROOT), **environment}
    if devices:
        count = f"--xla_force_host_platform_device_count={devices}"
        own["XLA_FLAGS"] = f"{own.get('XLA_FLAGS', '')} {count}"
    done = subprocess.run(
        [sys.executable, *command],
        env=own,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, (done.returncode, done.stderr[-4000:])
    return done.stdout
