"""What ``import relax2xla`` and ``relax2xla --help`` cost, beside numpy's and jax's import.

Each figure is of a fresh process, the start of Python included. The commands take turns, after one
round that leaves compiled byte code behind, as an installation by pip does.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

# What must stay out of a process that has only imported relax2xla, or shown the help.
HEAVY = ("jax", "jaxlib", "torch", "onnx")


def commands() -> dict[str, list[str]]:
    """What is measured: its name, and the command."""
    python = sys.executable
    found = {"python alone": [python, "-c", "pass"]}
    for module in ("numpy", "jax", "relax2xla", "relax2xla.op"):
        found[f"import {module}"] = [python, "-c", f"import {module}"]
    script = Path(python).with_name("relax2xla")
    if script.exists():
        found["relax2xla --help"] = [str(script), "--help"]
    return found


def environment() -> dict[str, str]:
    """The environment of this process, without a ban on byte code: that would time the parser."""
    return {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}


def run(command: list[str]) -> tuple[float, float]:
    """Seconds on the clock and of CPU time that a process takes; raises if it fails."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment())
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure(wanted: Mapping[str, list[str]], rounds: int) -> dict[str, list[tuple[float, float]]]:
    """What each command takes, once a round, after a round that is not counted."""
    for command in wanted.values():
        run(command)
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in wanted}
    for _ in range(rounds):
        for name, command in wanted.items():
            times[name].append(run(command))
    return times


def loaded(statement: str) -> list[str]:
    """The heavy packages that are in ``sys.modules`` of a fresh process after a statement."""
    report = f"sys.stderr.write(' '.join(m for m in {HEAVY} if m in sys.modules))"
    code = f"import sys\n{statement}\n{report}"
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, env=environment()
    )
    return done.stderr.split()


def main(quick: bool = False) -> None:
    """Print the table, and which heavy packages each statement loads; exit status 1 if any."""
    times = measure(commands(), 1 if quick else 10)
    print("| fresh process | median ms | min ms | median ms of CPU time |\n|---|---|---|---|")
    for name, values in times.items():
        wall, cpu = ([1000 * v[i] for v in values] for i in (0, 1))
        print(
            f"| {name} | {statistics.median(wall):.0f} | {min(wall):.0f} "
            f"| {statistics.median(cpu):.0f} |"
        )
    statements = {name: name for name in ("import relax2xla", "import relax2xla.op")}
    if "relax2xla --help" in times:
        statements["relax2xla --help"] = "from relax2xla.cli import main; main(['--help'])"
    print()
    found = {name: loaded(statement) for name, statement in statements.items()}
    for name, heavy in found.items():
        print(f"`{name}` loads {', '.join(heavy) or 'none'} of {', '.join(HEAVY)}.")
    if any(found.values()):
        raise SystemExit(1)
