"""How large a program may be before anything is allocated or compiled for it.

XLA and numpy answer sizes beyond all memory, or beyond 64 bits, by ending the process or by errors
that name nothing; so sizes are compared with a budget first. It is generous: a value that XLA never
holds as a whole may be larger than the machine's memory, what a compiled program does hold may not.
``RELAX2XLA_MEMORY_LIMIT`` (bytes, or such as ``512G``) sets both, and :func:`use` does so for a
process.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable
from typing import Any, Final

from relax2xla.dtypes import DTYPES
from relax2xla.errors import BudgetError

# Sizes and offsets in bytes are 64-bit integers in XLA.
MOST: Final = 2**63 - 1
# Of the machine's memory.
_TIMES: Final = 4
_VARIABLE: Final = "RELAX2XLA_MEMORY_LIMIT"
# The end of messages.
RAISE: Final = f'If that is meant, raise it: {_VARIABLE}=4T, or relax2xla.budget.use("4T")'
_UNITS: Final = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_used: list[int] = []


def memory() -> int:
    """Bytes that one value may take. ValueError where the environment's limit is no size."""
    stated = _stated()
    return min(_TIMES * physical_memory() or MOST, MOST) if stated is None else stated


def held() -> int:
    """Bytes that a compiled program may hold at once: no more than there are, unless so stated."""
    stated = _stated()
    return physical_memory() or MOST if stated is None else stated


def _stated() -> int | None:
    if _used:
        return _used[0]
    named = os.environ.get(_VARIABLE)
    return min(parse_size(named), MOST) if named else None


def size_text(count: float) -> str:
    """Bytes in the unit that reads best: 97.5 MiB."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"


def weights_text(count: int, size: int) -> str:
    """How every message counts weights: 5 weights, 97.5 MiB."""
    return f"{count:,} weight{'' if count == 1 else 's'}, {size_text(size)}"


def use(limit: int | str | None) -> int | None:
    """Use ``limit`` (bytes, or such as "512G") from now on; None is the default again.

    Gives what was used before, so that it can be put back. ValueError for what is no size.
    """
    before = _used[0] if _used else None
    made = parse_size(limit) if isinstance(limit, str) else limit
    if made is not None and made < 0:
        raise ValueError(f"a limit must not be negative; got {limit}")
    _used[:] = [] if made is None else [min(made, MOST)]
    return before


def check(dims: Iterable[Any], dtype: str, what: str) -> None:
    """BudgetError where a tensor, which ``what`` names, is beyond the budget.

    Sizes that are no plain integers are those of a call, and are checked when they are known.
    """
    known = [d for d in dims if isinstance(d, int)]
    count = math.prod(known)
    row = DTYPES.get(dtype)
    size = count * (row.nbytes if row is not None else 1)
    if size <= memory():
        return
    shape = "x".join(map(str, known))
    raise BudgetError(
        f"{what} of shape {shape} and dtype {dtype or 'unknown'} takes {show(size)}; the limit is "
        f"{show(memory())}. {RAISE}"
    )


def check_on_host(size: int, what: str) -> None:
    """BudgetError where Python would hold more bytes than a sixteenth of memory, for ``what``.

    Such a value is there as a whole, beside those that it is made of.
    """
    limit = memory() // (16 * _TIMES)
    if size > limit:
        raise BudgetError(f"{what}: {show(size)}; the limit is {show(limit)}. {RAISE}")


def show(size: float) -> str:
    """Bytes for people."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}"
        size /= 1024
    return f"{size:.4g} TiB"


def parse_size(text: str) -> int:
    """Bytes of "1048576", "512M" or "2G"; ValueError for anything else."""
    match = re.fullmatch(r"\s*(\d+)\s*([KMGT]?)(i?B)?\s*", text, re.IGNORECASE)
    if match is None:
        raise ValueError(f"{text!r} is no size; write bytes, or a number with K, M, G or T")
    return int(match[1]) * _UNITS[match[2].upper()]


def physical_memory() -> int:
    """Bytes of memory in this machine, 0 where the system does not say."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 0
