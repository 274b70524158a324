"""What ``--only`` chooses."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatch


def chosen(names: Iterable[str], patterns: Sequence[str] | None) -> list[str]:
    """The names that one of the patterns matches; without patterns all."""
    return [n for n in names if any(fnmatch(n, p) for p in patterns or ("*",))]
