"""Files that appear whole or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Generator
from pathlib import Path
from typing import BinaryIO


@contextlib.contextmanager
def whole_file(path: Path) -> Generator[BinaryIO]:
    """A file to write that takes the place of ``path`` when the block ends without an error.

    It lies beside ``path`` until then (a link stays a link). OSError, with the path, where the disk
    does not take it; nothing is left behind, and what was there before stays.
    """
    target = path.resolve()
    beside = target.with_name(f".{target.name[:200]}.{secrets.token_hex(4)}.tmp")
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
