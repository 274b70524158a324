"""The command line: ``relax2xla inspect | convert | run | compile | ... FILE``.

Starting it loads neither jax, torch nor onnx: each command imports what it needs when it runs.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Callable, Sequence

from relax2xla.cli.process.signals import signals
from relax2xla.cli.process.supervise import supervised

# What shells have for a program that SIGPIPE ended, as most of those before a pipe are.
FAILED, PIPE_CLOSED = 2, 141
# Options of every command, which are taken behind its name, too.
_ANYWHERE = frozenset({"-q", "--quiet", "-v", "-vv", "--verbose"})
# Options whose argument, the name of a shell, may be left out.
_OF_A_SHELL = frozenset({"--install-completion", "--show-completion"})


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; gives the exit status (0, 1 for a mismatch, 2 for an error).

    Errors are one message on standard error. ``--debug``, anywhere among the arguments, shows the
    traceback as well; ``-v`` and ``-q`` may stand anywhere, too. Without ``arguments`` it is the
    process's own command, and a child process runs it (:mod:`relax2xla.cli.process.supervise`).
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in words
    words = _in_front([w for w in words if w != "--debug"])
    if arguments is None:
        _open_closed_streams()
        return supervised(lambda: _main(words, debug), debug)
    return _main(words, debug)


def _open_closed_streams() -> None:
    """Standard streams that the caller closed lead nowhere.

    Python has None for them, and the next file that is opened would get their descriptor.
    """
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            stream = open(os.devnull, mode)  # noqa: SIM115 (for as long as the process lives)
            setattr(sys, name, stream)
            with contextlib.suppress(OSError):
                os.fstat(number)  # someone has it by now
                continue
            os.dup2(stream.fileno(), number)


def _in_front(words: Sequence[str]) -> list[str]:
    """``words`` with those of ``_ANYWHERE`` first; what follows ``--`` stays."""
    end = words.index("--") if "--" in words else len(words)
    if words and words[-1] in _OF_A_SHELL:
        return [*words, "found"]
    moved = [w for w in words[:end] if w in _ANYWHERE]
    return [*moved, *(w for w in words[:end] if w not in _ANYWHERE), *words[end:]]


def _main(words: Sequence[str], debug: bool) -> int:
    try:
        with signals():
            from relax2xla.cli.app import app
            from relax2xla.cli.process import completion
            from relax2xla.cli.process.console import standard_output

            completion.prepare()
            with standard_output():
                status = _status_of(lambda: app(args=words, prog_name="relax2xla"))
            sys.stdout.flush()
            return status
    except BrokenPipeError:
        # The reader has gone; what is still buffered goes nowhere, and without a message.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED
    except Exception as e:
        if debug:
            import traceback

            traceback.print_exc()
        sys.stderr.write(f"relax2xla: {_message(e)}\n")
        return FAILED


def _status_of(run: Callable[[], object]) -> int:
    try:
        run()
    except SystemExit as e:
        if isinstance(e.__context__, BrokenPipeError):  # which click takes for an error
            raise e.__context__ from None
        return e.code if isinstance(e.code, int) else FAILED if e.code else 0
    return 0


def _message(error: Exception) -> str:
    """The text of an error for someone who does not read tracebacks; no line is endless."""
    from relax2xla.cli.process.console import said

    return "\n".join(_clipped(line) for line in said(_full_message(error)).split("\n"))


def _clipped(line: str, most: int = 600) -> str:
    return line if len(line) <= most else f"{line[:most]} ... ({len(line)} characters)"


# What writing says where the device takes no more.
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})


def _full_message(error: Exception) -> str:
    from relax2xla.errors import TVMError

    notes = "".join(f"\n{n}" for n in getattr(error, "__notes__", ()))
    if isinstance(error, TVMError):
        return f"error: {error}{notes}"
    if isinstance(error, MemoryError):
        return "error: not enough memory"
    if isinstance(error, RecursionError):
        return f"error: the program is nested too deep for this command{notes}"
    if type(error).__name__ == "JaxRuntimeError":  # where no one took it for what it is
        return f"error: XLA: {error}{notes}"
    if isinstance(error, OSError) and error.filename is not None:
        return f"error: {error.filename}: {error.strerror}"
    if isinstance(error, OSError) and error.errno in _FULL:
        # Standard output, for one: what is written in parts has no name here.
        return f"error: the output cannot be written: {error.strerror}{notes}"
    if isinstance(error, ModuleNotFoundError) and error.name:
        return f"error: the package {error.name} is not installed; pip install {error.name}"
    first = (str(error).strip() or "no message").splitlines()[0][:500]
    return (
        f"error: {type(error).__name__}: {first}{notes}\n"
        "This is not an error that relax2xla expects; --debug shows where it comes from."
    )
