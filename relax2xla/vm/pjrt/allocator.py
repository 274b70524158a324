"""Memory that stays with the process from call to call, and large pages of it.

XLA takes the results and the scratch memory of each call from ``malloc``. As it comes, glibc gives
what is large back to the system as soon as it is free, and the next call pays for every page again:
up to half the time of a training step, and 5 to 10 % of eight images at once (docs/benchmarks.md).
``RELAX2XLA_KEEP_MEMORY=0`` leaves glibc as it is, and so does any setting of the user's own for
these thresholds.

Each call reads all weights, and the processor looks up the address of each of their pages first:
in large pages programs take 0.9 to 0.99 of the time (docs/vm.md).
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Final

_VARIABLE: Final = "RELAX2XLA_KEEP_MEMORY"
_OFF: Final = ("0", "off", "false", "no")
# What users of glibc set themselves.
_THEIRS: Final = (
    *("MALLOC_ARENA_MAX", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_"),
    "MALLOC_TOP_PAD_",
)

# Options of mallopt (malloc.h), with bytes: blocks from this size on are mapped one by one, and
# this much may lie free at the end of the heap.
_OPTIONS: Final = ((-3, 256 << 20), (-1, 512 << 20))
# All threads have one heap: those of others hold 64 MiB and give back what is free, and programs
# run on threads of XLA's own. With many processors threads would wait for each other there.
_ONE_HEAP: Final = (-8, 1)
_FEW_PROCESSORS: Final = 8


def keep_memory() -> bool:
    """Ask the C library to keep up to 512 MiB that are free; whether it was asked, and agreed.

    Not asked: libraries other than glibc (without ``mallopt``), and where the environment says no.
    """
    if _is_off():
        return False
    tuned = "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", "")
    if tuned or any(name in os.environ for name in _THEIRS):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if os.name == "posix" else None
    few = (os.cpu_count() or 1) <= _FEW_PROCESSORS
    options = (*_OPTIONS, *((_ONE_HEAP,) if few else ()))
    return mallopt is not None and all([mallopt(*option) == 1 for option in options])


def _is_off() -> bool:
    return os.environ.get(_VARIABLE, "1").strip().lower() in _OFF


# What Linux says of large pages, and the advice of madvise (linux/mman.h) that makes some of what
# is there, at once and wherever they are allowed at all. Bytes that it is asked for at once.
_LARGE_PAGES: Final = Path("/sys/kernel/mm/transparent_hugepage")
_COLLAPSE: Final = 25
_AT_ONCE: Final = 64 << 20

#: Where an array is in memory, and its bytes.
Span = tuple[int, int]


def to_large_pages(spans: Iterable[Span]) -> threading.Thread | None:
    """Ask the system to put arrays into large pages, where they are; None: there is nothing to ask.

    What they hold and their addresses stay. A gigabyte takes one to three seconds, so a thread does
    it. Not asked: systems other than Linux, where large pages are off, and where
    ``RELAX2XLA_KEEP_MEMORY=0`` leaves memory as it is. Kernels before 6.1 know no such advice, and
    do nothing.
    """
    if _is_off():
        return None
    try:
        size = int((_LARGE_PAGES / "hpage_pmd_size").read_text())
        allowed = "[never]" not in (_LARGE_PAGES / "enabled").read_text()
    except (OSError, ValueError):
        return None
    if not allowed or size <= 0 or not (blocks := blocks_of(spans, size)):
        return None
    some = max(1, _AT_ONCE // size) * size
    parts = [(at, min(some, end - at)) for begin, end in blocks for at in range(begin, end, some)]
    # The program may end meanwhile, and what is freed meanwhile is the system's to refuse.
    thread = threading.Thread(target=_collapse, args=(parts,), name="large pages", daemon=True)
    try:
        thread.start()
    except RuntimeError:
        # The system gives no more threads, or the interpreter ends.
        return None
    return thread


def _collapse(parts: list[Span]) -> None:
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    for part in parts:
        madvise(*part, _COLLAPSE)


def blocks_of(spans: Iterable[Span], size: int) -> list[tuple[int, int]]:
    """Where blocks of ``size`` bytes begin and end that arrays fill by half or more, in order.

    Neighbours are one: the system moves many at once faster.
    """
    filled: dict[int, int] = {}
    for at, count in set(spans):
        for block in range(at // size, -(-(at + count) // size)):
            own = min(at + count, (block + 1) * size) - max(at, block * size)
            filled[block] = filled.get(block, 0) + own
    made: list[tuple[int, int]] = []
    for block in sorted(b for b, own in filled.items() if 2 * own >= size):
        begin = block * size
        if made and made[-1][1] == begin:
            begin = made.pop()[0]
        made.append((begin, (block + 1) * size))
    return made
