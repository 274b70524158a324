"""Files that appear whole or not at all, and streams, which cannot."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import socket
import stat
import sys
import time
from collections.abc import Generator
from pathlib import Path
from typing import BinaryIO, Final

# Files of other machines, and of older versions, whose writers cannot be asked for, are left over
# when nothing was written to them for so many seconds.
_STALE: Final = 24 * 3600


# What is being written, under its other name.
_begun: set[Path] = set()


def abandon() -> None:
    """Remove what is being written; for another thread, which then ends the process."""
    for path in tuple(_begun):
        with contextlib.suppress(OSError):
            path.unlink()


@contextlib.contextmanager
def whole_file(path: Path) -> Generator[BinaryIO]:
    """A file to write that takes the place of ``path`` when the block ends without an error.

    It lies beside ``path`` until then (a link stays a link), and has the permissions of the file
    that it replaces. OSError, with the path, where the disk does not take it; nothing is left
    behind, and what was there before stays. What processes left that were killed while they wrote
    to ``path`` is removed. A stream (:func:`is_stream`) is written to as it is.
    """
    if is_stream(path):
        with _opened(path) as stream:
            yield stream
        return
    target = path.resolve()
    name = f".{target.name[:_LONGEST]}."
    beside = target.with_name(f"{name}{_host()}-{os.getpid()}-{secrets.token_hex(4)}.tmp")
    _remove_left_over(target.parent, name)
    try:
        with beside.open("xb") as file:
            _begun.add(beside)
            if os.name == "posix" and target.exists():
                os.fchmod(file.fileno(), stat.S_IMODE(target.stat().st_mode))
            yield file
            file.flush()
            os.fsync(file.fileno())
        beside.replace(target)
    except OSError as e:
        # What a write raises names no file, and ours is not what the user named.
        if e.errno is None or e.filename not in (None, str(beside)):
            raise
        raise OSError(e.errno, e.strerror, str(path)) from e
    finally:
        beside.unlink(missing_ok=True)
        _begun.discard(beside)


def is_stream(path: Path) -> bool:
    """Whether ``path`` is a device, a pipe, or an open file of this process such as /dev/stdout.

    What stands behind the last may be a file of the user's, which is not ours to replace.
    """
    if descriptor(path) is not None:
        return True
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        return False
    return stat.S_ISCHR(mode) or stat.S_ISFIFO(mode)


# As many links as systems follow.
_LINKS: Final = 40


def descriptor(path: Path) -> int | None:
    """The open file of this process that ``path`` names, itself or by links."""
    for _ in range(_LINKS):
        path = Path(os.path.abspath(path))
        folders = ("/dev/fd", "/proc/self/fd", f"/proc/{os.getpid()}/fd")
        if path.name.isdecimal() and str(path.parent) in folders:
            return int(path.name)
        try:
            path = path.parent / os.readlink(path)
        except (OSError, ValueError):
            return None
    return None


def _opened(path: Path) -> BinaryIO:
    number = descriptor(path)
    if number is None:
        return path.open("wb")
    # What was printed before comes before it.
    for text in (sys.stdout, sys.stderr):
        if text is not None:
            text.flush()
    return os.fdopen(os.dup(number), "wb")


# Of a name, so that the whole fits into 255 bytes whatever its letters take.
_LONGEST: Final = 50


def _host() -> str:
    """This machine as part of a name."""
    return re.sub(r"[^A-Za-z0-9]", "", socket.gethostname())[:16] or "host"


def _remove_left_over(folder: Path, name: str) -> None:
    """Remove the temporary files of writers that are gone; what cannot be removed stays."""
    pattern = re.compile(re.escape(name) + r"(?:([A-Za-z0-9]+)-(\d+)-)?[0-9a-f]{8}\.tmp")
    with contextlib.suppress(OSError), os.scandir(folder) as found:
        for item in found:
            match = pattern.fullmatch(item.name)
            if match is None or not item.is_file(follow_symlinks=False):
                continue
            if match[1] == _host():
                gone = not _is_running(int(match[2]))
            else:
                gone = time.time() - item.stat(follow_symlinks=False).st_mtime > _STALE
            if gone:
                with contextlib.suppress(OSError):
                    os.unlink(item.path)


def _is_running(process: int) -> bool:
    """Whether a process of this number may run; where that cannot be said, it may."""
    if os.name != "posix":
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True
