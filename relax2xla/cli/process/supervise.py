"""The command in a child process: what ends it there is one message here, and exit status 2.

MLIR, XLA and the frameworks that importers use answer some programs by ending their process. No
check beforehand finds every such program, so the process that the user started only waits. The
child is forked before anything is loaded, which costs about a millisecond; it has the same terminal
and the same standard streams. What native code writes to descriptor 2 is kept until the child ends:
its last lines tell why it died.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Generator
from types import FrameType
from typing import Final

from relax2xla.cli.process.signals import NUMBERS, handled, signal_name

FAILED: Final = 2
# Words of the lines that libraries write when they end their process.
_TELLING: Final = ("Assertion", "LLVM ERROR", "Check failed", "bad_alloc", "terminate called")
_HINTS: Final = {
    "SIGKILL": "the system may have run out of memory",
    "SIGSEGV": "the program may be nested too deep, or ask for what a library cannot do",
}


def supervised(command: Callable[[], int], debug: bool = False) -> int:
    """The exit status of ``command``, which runs in a child process where the system can fork.

    Where the child is ended from outside or by native code, one message says how, and the status
    is 2. Signals that mean the command reach it; its parent's death ends it. ``debug``: all that
    native code wrote is shown with the message.
    """
    if not hasattr(os, "fork"):
        return command()
    children: list[int] = []
    # What the child writes when it is done, and what tells it that its parent is gone.
    done, finish = os.pipe()
    alive, live = os.pipe()
    said = _nameless_file()
    with _passed_on(children):
        before = signal.pthread_sigmask(signal.SIG_BLOCK, NUMBERS)
        try:
            child = os.fork()
            if child:
                children.append(child)
            else:
                _leave_at_signals()
        except OSError:  # no more processes: better unwatched than not at all
            return command()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if child:
            for end in (finish, alive):
                os.close(end)
            _, result = os.waitpid(child, 0)
            return _status(os.waitstatus_to_exitcode(result), _has_byte(done), said, debug)
    for end in (done, live):
        os.close(end)
    _leave_at_signals()
    threading.Thread(target=_end_with_parent, args=(alive,), daemon=True).start()
    _keep_native_output(said)
    status = command()
    os.write(finish, b".")
    return status


@contextlib.contextmanager
def _passed_on(children: list[int]) -> Generator[None]:
    """Signals that mean the command go to ``children``; a child leaves the block as it came."""

    def pass_on(number: int, frame: FrameType | None) -> None:
        for child in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, number)

    with handled(pass_on):
        yield


def _leave_at_signals() -> None:
    """Before the command begins, and after it has ended, there is nothing to clean up.

    A signal that comes after the end is most likely one that reached us and was passed on as well.
    """

    def leave(number: int, frame: FrameType | None) -> None:
        os._exit(128 + number)

    for number in NUMBERS:
        signal.signal(number, leave)


def _has_byte(pipe: int) -> bool:
    """Whether something was written to ``pipe``, which others may still hold open."""
    os.set_blocking(pipe, False)
    try:
        return bool(os.read(pipe, 1))
    except BlockingIOError:
        return False


def _status(code: int, finished: bool, said: int, debug: bool) -> int:
    """The exit status of a child that ended with ``code``; what it left to say is said."""
    os.lseek(said, 0, os.SEEK_SET)
    with open(said, "rb") as file:
        text = file.read()
    orderly = code >= 128 or (finished and code >= 0)
    if orderly or debug:
        with contextlib.suppress(OSError):
            os.write(2, text)
    if orderly:
        return code
    if -code in NUMBERS:  # it came before the child could take notice of it
        return 128 - code
    sys.stderr.write(f"relax2xla: error: {_how(code, text.decode(errors='replace'))}\n")
    return FAILED


def _how(code: int, text: str) -> str:
    """How a child ended that did not end by itself."""
    name = signal_name(-code) if code < 0 else ""
    ended = f"was ended by {name}" if name else f"ended with status {code}"
    lines = [line.strip() for line in text.splitlines()]
    reason = next((line for line in lines if any(w in line for w in _TELLING)), "")
    said = reason[:300] or _HINTS.get(name, "")
    return (
        f"the process that did the work {ended}"
        + (f": {said}" if said else "")
        + "\nA library met what it does not survive, most likely in the program that was given; "
        "--debug shows all that it wrote."
    )


def _nameless_file() -> int:
    """A descriptor of a file without a name."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("relax2xla")
    import tempfile

    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _keep_native_output(said: int) -> None:
    """Send what native code writes to descriptor 2 to ``said``; Python's messages go on as ever."""
    if sys.stderr is None or sys.stderr is not sys.__stderr__:
        return  # closed, or what someone else put there
    try:
        number = sys.stderr.fileno()
    except (OSError, ValueError):
        return
    if number != 2:
        return
    sys.stderr.flush()
    sys.stderr = sys.__stderr__ = open(  # noqa: SIM115 (for as long as the process lives)
        os.dup(2), "w", 1, sys.stderr.encoding, sys.stderr.errors
    )
    os.dup2(said, 2)


def _end_with_parent(alive: int) -> None:
    """Wait until the parent ends, and end as it did: nobody is there any more for what is made."""
    os.read(alive, 1)
    os.kill(os.getpid(), signal.SIGKILL)
