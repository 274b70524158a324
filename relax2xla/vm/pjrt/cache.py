"""The disk cache of compiled programs, shared by all processes of a user.

On by default. ``RELAX2XLA_CACHE=0`` turns it off, ``RELAX2XLA_CACHE_DIR`` moves it,
``RELAX2XLA_CACHE_LIMIT`` (bytes, or such as ``512M``) bounds it; :func:`use` does the same for a
process. Whatever goes wrong here - a full disk, a folder that cannot be written, an entry with
flipped bytes, a process killed while it wrote - costs a compilation and never the user's program.

Compiled programs are machine code, so the folder must belong to the user alone: one that others
own or can write to is refused, at each use, as is one in a place where others could put another
folder in its place; entries are read only as plain files with the right checksum.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import logging
import os
import secrets
import stat
import sys
import threading
import time
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

log = logging.getLogger("relax2xla.vm")

DEFAULT_LIMIT: Final = 1 << 30
# An entry: the magic, a SHA-256 of its key and of all that follows, the length of the payload
# before and after compression, and the payload.
_MAGIC: Final = b"relax2xla cache 1\n"
_DIGEST: Final = 32
_HEADER: Final = len(_MAGIC) + _DIGEST + 16
_SUFFIX: Final = ".xla"
_TEMPORARY: Final = ".tmp-"
# Temporary files older than this were left by a process that was killed.
_STALE_SECONDS: Final = 3600
_OFF: Final = ("0", "off", "false", "no")


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """One file of the cache: ``used`` is the time of its last use, in seconds of the epoch."""

    key: str
    path: Path
    size: int
    used: float


class DiskCache:
    """Byte strings by key in one folder, at most ``limit`` bytes, the least recently used go first.

    One process exceeds the limit by less than 1/64, several that write at once by up to 1/8 each.

    :meth:`get` and :meth:`put` never raise for what a disk can do. ``hits``, ``misses`` and
    ``writes`` count what this process did. ``programs``: whether those of XLA are kept in it, too,
    which may have been compiled from another source, with its names.
    """

    def __init__(self, folder: Path, limit: int = DEFAULT_LIMIT, *, programs: bool = True) -> None:
        self.folder = folder
        self.limit = limit
        self.programs = programs
        self.hits = self.misses = self.writes = 0
        self._lock = threading.Lock()
        # What was wrong with the folder at the last use; said when it changes.
        self._problem = ""
        # Bytes that may be written before the folder is looked at again: a look costs as much as
        # there are files.
        self._room = -1

    def get(self, key: str) -> bytes | None:
        """The payload under ``key``; None where there is none that is whole."""
        if not self.usable():
            return None
        path = self.folder / (key + _SUFFIX)
        try:
            data = _read(path)
        except OSError:
            data = None
        payload = None if data is None else unpack(key, data)
        if payload is None:
            self.misses += 1
            if data is not None:
                log.info("the cache entry %s is damaged; compiling again", path)
                self.forget(key)
            return None
        self.hits += 1
        with contextlib.suppress(OSError):
            os.utime(path)
        return payload

    def put(self, key: str, payload: bytes) -> bool:
        """Store ``payload``; False where that could not be done, which is no error."""
        if not self.usable():
            return False
        data = pack(key, payload)
        if len(data) > self.limit:
            return False
        temporary = self.folder / f"{_TEMPORARY}{os.getpid()}-{secrets.token_hex(8)}"
        try:
            try:
                _write(temporary, data)
                temporary.replace(self.folder / (key + _SUFFIX))
            except BaseException:
                with contextlib.suppress(OSError):
                    temporary.unlink()
                raise
        except OSError as e:
            log.debug("nothing was written to the cache %s: %s", self.folder, e)
            return False
        self.writes += 1
        with self._lock:
            self._room -= len(data)
            if self._room < 0:
                self.trim()
        return True

    def forget(self, key: str) -> None:
        """Remove one entry, if it is there and can be removed."""
        with contextlib.suppress(OSError):
            (self.folder / (key + _SUFFIX)).unlink()

    def entries(self) -> list[CacheEntry]:
        """All entries, the most recently used first."""
        found = [
            CacheEntry(name.removesuffix(_SUFFIX), self.folder / name, info.st_size, info.st_mtime)
            for name, info in self._files()
            if name.endswith(_SUFFIX) and not name.startswith(_TEMPORARY)
        ]
        return sorted(found, key=lambda e: e.used, reverse=True)

    def clear(self) -> int:
        """Remove every entry; gives how many there were. Raises OSError where one cannot go."""
        entries = self.entries()
        for entry in entries:
            entry.path.unlink(missing_ok=True)
        self._remove_stale(0.0)
        return len(entries)

    def trim(self, limit: int | None = None) -> int:
        """Remove the least recently used entries beyond the limit; gives how many went."""
        entries = self.entries()
        removed = self.beyond(self.limit if limit is None else limit, entries)
        for entry in removed:
            self.forget(entry.key)
        kept = sum(e.size for e in entries) - sum(e.size for e in removed)
        self._remove_stale(_STALE_SECONDS)
        # Other processes write too, and a full cache is not looked at for every entry.
        self._room = min(max(self.limit - kept, self.limit // 64), self.limit // 8)
        return len(removed)

    @staticmethod
    def beyond(limit: int, entries: Sequence[CacheEntry]) -> list[CacheEntry]:
        """Those of ``entries``, the most recently used first, that :meth:`trim` removes."""
        totals = itertools.accumulate(e.size for e in entries)
        return [e for e, total in zip(entries, totals, strict=True) if total > limit]

    def usable(self) -> bool:
        """Whether the folder is there, is a folder, and is this user's alone, now."""
        problem = _prepare(self.folder)
        before, self._problem = self._problem, problem
        if problem and problem != before:
            log.warning("the cache of compiled programs is not used: %s", problem)
        return not problem

    def _files(self) -> Iterator[tuple[str, os.stat_result]]:
        """Plain files of the folder, by name."""
        try:
            with os.scandir(self.folder) as found:
                for item in found:
                    with contextlib.suppress(OSError):
                        info = item.stat(follow_symlinks=False)
                        if stat.S_ISREG(info.st_mode):
                            yield item.name, info
        except OSError:
            return

    def _remove_stale(self, age: float) -> None:
        """Remove what killed processes left."""
        now = time.time()
        for name, info in self._files():
            if name.startswith(_TEMPORARY) and now - info.st_mtime >= age:
                with contextlib.suppress(OSError):
                    (self.folder / name).unlink()


# -- entries ---------------------------------------------------------------------------------------
def pack(key: str, payload: bytes) -> bytes:
    """An entry as it lies on the disk."""
    body = zlib.compress(payload, 1)
    rest = len(payload).to_bytes(8, "little") + len(body).to_bytes(8, "little") + body
    return _MAGIC + hashlib.sha256(key.encode() + rest).digest() + rest


def unpack(key: str, data: bytes) -> bytes | None:
    """The payload of an entry; None unless every byte is what :func:`pack` wrote for ``key``."""
    if len(data) < _HEADER or not data.startswith(_MAGIC):
        return None
    rest = data[len(_MAGIC) + _DIGEST :]
    digest = hashlib.sha256(key.encode() + rest).digest()
    if data[len(_MAGIC) : len(_MAGIC) + _DIGEST] != digest:
        return None
    try:
        payload = zlib.decompress(rest[16:])
    except zlib.error:
        return None
    return payload if len(payload) == int.from_bytes(rest[:8], "little") else None


def key_of(*parts: bytes | str) -> str:
    """A key that differs wherever a part does."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


# -- files -----------------------------------------------------------------------------------------
def _read(path: Path) -> bytes | None:
    """A plain file of this user; None for anything else, links included."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    handle = os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
    with open(handle, "rb") as file:
        info = os.fstat(handle)
        if not stat.S_ISREG(info.st_mode) or not _is_mine(info):
            return None
        return file.read()


def _write(path: Path, data: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    with open(os.open(path, flags, 0o600), "wb") as file:
        file.write(data)


def _is_mine(info: os.stat_result) -> bool:
    return not hasattr(os, "geteuid") or info.st_uid == os.geteuid()


def _prepare(folder: Path) -> str:
    """Make the folder if it is missing; gives what is wrong with it, or nothing."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        info = folder.lstat()
    except OSError as e:
        return f"{folder}: {e.strerror}"
    if stat.S_ISLNK(info.st_mode):
        return f"{folder} is a link; name the folder itself"
    if not stat.S_ISDIR(info.st_mode):
        return f"{folder} is no folder"
    if not _is_mine(info):
        return f"{folder} belongs to another user"
    if not hasattr(os, "geteuid"):
        return ""
    if info.st_mode & 0o022:
        return (
            f"others can write to {folder}; remove it, or chmod 700 it if you trust what is in it"
        )
    open_to_all = next((p for p in folder.resolve().parents if _anyone_may_rename_in(p)), None)
    if open_to_all is not None:
        return (
            f"anyone can write to {open_to_all}, and so put another folder in the place of "
            f"{folder}; chmod o-w it, or name another place with RELAX2XLA_CACHE_DIR"
        )
    if info.st_mode & 0o077:
        with contextlib.suppress(OSError):
            folder.chmod(0o700)
    return ""


def _anyone_may_rename_in(folder: Path) -> bool:
    """Whether others may move what lies in ``folder``; in /tmp, which is sticky, they may not."""
    try:
        mode = folder.stat().st_mode
    except OSError:
        return False
    return bool(mode & stat.S_IWOTH) and not mode & stat.S_ISVTX


# -- the cache of this process ---------------------------------------------------------------------
def default_folder() -> Path:
    """Where compiled programs are kept: ``RELAX2XLA_CACHE_DIR``, or the platform's cache folder.

    RuntimeError where the user has no home.
    """
    named = os.environ.get("RELAX2XLA_CACHE_DIR")
    if named:
        return Path(named).expanduser() / "compiled"
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        found = os.environ.get("XDG_CACHE_HOME", "")
        base = Path(found) if os.path.isabs(found) else Path.home() / ".cache"
    return base / "relax2xla" / "compiled"


def from_environment() -> DiskCache | None:
    """The cache that the environment asks for; None where it is turned off."""
    if os.environ.get("RELAX2XLA_CACHE", "1").strip().lower() in _OFF:
        return None
    from relax2xla.budget import parse_size  # here: the rest of this file needs Python alone

    try:
        limit = parse_size(os.environ.get("RELAX2XLA_CACHE_LIMIT") or str(DEFAULT_LIMIT))
        return DiskCache(default_folder(), limit)
    except (ValueError, RuntimeError) as e:
        log.warning("the cache of compiled programs is not used: %s", e)
        return None


_current: list[DiskCache | None] = []


def current() -> DiskCache | None:
    """The cache that this process uses; None where it is turned off."""
    if not _current:
        _current.append(from_environment())
    return _current[0]


def use(cache: DiskCache | Path | str | None) -> DiskCache | None:
    """Use ``cache`` (or one in the folder that is named) from now on; None turns it off.

    Gives what was used before, so that it can be put back.
    """
    before = current()
    made = DiskCache(Path(cache)) if isinstance(cache, Path | str) else cache
    _current[:] = [made]
    return before
