"""``relax2xla cache``: what the disk cache of compiled programs holds, and making it smaller."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

from relax2xla.budget import parse_size
from relax2xla.cli.process.console import note, out, print_json, size
from relax2xla.errors import TVMError
from relax2xla.vm.pjrt.cache import CacheEntry, from_environment


def run_cache(clear: bool, limit: str | None, as_json: bool, yes: bool) -> None:
    """Remove what is to go, then say what there is.

    On a terminal it says before what will be removed, and asks, unless ``yes``.
    """
    store = from_environment()
    if store is None:
        if as_json:
            print_json({"enabled": False})
        else:
            out("the cache is turned off (RELAX2XLA_CACHE=0)")
        return
    bound = None
    try:
        if limit is not None:
            bound = parse_size(limit)
    except ValueError as e:
        raise TVMError(f"--limit: {e}") from None
    removed = 0
    entries = store.entries()
    going = entries if clear else [] if bound is None else store.beyond(bound, entries)
    if yes or not going or _confirmed(going, len(entries)):
        if bound is not None:
            removed = store.trim(bound)
        if clear:
            removed += store.clear()
        entries = store.entries()
    total = sum(e.size for e in entries)
    if as_json:
        found = [{"key": e.key, "bytes": e.size, "used": e.used} for e in entries]
        described = {
            "enabled": True,
            "folder": str(store.folder),
            "limit": store.limit,
            "bytes": total,
            "removed": removed,
            "entries": found,
        }
        print_json(described)
        return
    if clear or limit is not None:
        out(f"removed   {_count(removed)}")
    out(f"folder    {store.folder}")
    out(f"holds     {_count(len(entries))}, {size(total)} of at most {size(store.limit)}")
    if entries:
        now = time.time()
        out(f"last use  {_age(now - entries[0].used)} ago (oldest: {_age(now - entries[-1].used)})")


def _confirmed(going: Sequence[CacheEntry], among: int) -> bool:
    """Whether the user agrees; without a terminal there is nobody to ask."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return True
    total = size(sum(e.size for e in going))
    unused = _age(time.time() - going[0].used)
    note(f"this removes {_count(len(going))} of {among}, {total}, none used in the last {unused}")
    sys.stderr.write("remove? [y/N] ")
    sys.stderr.flush()
    agreed = sys.stdin.readline().strip().lower() in ("y", "yes")
    if not agreed:
        note("nothing was removed")
    return agreed


def _count(number: int) -> str:
    return f"{number} program{'' if number == 1 else 's'}"


def _age(seconds: float) -> str:
    """A time span in the unit that reads best."""
    for name, length in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {name}"
    return f"{max(0.0, seconds):.0f} seconds"
