"""Programs over several devices (design decision D19), beside JAX's own run of them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import relax2xla as rx


def test_programs_over_eight_devices(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.vm.pjrt.mesh_programs", str(tmp_path)],
        env={**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=8"},
        cwd=Path(rx.__file__).resolve().parent.parent,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "done\n"
