"""Architectures of torchvision, timm and transformers through both ways in, beside their peers.

Each is small and has random weights (``torch_models_zoo``). It is exported for one batch size and
for any, imported, built and run; compiled by ``torch.compile`` and called with three batch sizes;
and timed on one core beside eager torch, TorchInductor and TVM (``RELAX2XLA_TVM`` names a Python
that has TVM and torch). ``torch_models_ways`` holds the steps; each runs in a process that is ended
where it takes longer than ``LIMIT`` seconds.

Outcomes are kept in ``benchmarks/results/torch_models.jsonl``, a line an architecture, from which
``docs/results/torch_models.md`` is written (``torch_models_page``). ``--quick`` runs those only
that have not passed yet, ``--only PATTERN ...`` those whose names match, ``--ours`` leaves peers
and times out.
"""

from __future__ import annotations

import datetime
import fnmatch
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.from_torch import torch_models_page as page
from relax2xla.importers.files import how_to_install

ROOT = Path(__file__).parents[2]
RESULTS = Path(
    os.environ.get("TORCH_MODELS_RESULTS", ROOT / "benchmarks/results/torch_models.jsonl")
)
# Seconds on the clock that a step may take, without loading the libraries.
LIMIT = 240.0
STARTED = 120.0

Outcome = dict[str, Any]


class Worker:
    """Another process that runs steps, replaced after one that took too long or ended it."""

    def __init__(self) -> None:
        self._process: Any = None
        self._connection: Any = None

    def ask(self, name: str, step: str, wanted: Sequence[str]) -> Outcome:
        """The outcome of a step; ``wanted`` are those whose calls it needs, if they are lost."""
        limit = LIMIT
        if self._process is None:
            self._start()
            limit += STARTED + LIMIT * len(wanted)
        self._connection.send((name, step, tuple(wanted)))
        try:
            if self._connection.poll(limit):
                return self._connection.recv()
            self._end()
            return {"status": "timeout", "reason": f"longer than {limit:.0f} s"}
        except (EOFError, ConnectionError):
            return {"status": "error", "reason": f"the process ended with status {self._end()}"}

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()

    def _end(self) -> int | None:
        """End the process, with the compilers that it has started; its exit status."""
        process, self._process = self._process, None
        process.join(1)
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            process.kill()
        process.join()
        return process.exitcode

    def close(self) -> None:
        """Let the process end."""
        if self._process is not None:
            self._connection.send(None)
            self._process.join()
            self._process = None


def _serve(connection: Any) -> None:
    from benchmarks.from_torch.torch_models_ways import serve

    serve(connection)


def run(worker: Worker, name: str, steps: Sequence[str]) -> dict[str, Outcome]:
    """One architecture through these steps."""
    found: dict[str, Outcome] = {}
    for step in steps:
        wanted = [s for s in page.TIMED if s in found and page.passed(found[s])]
        found[step] = worker.ask(name, step, wanted if step == "times" else ())
        if found[step]["status"] == "no model":
            return found
    return found


def load() -> dict[str, dict[str, Any]]:
    """Kept rows by name."""
    if not RESULTS.exists():
        return {}
    return {row["name"]: row for row in map(json.loads, RESULTS.read_text().splitlines())}


def keep(row: Mapping[str, Any]) -> None:
    """Put a row in the place of the older one."""
    rows = {**load(), row["name"]: row}
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    fresh = RESULTS.with_suffix(".new")
    fresh.write_text("".join(json.dumps(rows[name]) + "\n" for name in sorted(rows)))
    fresh.replace(RESULTS)


def update(names: Iterable[str], steps: Sequence[str], versions: Mapping[str, str]) -> None:
    """Run these and keep the outcomes."""
    worker = Worker()
    for name in names:
        start = time.perf_counter()
        found = run(worker, name, steps)
        keep(
            {
                "name": name,
                "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
                "versions": dict(versions),
                "steps": found,
            }
        )
        shown = "; ".join(f"{step}: {page.detail(o)}" for step, o in found.items())
        print(f"{name} ({time.perf_counter() - start:.0f} s): {shown}", flush=True)
    worker.close()


def main(quick: bool = False, only: Sequence[str] = (), ours: bool = False) -> None:
    """Run the architectures, measure speed, write the page."""
    if hasattr(os, "sched_setaffinity"):  # one core for everybody, and for what we start
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    from benchmarks.from_torch.torch_models_ways import imports, versions
    from benchmarks.from_torch.torch_models_zoo import ZOO, absent

    lacking = absent()
    if lacking:
        print(f"not installed: {', '.join(lacking)}; {how_to_install('models')}")
    done = load()
    # In the order of the patterns, so that what matters most can come first.
    matching = [n for p in only or ("*",) for n in ZOO if fnmatch.fnmatch(n, p)]
    update(
        (
            name
            for name in dict.fromkeys(matching)
            if name.partition("/")[0] not in lacking
            and not (quick and name in done and page.settled(done[name]))
        ),
        page.OURS if ours else page.STEPS,
        versions(),
    )
    deep = [] if only or "transformers" in lacking else imports()
    speed = [] if only or quick or ours else _speed()
    page.write(load(), list(ZOO), deep, speed)


def _speed() -> list[str]:
    """The table of ``torch_models_speed``, which needs a process of its own with one core."""
    command = [sys.executable, "-m", "benchmarks.from_torch.torch_models_speed"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT)
    return done.stdout.splitlines()
