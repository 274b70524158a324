"""What the processor of this machine can do."""

from __future__ import annotations

import contextlib
import functools


@functools.cache
def features() -> frozenset[str]:
    """Names of the instruction sets, as Linux lists them ("avx2", "avx512f"); empty elsewhere."""
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            name, _, value = line.partition(":")
            if name.strip() in ("flags", "Features"):
                return frozenset(value.split())
    return frozenset()
