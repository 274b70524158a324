"""What is freed between calls stays with the process, unless the environment says otherwise."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

resource = pytest.importorskip("resource")

# Page faults of eight large arrays, made and freed in turn, on the first thread or another.
SCRIPT = """
import resource
import sys
import threading
import numpy as np
from relax2xla.vm.pjrt import allocator

kept = allocator.keep_memory()
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def work():
    for n in range(10):
        if n == 2:
            before = faults()
        np.ones(int(sys.argv[1]) << 20, np.uint8)
    print(int(kept), faults() - before)
if sys.argv[2] == "another":
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
else:
    work()
"""


def _run(size: int = 48, thread: str = "first", **variables: str) -> tuple[int, int]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("MALLOC_", "GLIBC_"))}
    command = [sys.executable, "-c", SCRIPT, str(size), thread]
    made = subprocess.run(
        command, env=environment | variables, capture_output=True, text=True, check=True
    )
    kept, faults = made.stdout.split()
    return int(kept), int(faults)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's thresholds")
def test_memory_stays_with_the_process() -> None:
    kept, faults = _run()
    if not kept:
        pytest.skip("this C library has no mallopt")
    # A new page for each array at the least, where it is not kept.
    assert faults < 8
    assert _run(RELAX2XLA_KEEP_MEMORY="0")[0] == 0
    # As programs run on threads of XLA's, whose own heaps of glibc's hold 64 MiB.
    if (os.cpu_count() or 1) <= 8:
        assert _run(200, "another")[1] < 8


@pytest.mark.parametrize("variable", ["RELAX2XLA_KEEP_MEMORY=off", "MALLOC_TRIM_THRESHOLD_=131072"])
def test_the_environment_decides(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from relax2xla.vm.pjrt import allocator

    def never(name: object) -> None:
        raise AssertionError(f"asked {name}")

    monkeypatch.setattr(allocator.ctypes, "CDLL", never)
    monkeypatch.setenv(*variable.split("="))
    assert not allocator.keep_memory()
