"""The machine's C++ compiler: found, and called for external modules."""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from relax2xla.errors import CompilerError

#: The headers that external modules are compiled with.
INCLUDE: Final = Path(__file__).parent / "include"
#: Compilers of C++, the first that there is counts.
COMPILERS: Final = ("c++", "g++", "clang++")
# Of what a compiler prints; an error in a template can fill many pages.
_LONGEST: Final = 8000


def find_compiler(given: str | None = None) -> list[str]:
    """The command of the compiler: ``given``, or that of CXX, or the first of COMPILERS, or Zig's.

    Zig's is that of the package ``ziglang``, where it is installed. A command may have options, as
    in ``CXX="ccache g++"``. Raises CompilerError where it is not there.
    """
    wanted = given or os.environ.get("CXX")
    if wanted:
        command = [wanted] if shutil.which(wanted) else shlex.split(wanted)
        if command and shutil.which(command[0]):
            return command
        source = "compiler=" if given else "the environment variable CXX"
        raise CompilerError(f"{source} names the compiler {wanted!r}, which is not on the PATH")
    for name in COMPILERS:
        if shutil.which(name):
            return [name]
    if importlib.util.find_spec("ziglang") is not None:
        return [sys.executable, "-m", "ziglang", "c++"]
    raise CompilerError(
        f"no C++ compiler is on the PATH (looked for {', '.join(COMPILERS)}); install one, such as "
        "g++, or the Python package ziglang (pip install ziglang), or set the "
        "environment variable CXX to its path"
    )


def has_compiler() -> bool:
    """Whether this machine has a C++ compiler."""
    try:
        return bool(find_compiler())
    except CompilerError:
        return False


def run_compiler(command: Sequence[str], what: str) -> None:
    """Run a compiler; CompilerError with its output where it fails."""
    try:
        done = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
    except OSError as e:
        raise CompilerError(f"{what}: {command[0]} does not run: {e}") from None
    if done.returncode != 0:
        printed = done.stdout.strip()
        if len(printed) > _LONGEST:
            printed = f"{printed[:_LONGEST]}\n... ({len(printed) - _LONGEST} more characters)"
        raise CompilerError(f"{what}\ncommand: {shlex.join(command)}\n{printed}")
