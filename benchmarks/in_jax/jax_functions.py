"""Imported models as functions of JAX: every transformation of JAX on each, and a table of it.

``python -m benchmarks jax_functions`` tries what has not been tried yet (``--again`` also what did
not pass), and writes the tables of docs/jax.md and docs/results/jax_functions.md; ``--only
PATTERN``: those whose names match; ``--write`` only writes. Outcomes are kept in
benchmarks/results/jax_functions.jsonl, to which several runs may add; the last line of a program
counts, and ``--write`` leaves only that.

Each is run in a process that is replaced where a program ends it or takes longer than ``LIMIT``.
XLA is told to optimise little: what is measured is whether derivatives are right, on small sizes.
(At level 0 the fusion emitters of jaxlib 0.10 give inf for `networks/deeplab`.)
"""

from __future__ import annotations

import faulthandler
import fnmatch
import json
import multiprocessing
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks/results/jax_functions.jsonl"
PAGE, SUMMARY = ROOT / "docs/results/jax_functions.md", ROOT / "docs/jax.md"
BEGIN, END = "<!-- jax_functions: begin -->", "<!-- jax_functions: end -->"
#: Seconds that a program may take.
LIMIT = 900
GROUPS = {
    "networks": "networks of docs/networks.md",
    "architectures": "architectures of docs/torch.md",
    "wide": "architectures beyond 100 M parameters, cut in depth",
    "programs": "programs of this project's tests",
    "libraries": "programs of JAX's libraries",
}
Row = Mapping[str, Any]


def load() -> dict[str, Row]:
    """The last outcome of each program."""
    lines = RESULTS.read_text().splitlines() if RESULTS.exists() else []
    return {row["name"]: row for row in map(json.loads, lines)}


def passed(row: Row | None) -> bool:
    """Whether all checks of a program passed."""
    return row is not None and all(c["status"] in ("pass", "none") for c in row["checks"].values())


# ---- runs
def _outcome(name: str) -> Row:
    os.environ["XLA_FLAGS"] = (
        f"{os.environ.get('XLA_FLAGS', '')} --xla_backend_optimization_level=1"
        " --xla_llvm_disable_expensive_passes=true --xla_force_host_platform_device_count=8"
    )
    # Equinox raises through callbacks into Python, which programs that are read may not make.
    os.environ["EQX_ON_ERROR"] = "nan"
    faulthandler.dump_traceback_later(LIMIT, exit=True)
    from benchmarks.in_jax.jax_functions_cases import cases
    from benchmarks.in_jax.jax_functions_checks import outcome

    try:
        return outcome(name, cases()[name])
    finally:
        faulthandler.cancel_dump_traceback_later()


def outcomes(names: Sequence[str]) -> Iterator[Row]:
    """What became of each program, in another process."""
    pool = None
    for name in names:
        pool = pool or ProcessPoolExecutor(
            1, multiprocessing.get_context("spawn"), max_tasks_per_child=12
        )
        try:
            yield pool.submit(_outcome, name).result()
        except BrokenProcessPool:
            pool = None
            reason = f"the process ended, or ran for longer than {LIMIT} s"
            yield {"name": name, "checks": {"values": {"status": "error", "reason": reason}}}
    if pool is not None:
        pool.shutdown()


def main(
    quick: bool = False, only: Sequence[str] | None = None, write: bool = False, again: bool = False
) -> None:
    """Try programs, and write the tables. ``quick``: a program of each group."""
    from benchmarks.in_jax.jax_functions_cases import cases

    names = list(cases())
    done = load()
    if quick:
        todo = [next(n for n in names if n.startswith(f"{g}/")) for g in GROUPS]
    else:
        todo = [n for n in names if n not in done or (again and not passed(done[n]))]
        todo = [n for n in todo if any(fnmatch.fnmatchcase(n, p) for p in only or "*")]
    for row in outcomes([] if write else todo):
        with RESULTS.open("a") as f:
            f.write(json.dumps(row) + "\n")
        bad = {k: c for k, c in row["checks"].items() if c["status"] not in ("pass", "none")}
        print(f"{row['name']:48} {row.get('seconds', 0):6.1f} s  {bad or 'pass'}"[:900])
    if write:  # no other run adds to the file now
        RESULTS.write_text("".join(json.dumps(done[n]) + "\n" for n in names if n in done))
    if not quick:
        document(names, load())


# ---- pages
def document(names: Sequence[str], rows: Mapping[str, Row]) -> None:
    """Write the tables of both pages."""
    from benchmarks.in_jax.jax_functions_checks import CHECKS

    PAGE.write_text("\n".join(_page(names, rows, CHECKS)) + "\n")
    head, _, rest = SUMMARY.read_text().partition(BEGIN)
    tail = rest.partition(END)[2]
    table = "\n".join(_summary(names, rows, CHECKS))
    SUMMARY.write_text(f"{head}{BEGIN}\n{table}\n{END}{tail}")


def _group(name: str) -> str:
    return name.partition("/")[0]


def _summary(
    names: Sequence[str], rows: Mapping[str, Row], checks: Mapping[str, str]
) -> Iterator[str]:
    """A line a group: how many pass each check, of those that it says something about."""
    yield f"| programs | of | {' | '.join(checks)} | refused | differ |"
    yield f"|---|---|{'---|' * len(checks)}---|---|"
    for group, text in GROUPS.items():
        known = [n for n in names if _group(n) == group]
        found = [rows[n]["checks"] for n in known if n in rows]
        cells = []
        for check in checks:
            said = [c[check]["status"] for c in found if check in c]
            said = [s for s in said if s != "none"]
            cells.append(f"{said.count('pass')} of {len(said)}")
        # Which programs have a check that is an error, and one whose numbers are others.
        for status in ("error", "wrong"):
            cells.append(str(sum(any(x["status"] == status for x in c.values()) for c in found)))
        yield f"| {text} | {len(found)} of {len(known)} run | {' | '.join(cells)} |"


def _page(
    names: Sequence[str], rows: Mapping[str, Row], checks: Mapping[str, str]
) -> Iterator[str]:
    yield "# Imported models under JAX's transformations"
    yield ""
    yield (
        "Each program is imported and becomes a function of JAX by `extract_jax`. "
        "`python -m benchmarks jax_functions` writes this page."
    )
    yield ""
    for check, text in checks.items():
        yield f"- **{check}**: {text}"
    yield ""
    yield (
        "A cell has the largest difference beside values of size one; `none`: the program has "
        "nothing for this check (no floats to differentiate, or the source itself cannot be "
        "differentiated)."
    )
    for group, text in GROUPS.items():
        yield from ("", f"## {text[0].upper()}{text[1:]}", "")
        yield f"| program | {' | '.join(checks)} |"
        yield f"|---|{'---|' * len(checks)}"
        for name in names:
            if _group(name) == group and name in rows:
                cells = [_cell(rows[name]["checks"].get(c)) for c in checks]
                yield f"| {name.partition('/')[2]} | {' | '.join(cells)} |"
    bad = [
        f"- {name}, {check}: {_escaped(found['reason'])}"
        for name in names
        if name in rows
        for check, found in rows[name]["checks"].items()
        if found["status"] not in ("pass", "none")
    ]
    yield from ("", "## What does not pass", "")
    yield "What is refused is an error with this text; what differs says so."
    yield ""
    yield from bad or ["Nothing."]


def _cell(found: Row | None) -> str:
    if found is None:
        return ""
    if found["status"] != "pass":
        return found["status"]
    return f"{found['error']:.0e}{' in float64' if 'in' in found else ''}"


def _escaped(text: str) -> str:
    """One line without what Markdown would take for marks, and without places of files."""
    text = " ".join(text.split()).partition(", /")[0].partition(" at /")[0]
    for mark in "<>|*_`":
        text = text.replace(mark, f"\\{mark}")
    return text if len(text) <= 240 else f"{text[:240]} ..."
