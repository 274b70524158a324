"""MLIR bytecode, read in a child process first.

MLIR's reader trusts its input: damaged bytecode can corrupt memory and end the process, and no
check beforehand finds every such file. So a child reads it and gives back what it read as new
bytecode. One child serves all calls; it ends with its parent, and another takes its place when
bytecode ends it. On both pipes, a message is its length in eight bytes and its bytes.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO, Final

from relax2xla.errors import StableHLOParseError

_SERVE: Final = "from relax2xla.stablehlo.untrusted.guard_child import serve; serve()"
# The first byte of an answer; guard_child gives it.
READY, CLEAN, ERROR = b"R", b"C", b"E"


class _Lost(Exception):
    """The child has ended."""


class _Child:
    """The process that reads bytecode for us."""

    def __init__(self) -> None:
        home = str(Path(__file__).parents[2])
        path = os.pathsep.join(filter(None, [home, os.environ.get("PYTHONPATH")]))
        # -P: nothing that lies in the working directory is imported.
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", _SERVE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": path},
        )
        if self._read() != READY:
            raise _Lost

    def ask(self, data: bytes) -> bytes:
        assert self.process.stdin is not None
        try:
            write_message(self.process.stdin, data)
        except OSError as e:
            raise _Lost from e
        return self._read()

    def _read(self) -> bytes:
        assert self.process.stdout is not None
        found = read_message(self.process.stdout)
        if found is None:
            raise _Lost
        return found

    def end(self) -> int:
        """Stop the child; gives its exit status."""
        for stream in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(OSError):
                if stream is not None:
                    stream.close()
        try:
            return self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()


class _Guard:
    """The child, if there is one; threads take turns."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.child: _Child | None = None

    def clean(self, data: bytes) -> bytes | None:
        """Bytecode of what the child read; None where no child can be started."""
        with self.lock:
            if self.child is None:
                try:
                    self.child = _Child()
                except (OSError, TypeError, _Lost):
                    return None
            try:
                answer = self.child.ask(data)
            except _Lost:
                status = self.end()
                if -status == getattr(signal, "SIGXCPU", None):
                    raise StableHLOParseError(
                        "MLIR does not come to an end with this bytecode; is it complete and "
                        "undamaged?"
                    ) from None
                how = f"signal {_signal(-status)}" if status < 0 else f"status {status}"
                raise StableHLOParseError(
                    f"MLIR fails when it reads this bytecode ({how}); is it complete and undamaged?"
                ) from None
        if answer.startswith(ERROR):
            raise StableHLOParseError(answer[1:].decode(errors="replace"))
        return answer[1:]

    def end(self) -> int:
        child, self.child = self.child, None
        return 0 if child is None else child.end()

    def forget(self) -> None:
        """After a fork: the child belongs to the parent, and so may the lock."""
        self.__init__()


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)


_GUARD: Final = _Guard()
clean = _GUARD.clean
atexit.register(_GUARD.end)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_GUARD.forget)


# ---- both sides
def write_message(stream: IO[bytes], message: bytes) -> None:
    """Its length in eight bytes, and it."""
    stream.write(len(message).to_bytes(8, "little"))
    stream.write(message)
    stream.flush()


def read_message(stream: IO[bytes]) -> bytes | None:
    """The next message; None at the end of the stream."""
    head = stream.read(8)
    if len(head) < 8:
        return None
    size = int.from_bytes(head, "little")
    found = stream.read(size)
    return found if len(found) == size else None
