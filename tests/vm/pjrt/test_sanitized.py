"""The functions in C++ write and read their own memory alone, whatever processor they are for.

A processor has vectors of its size: what is right with those of one may write behind its memory
with those of another, which the tests of values see on that one alone, if at all.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from relax2xla import processor
from relax2xla.runtime.compiler import find_compiler, has_compiler

ROOT = Path(__file__).parents[3]


def libraries() -> str:
    """What is loaded before all else: the sanitizer's and that of C++, which it looks into."""
    found: list[str] = []
    for name in ("libasan.so", "libstdc++.so.6"):
        command = [*find_compiler(), f"-print-file-name={name}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        path = Path(done.stdout.strip())
        if not path.is_absolute() or not path.exists():
            pytest.skip(f"the compiler has no {name}")
        found.append(str(path.resolve()))
    return ":".join(found)


@pytest.mark.skipif(sys.platform != "linux" or not has_compiler(), reason="needs GCC on Linux")
@pytest.mark.parametrize("kind", ["haswell", "skylake-avx512"])
def test_no_call_leaves_its_memory(kind: str) -> None:
    needed = {"haswell": {"avx2", "fma"}, "skylake-avx512": {"avx512f", "avx512vl"}}[kind]
    if not needed <= processor.features():
        pytest.skip(f"this processor does not run code for {kind}")
    environment = {
        **os.environ,
        "LD_PRELOAD": libraries(),
        "ASAN_OPTIONS": "detect_leaks=0",
        "PYTHONPATH": str(ROOT),
    }
    command = [sys.executable, "-m", "tests.vm.pjrt.sanitized_programs", kind]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=500
    )
    assert done.returncode == 0, done.stderr[-4000:]
    calls = dict(line.split() for line in done.stdout.splitlines())
    families = "products recurrences depthwise attention norms squeezes gradients transposes"
    assert list(calls) == [*families.split(), "slices", "moments", "integers"]
    assert "0" not in calls.values()
