"""Completion of commands, options and files in shells: its scripts, printed or installed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

from typer import completion as _typers

from relax2xla.errors import TVMError

SHELLS: Final = ("bash", "zsh", "fish", "powershell", "pwsh")
# What typer's own options call; it is not among the names that it exports.
completion: Any = _typers
#: In place of a shell's name: the one that this process was started from.
FOUND: Final = "found"
_NAME: Final = "relax2xla"
#: The scripts set it, and ask by it.
VARIABLE: Final = "_RELAX2XLA_COMPLETE"


def prepare() -> None:
    """Let typer answer what the scripts ask; it does so by itself where it has the options."""
    if VARIABLE in os.environ:
        completion.completion_init()


def script(shell: str) -> str:
    """What makes ``shell`` complete, to be run as it starts."""
    return completion.get_completion_script(
        prog_name=_NAME, complete_var=VARIABLE, shell=_checked(shell)
    )


def install(shell: str) -> tuple[str, Path]:
    """Write that where ``shell`` reads it as it starts; gives its name, and the file."""
    return completion.install(_checked(shell), _NAME, VARIABLE)


def _checked(shell: str) -> str:
    """``shell``, or the one that is found; TVMError for one that nothing is known of."""
    if shell != FOUND:
        if shell not in SHELLS:
            raise TVMError(f"the shell {shell}: expected one of {', '.join(SHELLS)}")
        return shell
    try:
        import shellingham

        name = str(shellingham.detect_shell()[0])
    except (ImportError, RuntimeError):
        name = ""
    if name not in SHELLS:
        found = f"this was started from {name}" if name else "no shell was found around this"
        raise TVMError(f"{found}; give its name: one of {', '.join(SHELLS)}")
    return name
