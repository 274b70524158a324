"""``tvm.contrib.utils``: folders for files of a test or a program."""

from __future__ import annotations

import tempfile
from pathlib import Path


class TempDirectory:
    """A folder that is gone with the object."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self.path = self.temp_dir = self._folder.name

    def relpath(self, name: str) -> str:
        """The path of a file in it."""
        return str(Path(self.path) / name)

    def listdir(self) -> list[str]:
        """The names of the files in it."""
        return sorted(p.name for p in Path(self.path).iterdir())

    def remove(self) -> None:
        """Remove it now."""
        self._folder.cleanup()


def tempdir() -> TempDirectory:
    """A new folder."""
    return TempDirectory()
