"""Networks of many architectures by every route, static and dynamic, and docs/networks.md of it.

Outcomes are kept in ``out/networks.jsonl`` (or what ``NETWORKS_RESULTS`` names), a line for a
network on a route. A run tries all anew; ``--quick`` only those that have not passed yet.
"""

from __future__ import annotations

import faulthandler
import itertools
import json
import multiprocessing
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict
from pathlib import Path

ROOT = Path(__file__).parents[2]
RESULTS = Path(os.environ.get("NETWORKS_RESULTS", ROOT / "out/networks.jsonl"))
PAGE = ROOT / "docs/networks.md"
#: Seconds that a network on a route may take.
LIMIT = 900
Results = Mapping[tuple[str, str, bool], dict[str, object]]


def load() -> dict[tuple[str, str, bool], dict[str, object]]:
    """The last outcome of each network on each route."""
    if not RESULTS.exists():
        return {}
    rows = map(json.loads, RESULTS.read_text().splitlines())
    return {(r["network"], r["route"], r["dynamic"]): r for r in rows}


def _cell(row: Mapping[str, object] | None) -> str:
    if row is None:
        return ""
    return f"{row['error']:.0e}" if row["status"] == "pass" else str(row["status"])


def document(results: Results) -> str:
    """The page."""
    import torch

    from tests.importers.zoo import NETWORKS
    from tests.importers.zoo.routes import NO_EXPORT, PASS, ROUTES

    columns = [(route, dynamic) for route in ROUTES for dynamic in (False, True)]
    heads = [f"{route}{', dynamic' if dynamic else ''}" for route, dynamic in columns]
    lines = [
        "# Networks",
        "",
        "Small networks of many architectures, written in plain torch in `tests/importers/zoo`, by "
        "four routes: both forms of `torch.onnx.export` (`dynamo=True` and `False`) with "
        "`from_onnx`, `torch.export` with `from_exported_program`, and "
        '`torch.compile(backend="relax2xla")` with no operator left to torch. Dynamic means: '
        "exported once with variable dimensions (batch, and where it makes sense length, height, "
        "width, ...), and run at the example's size and two others.",
        "",
        "A cell has the largest difference from eager torch beside values of size one (float32); "
        "integers and booleans agree exactly. `no export`: torch does not export the network. An "
        "empty cell was not run. "
        f"`python -m benchmarks networks` writes this page (torch "
        f"{torch.__version__.partition('+')[0]}).",
        "",
        f"| network | {' | '.join(heads)} |",
        f"|---|{'---|' * len(columns)}",
    ]
    counts: Counter[tuple[tuple[str, bool], str]] = Counter()
    for name in NETWORKS:
        rows = [results.get((name, *column)) for column in columns]
        counts.update((c, str(r["status"])) for c, r in zip(columns, rows, strict=True) if r)
        lines.append(f"| {name} | {' | '.join(map(_cell, rows))} |")
    for status in (PASS, NO_EXPORT):
        cells = (str(counts[column, status]) for column in columns)
        lines.append(f"| **{status}** of {len(NETWORKS)} | {' | '.join(cells)} |")
    lines += ["", "## What does not pass", ""]
    for (name, route, dynamic), row in sorted(results.items()):
        if row["status"] != PASS:
            kind = f"{route}{', dynamic' if dynamic else ''}"
            lines.append(f"- {name}, {kind}: {row['status']}. {_short(str(row['reason']))}")
    return "\n".join(lines) + "\n"


def _short(reason: str) -> str:
    """One line without what Markdown would take for marks, or paths of the machine."""
    # Of torch.onnx the innermost exception.
    text = (reason.partition("## Exception summary ")[2] or reason).partition(" ⬆")[0]
    text = text.partition(", /")[0].partition(" at /")[0]
    for mark in "<>|*_`":
        text = text.replace(mark, f"\\{mark}")
    return text if len(text) <= 240 else f"{text[:240]} ..."


def outcomes(cases: Iterable[tuple[str, str, bool]]) -> Iterator[Mapping[str, object]]:
    """What became of each case, in another process, which is replaced where a case ends it."""
    pool = None
    for case in cases:
        pool = pool or ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))
        try:
            yield pool.submit(_outcome, *case).result()
        except BrokenProcessPool:
            pool = None
            yield dict(zip(("network", "route", "dynamic"), case, strict=True)) | {
                "status": "error",
                "reason": f"the process ended, or ran for longer than {LIMIT} s",
                "error": 0.0,
                "seconds": 0.0,
            }
    if pool is not None:
        pool.shutdown()


def _outcome(name: str, route: str, dynamic: bool) -> dict[str, object]:
    from tests.importers.zoo import NETWORKS
    from tests.importers.zoo.routes import outcome

    faulthandler.dump_traceback_later(LIMIT, exit=True)
    made = asdict(outcome(name, NETWORKS[name], route, dynamic))
    faulthandler.cancel_dump_traceback_later()
    return made


def record(cases: Iterable[tuple[str, str, bool]]) -> None:
    """Run the cases; print and keep each outcome as it comes."""
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    for made in outcomes(cases):
        with RESULTS.open("a") as f:
            f.write(json.dumps(made) + "\n")
        kind = "dynamic" if made["dynamic"] else "static"
        print(
            f"{made['network']:22} {made['route']:16} {kind:8} {made['status']:9} "
            f"{str(made['reason'])[:200]}",
            flush=True,
        )


def main(quick: bool = False) -> None:
    """Run the networks and write the page."""
    from tests.importers.zoo import NETWORKS
    from tests.importers.zoo.routes import PASS, ROUTES

    if not quick:
        RESULTS.unlink(missing_ok=True)
    done = {key for key, row in load().items() if row["status"] == PASS}
    cases = itertools.product(NETWORKS, ROUTES, (False, True))
    record(case for case in cases if case not in done)
    PAGE.write_text(document(load()))
