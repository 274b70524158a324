"""Programs checked in a child process, which an abort inside MLIR or XLA ends instead of ours.

One child serves many programs, since starting it costs a second; it is started again only after it
died. Requests and answers are lines of JSON on its standard input and output; what libraries write
goes to a file, of which the last lines tell why a child died.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final

from relax2xla.cli.process.signals import signal_name
from relax2xla.cli.proof.programs import Outcome, check_program
from relax2xla.errors import TVMError
from relax2xla.stablehlo.untrusted.guard_child import limit_memory

# Seconds that a child may take to load XLA.
START: Final = 120.0
SERVE: Final = "from relax2xla.cli.process.isolate import serve; serve()"


class Worker:
    """A child process that checks programs; used in a ``with`` block.

    ``timeout``: seconds for one program. ``memory``: bytes that a child may allocate (where the
    system has such a limit: not on Windows, and macOS does not keep it).
    """

    def __init__(self, timeout: float, memory: int) -> None:
        self.timeout = timeout
        self.memory = memory
        self.process: subprocess.Popen[str] | None = None
        self.answers: queue.Queue[str | None] = queue.Queue()
        self.log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (__exit__ closes it)

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._end()
        self.log.close()

    def check(self, file: Path, part: int, run: bool, seed: int) -> Outcome:
        """As :func:`check_program`; an "error" where the child dies or takes too long."""
        process = self.process or self._start()
        request = {"file": str(file), "part": part, "run": run, "seed": seed}
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it died; there will be no answer
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
        try:
            answer = self.answers.get(timeout=self.timeout)
        except queue.Empty:
            self._end()
            return Outcome(
                "error", f"not done after {self.timeout:g} s (--timeout)", 0, self.timeout, True
            )
        if answer is None:
            return Outcome("error", self._why_it_died(), died=True)
        return Outcome(**json.loads(answer))

    def _start(self) -> subprocess.Popen[str]:
        import relax2xla

        home = str(Path(relax2xla.__file__).parents[1])
        paths = [home, os.environ.get("PYTHONPATH", "")]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
        env["RELAX2XLA_WORKER_MEMORY"] = str(self.memory)
        self.log.seek(0)
        self.log.truncate()
        # -P: nothing that lies beside the programs is imported.
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", SERVE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
            env=env,
        )
        self.process = process
        self.answers = queue.Queue()
        threading.Thread(target=_pump, args=(process, self.answers), daemon=True).start()
        try:
            ready = self.answers.get(timeout=START)
        except queue.Empty:
            ready = None
        if ready is None:
            reason = self._why_it_died()
            raise TVMError(f"the child process does not start: {reason}; try --no-isolate")
        return process

    def _end(self) -> int:
        """Stop the child; gives its exit status."""
        process, self.process = self.process, None
        if process is None:
            return 0
        with contextlib.suppress(BrokenPipeError):
            if process.stdin is not None:
                process.stdin.close()
        if process.poll() is None:
            # One that has closed its output ends by itself; one that is busy does not.
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.2 if self.answers.empty() else 5)
        if process.poll() is None:
            process.kill()
        return process.wait()

    def _why_it_died(self) -> str:
        process = self.process
        with contextlib.suppress(subprocess.TimeoutExpired):
            if process is not None:
                process.wait(5)
        code = self._end()
        self.log.seek(0)
        lines = self.log.read()[-20_000:].decode(errors="replace").split("\n")
        said = next((line.strip() for line in lines if _is_telling(line)), "")
        said = said or next((line.strip() for line in reversed(lines) if line.strip()), "")
        how = f"ended with status {code}" if code >= 0 else f"was ended by {signal_name(-code)}"
        return f"the child process {how}" + (f": {said[:200]}" if said else "")


def _is_telling(line: str) -> bool:
    return any(word in line for word in ("Assertion", "LLVM ERROR", "Check failed", "bad_alloc"))


def _pump(process: subprocess.Popen[str], answers: queue.Queue[str | None]) -> None:
    """Pass the child's lines on, and None when there are no more."""
    assert process.stdout is not None
    with process.stdout, contextlib.suppress(ValueError):
        for line in process.stdout:
            answers.put(line)
    answers.put(None)


# -- in the child ----------------------------------------------------------------------------------
def serve() -> None:
    """Answer requests until standard input ends."""
    # What libraries print must not look like answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    # Ctrl-C reaches the whole group of processes; the parent ends us.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    limit_memory(int(os.environ["RELAX2XLA_WORKER_MEMORY"]))
    importlib.import_module("relax2xla.vm.plan.build")  # so that no program's time holds it
    _answer(answers, {})
    for line in sys.stdin:
        request: dict[str, Any] = json.loads(line)
        found = check_program(
            Path(request["file"]), request["part"], request["run"], request["seed"]
        )
        _answer(answers, asdict(found))


def _answer(stream: IO[str], data: dict[str, Any]) -> None:
    stream.write(json.dumps(data) + "\n")
    stream.flush()
