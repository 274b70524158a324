"""Programs over several devices (design decision D19), beside JAX's own run of them."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import jaxlib.xla_client
import pytest

import relax2xla as rx
from tests.quick_options import quick_environment

ROOT = Path(rx.__file__).resolve().parent.parent


def started(module: str, devices: int, *arguments: str) -> subprocess.Popen[str]:
    """A process of a module of this folder, with so many devices."""
    return subprocess.Popen(
        [sys.executable, "-m", f"tests.vm.pjrt.{module}", *arguments],
        env=quick_environment(devices),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finished(*processes: subprocess.Popen[str]) -> None:
    try:
        for process in processes:
            out, err = process.communicate(timeout=300)
            assert process.returncode == 0, err
            # Gloo says there what it does, too, and in the midst of lines.
            assert "done" in out, out
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def test_programs_over_eight_devices() -> None:
    finished(started("mesh_programs", 8))


def test_functions_that_eight_workers_run(tmp_path: Path) -> None:
    finished(started("worker_programs", 8, str(tmp_path)))


@pytest.mark.skipif(
    not hasattr(jaxlib.xla_client._xla, "make_gloo_tcp_collectives"),
    reason="this jaxlib has no collectives between processes on CPUs",
)
def test_two_processes() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    finished(*(started("two_processes", 4, str(place), address) for place in range(2)))
