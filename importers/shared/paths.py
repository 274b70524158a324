"""Files that a program names: only inside of its own folder, and never through links (D12)."""

from __future__ import annotations

from pathlib import Path, PurePosixPath, PureWindowsPath

from relax2xla.errors import FileFormatError


def inside(directory: Path, location: str, what: str) -> Path:
    """The path of a location inside ``directory``; refuses links and everything that leads out."""
    pure = PurePosixPath(location)
    parts = pure.parts
    if (
        not parts
        or "\0" in location
        or "\\" in location
        or pure.is_absolute()
        or PureWindowsPath(location).drive
        or ".." in parts
    ):
        raise FileFormatError(
            f"{what} names the external data {location!r}; it must be a relative path inside the "
            "model's directory"
        )
    path = directory
    for part in parts:
        path = path / part
        if path.is_symlink():
            raise FileFormatError(
                f"{what}: the external data {location!r} is reached through a link ({part}), which "
                "is never followed. Copy the file beside the model"
            )
    return path
