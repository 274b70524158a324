"""What is freed between calls stays with the process, unless the environment says otherwise."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

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


SIZE = 2 << 20


def _no_thread(thread: object) -> None:
    raise RuntimeError("can't start new thread")


@given(
    st.lists(st.tuples(st.integers(0, 8 * SIZE), st.integers(0, 3 * SIZE)), min_size=1, max_size=12)
)
def test_blocks_are_those_that_arrays_fill_by_half(spans: list[tuple[int, int]]) -> None:
    from relax2xla.vm.pjrt.allocator import blocks_of

    # Arrays of a process do not overlap.
    apart, end = list[tuple[int, int]](), 0
    for gap, count in spans:
        apart.append((end + gap, count))
        end += gap + count
    filled = Counter[int]()
    for at, count in apart:
        for block in range(at // SIZE, (at + count) // SIZE + 1):
            filled[block] += max(0, min(at + count, (block + 1) * SIZE) - max(at, block * SIZE))
    found = blocks_of([*apart, apart[0]], SIZE)
    wanted = {block for block, count in filled.items() if 2 * count >= SIZE}
    assert {n for begin, end in found for n in range(begin // SIZE, end // SIZE)} == wanted
    assert all(b % SIZE == e % SIZE == 0 and b < e for b, e in found)
    # Neighbours are one.
    assert all(e < b for (_, e), (b, _) in pairwise(found))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="large pages of Linux")
def test_arrays_in_large_pages_are_where_and_what_they_were(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from relax2xla.vm.pjrt import allocator

    arrays = [np.random.default_rng(n).standard_normal(1 << 18) for n in range(16)]
    spans = [(a.ctypes.data, a.nbytes) for a in arrays]
    copies = [a.copy() for a in arrays]
    monkeypatch.setenv("RELAX2XLA_KEEP_MEMORY", "0")
    assert allocator.to_large_pages(spans) is None
    monkeypatch.delenv("RELAX2XLA_KEEP_MEMORY")
    # What fills no block is not asked for.
    assert allocator.to_large_pages([(spans[0][0], 1 << 16)]) is None
    # Calls go on where there are no threads.
    with monkeypatch.context() as patch:
        patch.setattr(allocator.threading.Thread, "start", _no_thread)
        assert allocator.to_large_pages(spans) is None
    # Memory that is not there is left alone.
    thread = allocator.to_large_pages([*spans, (1 << 46, 4 * SIZE)])
    if thread is None:
        pytest.skip("this system has no large pages")
    thread.join()
    assert [(a.ctypes.data, a.nbytes) for a in arrays] == spans
    for a, b in zip(arrays, copies, strict=True):
        np.testing.assert_array_equal(a, b)
