"""``relax2xla reduce``: a small program for which a command of the user's still succeeds."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shlex
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from relax2xla.cli.process.console import note, out, print_json, status, table
from relax2xla.cli.process.signals import Interrupted
from relax2xla.cli.proof.shrink import Cost, cost, shrunk
from relax2xla.cli.reading.model import load_model, parse_shapes
from relax2xla.errors import TVMError
from relax2xla.importers.files import (
    WRITABLE,
    Form,
    check_target,
    form_of,
    render,
    write_atomically,
)
from relax2xla.ir import IRModule

#: What stands for the file in the user's command.
PLACE: Final = "{}"


def run_reduce(
    file: Path,
    check: str,
    output: Path | None,
    timeout: float,
    trust: bool,
    shape: Sequence[str],
    as_json: bool,
) -> None:
    """Write the smallest program found for which ``check`` succeeds; see the help.

    ``output``: by default FILE.reduced in this directory, in the form of FILE if that can be
    written, else Relax text. ``timeout``: seconds for a command, after which it has failed.

    Raises TVMError where ``check`` names no file, or fails for the program as it is.
    """
    target = output or _beside(file)
    form = form_of(target)
    check_target(target, file)
    if PLACE not in check:
        raise TVMError(
            f"--check {check!r}: write {PLACE} where the program's file stands in the command, as "
            f"in --check 'relax2xla run {PLACE}'"
        )
    mod = load_model(file, trust, parse_shapes(shape))
    start = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="relax2xla-") as folder:
        search = _Search(mod, check, timeout, Path(folder) / f"candidate{target.suffix}", form)
        search.begin()
        ended: Interrupted | None = None
        try:
            with status("reducing"):
                shrunk(mod, search)
        except Interrupted as e:
            ended = e
        write_atomically(target, lambda stream: stream.write(search.data))
    before, after = cost(mod), search.smallest
    seconds = time.perf_counter() - start
    if as_json:
        found = {"file": str(file), "output": str(target), "form": form, "checks": search.checks}
        found |= {"seconds": seconds, "complete": ended is None}
        print_json({**found, "before": before._asdict(), "after": after._asdict()})
    else:
        rows = [(n, str(a), str(b)) for n, a, b in zip(_NAMES, before, after, strict=True)]
        table(("", "before", "after"), rows)
        out(f"{search.checks} checks in {seconds:.1f} s")
    note(f"wrote {target}" + ("" if ended is None else ", the smallest so far"))
    if ended is not None:
        raise ended


_NAMES: Final = (
    "functions and bindings",
    "bytes of constants",
    "results",
    "parameters",
    "symbolic dimensions",
    "attributes",
)


def _beside(file: Path) -> Path:
    suffix = file.suffix.lower()
    known = any(suffix in row.suffixes for row in WRITABLE)
    return Path(f"{file.stem}.reduced{suffix if known else '.relax'}")


class _Search:
    """Asks the user's command, and keeps the smallest program that it said yes to."""

    def __init__(self, mod: IRModule, check: str, timeout: float, file: Path, form: Form) -> None:
        self.mod, self.check, self.timeout, self.file = mod, check, timeout, file
        self.form: Form = form
        self.smallest: Cost = cost(mod)
        self.data = b""
        self.checks = 0
        self.refused: set[bytes] = set()

    def begin(self) -> None:
        """The program as it is; TVMError where the command fails for it."""
        self.data = render(self.mod, self.form)
        code, said = self.run(self.data)
        if code == 0:
            return
        how = "took too long (--timeout)" if code is None else f"ended with status {code}"
        raise TVMError(
            f"--check must succeed (exit status 0) for the program as it is, written as "
            f"{self.file.suffix}, but it {how}{said and f': {said}'}\nWrite a command that "
            "succeeds where the fault shows, as in "
            f"--check 'relax2xla run {PLACE} 2>&1 | grep -q MESSAGE'"
        )

    def __call__(self, mod: IRModule) -> bool:
        """Whether the command succeeds for ``mod``; no program is asked of twice."""
        try:
            data = render(mod, self.form)
        except (TVMError, ValueError):  # the form cannot hold what is left
            return False
        digest = hashlib.sha256(data).digest()
        if digest in self.refused:
            return False
        if self.run(data)[0] != 0:
            self.refused.add(digest)
            return False
        before, self.data, self.smallest = self.smallest, data, cost(mod)
        if self.smallest.bindings < before.bindings:
            note(f"{self.smallest.bindings} functions and bindings after {self.checks} checks")
        return True

    def run(self, data: bytes) -> tuple[int | None, str]:
        """The exit status of the command, None where it took too long, and its last words."""
        self.file.write_bytes(data)
        self.checks += 1
        words = self.check.replace(PLACE, shlex.quote(str(self.file)))
        # A group of its own: what the command has started ends with it.
        with subprocess.Popen(
            words,
            shell=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as process:
            try:
                said, _ = process.communicate(timeout=self.timeout)
            except subprocess.TimeoutExpired:
                _end(process)
                return None, ""
            except BaseException:
                _end(process)
                raise
        lines = said.decode(errors="replace").strip().splitlines()
        return process.returncode, lines[-1][:300] if lines else ""


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a command and all that it started."""
    if hasattr(os, "killpg"):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    process.communicate()
