"""Memory that stays with the process from call to call.

XLA takes the results and the scratch memory of each call from ``malloc``. As it comes, glibc gives
what is large back to the system as soon as it is free, and the next call pays for every page again:
up to half the time of a training step, and 5 to 10 % of eight images at once (docs/benchmarks.md).
``RELAX2XLA_KEEP_MEMORY=0`` leaves glibc as it is, and so does any setting of the user's own for
these thresholds.
"""

from __future__ import annotations

import ctypes
import os
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
    if os.environ.get(_VARIABLE, "1").strip().lower() in _OFF:
        return False
    tuned = "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", "")
    if tuned or any(name in os.environ for name in _THEIRS):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if os.name == "posix" else None
    few = (os.cpu_count() or 1) <= _FEW_PROCESSORS
    options = (*_OPTIONS, *((_ONE_HEAP,) if few else ()))
    return mallopt is not None and all([mallopt(*option) == 1 for option in options])
