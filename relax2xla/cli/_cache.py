"""``relax2xla cache``: what the disk cache of compiled programs holds, and making it smaller."""

from __future__ import annotations

import json
import time

from relax2xla.budget import parse_size
from relax2xla.cli._console import out, size
from relax2xla.errors import TVMError
from relax2xla.vm.cache import from_environment


def run_cache(clear: bool, limit: str | None, as_json: bool) -> None:
    """Remove what is to go, then say what there is."""
    store = from_environment()
    if store is None:
        if as_json:
            out(json.dumps({"enabled": False}))
        else:
            out("the cache is turned off (RELAX2XLA_CACHE=0)")
        return
    removed = 0
    try:
        if limit is not None:
            removed = store.trim(parse_size(limit))
    except ValueError as e:
        raise TVMError(f"--limit: {e}") from None
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
        out(json.dumps(described, indent=2))
        return
    if clear or limit is not None:
        out(f"removed   {_count(removed)}")
    out(f"folder    {store.folder}")
    out(f"holds     {_count(len(entries))}, {size(total)} of at most {size(store.limit)}")
    if entries:
        now = time.time()
        out(f"last use  {_age(now - entries[0].used)} ago (oldest: {_age(now - entries[-1].used)})")


def _count(number: int) -> str:
    return f"{number} program{'' if number == 1 else 's'}"


def _age(seconds: float) -> str:
    """A time span in the unit that reads best."""
    for name, length in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {name}"
    return f"{max(0.0, seconds):.0f} seconds"
