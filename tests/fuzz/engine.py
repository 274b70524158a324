"""Inputs given to worker processes, and what became of them.

A worker has limits on its memory and on the time that one input may take; one that ends, or has to
be ended, is a finding, and another takes its place. Between parent and worker go lines: the parent
asks for an input by target and number, the worker says in what phase it is (``.compile``) and at
last, as JSON, what became of the input.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import queue
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Final

from tests.fuzz.target import Target, Wrong

ROOT: Final = Path(__file__).resolve().parents[2]
# Targets by name, and where they are: a worker imports what it is asked for.
TARGETS: Final = {
    "onnx": "programs.Onnx",
    "mlir": "programs.Text",
    "mlirbc": "programs.Bytecode",
    "portable": "programs.Portable",
    "relax": "programs.Relax",
    "r2x": "packages.Package",
    "npy": "arrays.Npy",
    "npz": "arrays.Npz",
    "safetensors": "arrays.Safetensors",
    "words": "words.Words",
    "onnx-values": "onnx_values.OnnxValues",
    "torch-values": "torch_values.TorchValues",
    "relax-values": "relax_values.RelaxValues",
    "call-values": "call_values.CallValues",
}
# Bytes of data that a worker may have.
MEMORY: Final = 8 << 30
# Seconds that a worker may take to load what a target needs, or to compile that.
START: Final = 600.0
# Phases in which a program that was read does what it says; one that runs for ever may do so.
OWN_TIME: Final = frozenset({"run"})
# What code that trusts its input raises. An error of ours that was made of one of these by a
# reader's last resort tells the user nothing.
LEAKS: Final = (
    *(AssertionError, AttributeError, IndexError, KeyError, NameError, RuntimeError, TypeError),
    *(StopIteration, ZeroDivisionError, SyntaxError),
)
# The longest message that still is one.
LONGEST: Final = 20_000


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one input.

    ``kind``: "accepted" or "refused"; "endless" where a program that was read did not end by
    itself; and the findings "wrong", "leaked" (an exception that is none of ours), "died", "hung".
    ``detail``: what was done, the error's class, or the message. ``at``: the place in our code, or
    the phase in which the process was.
    """

    target: str
    number: int
    kind: str
    detail: str = ""
    at: str = ""

    @property
    def is_finding(self) -> bool:
        """Whether something is wrong with what happened."""
        return self.kind in ("wrong", "leaked", "died", "hung")

    @property
    def signature(self) -> tuple[str, ...]:
        """What outcomes of one cause have in common, as far as can be seen."""
        return (self.target, self.kind, self.at or self.detail[:60])


def load_target(name: str) -> Target:
    """A new target of that name, or of that place (``module.Class``) in this folder."""
    module, _, cls = TARGETS.get(name, name).partition(".")
    return getattr(importlib.import_module(f"tests.fuzz.{module}"), cls)()


# -- the parent ------------------------------------------------------------------------------------
class Worker:
    """A process that tries inputs; used in a ``with`` block."""

    def __init__(self, memory: int = MEMORY) -> None:
        self.memory = memory
        self.process: subprocess.Popen[str] | None = None
        self.lines: queue.Queue[str | None] = queue.Queue()
        self.ready: set[str] = set()
        self.log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (__exit__ closes it)

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *error: object) -> None:
        self.end()
        self.log.close()

    def attempt(self, target: str, number: int, seconds: float) -> Outcome:
        """What becomes of input ``number`` of ``target``."""
        process = self.process or self._start()
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(f"{target} {number}\n")
            process.stdin.flush()
        phase = "prepare" if target not in self.ready else "make"
        end = time.monotonic() + (START if phase == "prepare" else seconds)
        while True:
            try:
                line = self.lines.get(timeout=max(0.0, end - time.monotonic()))
            except queue.Empty:
                self.end()
                kind = "endless" if phase in OWN_TIME else "hung"
                return Outcome(target, number, kind, f"not done after {seconds:g} s", phase)
            if line is None and phase == "prepare":
                raise RuntimeError(f"{target}: the worker does not start: {self._why()}")
            if line is None:
                return Outcome(target, number, "died", self._why(), phase)
            if not line.startswith("."):
                return Outcome(**json.loads(line))
            phase = line[1:].strip()
            if phase == "make":
                self.ready.add(target)
                end = time.monotonic() + seconds

    def _start(self) -> subprocess.Popen[str]:
        self.log.seek(0)
        self.log.truncate()
        self.ready = set()
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.fuzz.engine", str(self.memory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
            cwd=ROOT,
            start_new_session=True,
        )
        self.process, self.lines = process, queue.Queue()
        threading.Thread(target=_pump, args=(process, self.lines), daemon=True).start()
        return process

    def end(self) -> int:
        """End the process and all that it started; gives its exit status."""
        process, self.process = self.process, None
        if process is None:
            return 0
        if process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.5)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        return process.wait()

    def _why(self) -> str:
        process = self.process
        with contextlib.suppress(subprocess.TimeoutExpired):
            if process is not None:
                process.wait(5)
        status = self.end()
        self.log.seek(0)
        said = self.log.read()[-20_000:].decode(errors="replace").strip().splitlines()
        telling = [s for s in said if "Check failed" in s or "Assertion" in s or "bad_alloc" in s]
        how = signal.Signals(-status).name if status < 0 else f"status {status}"
        return f"{how}: {(telling or said or [''])[-1][:200]}"


def _pump(process: subprocess.Popen[str], lines: queue.Queue[str | None]) -> None:
    assert process.stdout is not None
    with process.stdout, contextlib.suppress(ValueError):
        for line in process.stdout:
            lines.put(line)
    lines.put(None)


@dataclass
class Count:
    """What became of the inputs of one target."""

    inputs: int = 0
    seconds: float = 0.0
    kinds: Counter[str] = field(default_factory=Counter[str])
    details: Counter[str] = field(default_factory=Counter[str])
    findings: dict[tuple[str, ...], list[Outcome]] = field(default_factory=dict)

    def add(self, found: Outcome, seconds: float) -> None:
        """Count one outcome."""
        self.inputs += 1
        self.seconds += seconds
        self.kinds[found.kind] += 1
        if found.kind in ("accepted", "refused"):
            self.details[found.detail] += 1
        if found.is_finding:
            self.findings.setdefault(found.signature, []).append(found)


def campaign(
    name: str,
    numbers: Sequence[int],
    seconds: float,
    jobs: int = 1,
    heard: Callable[[Outcome, Count], None] = lambda found, count: None,
    workers: Sequence[Worker] = (),
) -> Count:
    """Try the inputs of one target, in ``jobs`` processes, until all are done or time is up.

    heard: told of each outcome. workers: processes to use, which then go on living.
    """
    count, lock, stop = Count(), threading.Lock(), time.monotonic() + seconds
    limit = load_target(name).seconds
    rest: Iterator[int] = iter(numbers)

    def work(worker: Worker) -> None:
        while time.monotonic() < stop:
            with lock:
                number = next(rest, None)
            if number is None:
                return
            start = time.monotonic()
            found = worker.attempt(name, number, limit)
            with lock:
                count.add(found, time.monotonic() - start)
                heard(found, count)

    with contextlib.ExitStack() as stack:
        used = workers or [stack.enter_context(Worker()) for _ in range(jobs)]
        threads = [threading.Thread(target=work, args=(w,), daemon=True) for w in used]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return count


# -- the worker ------------------------------------------------------------------------------------
def serve(memory: int) -> None:
    """Try inputs until standard input ends."""
    answers = os.fdopen(os.dup(1), "w")
    # What libraries print must not look like answers.
    os.dup2(2, 1)
    warnings.simplefilter("ignore")
    # Compiled programs of other runs would hide what compiling does.
    os.environ["RELAX2XLA_CACHE"] = "0"
    from relax2xla.stablehlo.untrusted.guard_child import limit_memory

    limit_memory(memory)

    def say(line: str) -> None:
        answers.write(line + "\n")
        answers.flush()

    known: dict[str, Target] = {}
    with tempfile.TemporaryDirectory(prefix="relax2xla-fuzz-") as kept:
        for line in sys.stdin:
            name, number = line.split()
            folder = Path(kept, name)
            if name not in known:
                folder.mkdir()
                target = load_target(name)
                target.phase = lambda text: say(f".{text}")
                target.prepare(folder)
                known[name] = target
            say(".make")
            say(json.dumps(asdict(tried(known[name], int(number), folder))))


def tried(target: Target, number: int, folder: Path) -> Outcome:
    """The outcome of one input in this process."""
    from relax2xla.errors import TVMError

    def outcome(kind: str, detail: str, at: str = "") -> Outcome:
        return Outcome(target.name, number, kind, detail, at)

    made = target.input(number)
    random.seed(number)
    try:
        return outcome("accepted", target.attempt(made, folder))
    except Wrong as e:
        return outcome("wrong", " ".join(str(e).split())[:1000])
    except (TVMError, NotImplementedError) as e:
        leak = _leak_in(e) if isinstance(e, TVMError) else e
        if target.is_right:
            return outcome("wrong", f"refused: {type(e).__name__}: {_line(e)}", place_of(e))
        if leak is not None:
            return outcome("leaked", f"{type(e).__name__}: {_line(e)}", place_of(leak))
        return outcome("refused", type(e).__name__)
    except Exception as e:
        return outcome("leaked", f"{type(e).__name__}: {_line(e)}", place_of(e))


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300]


def _leak_in(error: BaseException) -> BaseException | None:
    """What is wrong with an error of ours: what it was made of, or a message that is none.

    An exception that Python itself raised in our code, and whose text is all that the message has
    to say, says nothing to a user; but for what it says of arguments that do not fit.
    """
    text, cause = str(error), error.__cause__
    if not text.strip() or len(text) > LONGEST:
        return error
    if not isinstance(cause, LEAKS) or str(cause) not in text or _is_meant(cause):
        return None
    if type(cause).__name__ == "JaxRuntimeError":  # XLA's own words of the program
        return None
    return None if isinstance(cause, TypeError) and "argument" in str(cause) else cause


def _is_meant(error: BaseException) -> bool:
    """Whether a statement of ours raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and (frames[-1].line or "").startswith("raise ")


def place_of(error: BaseException) -> str:
    """The innermost place in our code, and what was raised: ``file.py:12 KeyError``."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [f for f in frames if "relax2xla" in f.filename and "tests" not in f.filename]
    last = (ours or list(frames))[-1:]
    where = "".join(f"{Path(f.filename).name}:{f.lineno}" for f in last)
    return f"{where} {type(error).__name__}"


if __name__ == "__main__":
    serve(int(sys.argv[1]))
