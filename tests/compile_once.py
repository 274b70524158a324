"""A C++ compiler that makes each of the library's own functions once a session, for all processes.

``tests/conftest.py`` puts it on the PATH, under the names of compilers, before the real ones. Tests
run without the disk cache, so each of their processes would compile the same sources anew, which
takes longer than most tests. A library counts as the same where the command, the compiler and
every file beside its source are; any other command is the real compiler's.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

INCLUDE = Path(__file__).resolve().parents[1] / "relax2xla" / "runtime" / "include"
NAMES = ("c++", "g++", "clang++")
#: What the environment tells compilers, beside their commands.
SETTINGS = ("CPATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH", "GCC_EXEC_PREFIX", "COMPILER_PATH")


def install(folder: Path, environment: Mapping[str, str]) -> str:
    """The PATH with this file in front, under the names of those compilers that are there."""
    path = environment.get("PATH", os.defpath)
    for name in NAMES:
        real = shutil.which(name, path=path)
        if real is not None:
            made = folder / name
            made.write_text(f'#!/bin/sh\nexec "{sys.executable}" -IS "{__file__}" "{real}" "$@"\n')
            made.chmod(made.stat().st_mode | stat.S_IXUSR)
    return f"{folder}{os.pathsep}{path}"


def key(real: str, options: Sequence[str]) -> str | None:
    """What a library depends on; None for a command that makes none of the library's sources."""
    sources = [Path(o).resolve() for o in options if o.endswith((".cpp", ".cc"))]
    if "-shared" not in options or len(sources) != 1 or INCLUDE not in sources[0].parents:
        return None
    digest = hashlib.sha256()
    version = subprocess.run([real, "--version"], capture_output=True, check=False).stdout
    settings = [f"{name}={os.environ.get(name, '')}" for name in SETTINGS]
    for part in (real, *options, *settings):
        digest.update(f"{part}\n".encode())
    digest.update(version)
    for file in sorted(p for p in INCLUDE.rglob("*") if p.is_file()):
        digest.update(f"{file} {file.stat().st_size}\n".encode() + file.read_bytes())
    return digest.hexdigest()


def main(home: Path, real: str, options: list[str]) -> int:
    """Compile, or copy what another process compiled; gives the compiler's exit code."""
    at = options.index("-o") if "-o" in options[:-1] else len(options)
    named = key(real, options[:at] + options[at + 2 :]) if at < len(options) else None
    if named is None:
        os.execv(real, [real, *options])
    kept, target = home / f"{named}.so", options[at + 1]
    with open(home / f"{named}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another process may be at it
        if not kept.exists():
            code = subprocess.run([real, *options], check=False).returncode
            # What fails, or prints, is compiled anew each time, and says so each time.
            if code == 0:
                shutil.copyfile(target, f"{kept}.tmp")
                os.replace(f"{kept}.tmp", kept)
            return code
    shutil.copyfile(kept, target)
    return 0


if __name__ == "__main__":
    # The script under a compiler's name lies in the folder of the session.
    home = os.environ.get("RELAX2XLA_TESTS_COMPILED")
    real, *rest = sys.argv[1:]
    if home is None or not Path(home).is_dir():
        os.execv(real, [real, *rest])
    sys.exit(main(Path(home), real, rest))
