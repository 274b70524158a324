"""This project's own C++, compiled for this machine: once, and taken from the disk cache then."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from relax2xla import processor
from relax2xla.runtime.compiler import INCLUDE, find_compiler, run_compiler
from relax2xla.vm.pjrt import cache

#: The room of the sources.
HOME: Final = INCLUDE / "relax2xla"
_OPTIONS: Final = ("-shared", "-fPIC", "-std=c++17")


def shared_library(source: str, options: Sequence[str], what: str, beside: str = "") -> bytes:
    """The bytes of the shared library of a file of :data:`HOME`.

    beside: what else it depends on, such as the version of headers of others. ``what`` begins the
    message of a CompilerError, where there is no compiler or it fails.
    """
    compiler = find_compiler()
    command = [*compiler, *_OPTIONS, *options, "-I", str(INCLUDE)]
    headers = sorted(p for p in INCLUDE.rglob("*") if p.suffix == ".h")
    content = b"\n".join(p.read_bytes() for p in (HOME / source, *headers))
    circumstances = [processor.machine(), *compiler, _version(compiler), *options, beside]
    store = cache.current()
    key = cache.key_of(source, content, "\n".join(circumstances))
    kept = None if store is None else store.get(key)
    if kept is not None:
        return kept
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        made = Path(folder) / "library.so"
        run_compiler([*command, str(HOME / source), "-o", str(made)], what)
        code = made.read_bytes()
    if store is not None:
        store.put(key, code)
    return code


def _version(compiler: list[str]) -> str:
    """What the compiler says of itself, so that a newer one compiles again."""
    try:
        done = subprocess.run(
            [*compiler, "--version"], capture_output=True, text=True, check=False, timeout=60
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout
