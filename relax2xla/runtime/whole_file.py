"""Files that appear whole or not at all."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import socket
import time
from collections.abc import Generator
from pathlib import Path
from typing import BinaryIO, Final

# Files of other machines, and of older versions, whose writers cannot be asked for, are left over
# when nothing was written to them for so many seconds.
_STALE: Final = 24 * 3600


@contextlib.contextmanager
def whole_file(path: Path) -> Generator[BinaryIO]:
    """A file to write that takes the place of ``path`` when the block ends without an error.

    It lies beside ``path`` until then (a link stays a link). OSError, with the path, where the disk
    does not take it; nothing is left behind, and what was there before stays. What processes left
    that were killed while they wrote to ``path`` is removed.
    """
    target = path.resolve()
    name = f".{target.name[:_LONGEST]}."
    beside = target.with_name(f"{name}{_host()}-{os.getpid()}-{secrets.token_hex(4)}.tmp")
    _remove_left_over(target.parent, name)
    try:
        with beside.open("xb") as file:
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
