"""``relax2xla inspect model.onnx --support``: what is missing, without converting the model."""

from __future__ import annotations

from pathlib import Path

from relax2xla.cli.process.console import out, print_json, status
from relax2xla.errors import TVMError
from relax2xla.importers.files import check_package, checked_format, reading


def run_support(file: Path, as_json: bool) -> int:
    """Print what ``file`` needs and what of it is missing; gives the exit status, 0 or 1."""
    kind = checked_format(file)
    if kind.name != "onnx":
        raise TVMError(f"--support is for .onnx models; {file} is {kind.title}")
    check_package(kind)
    with status(f"reading {file.name}"), reading(file):
        from relax2xla.importers.onnx import support

        found = support(file)
    if as_json:
        print_json({"file": str(file), **found.as_dict()})
    else:
        out(f"{file}: {found.as_text()}")
    return 0 if found.complete else 1
