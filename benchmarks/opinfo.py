"""Torch's operator database through the PyTorch importer, and the table of it in docs/torch.md.

Outcomes are kept in ``out/opinfo.jsonl`` (or what ``OPINFO_RESULTS`` names), a line a case. A run
tries every case anew; ``--quick`` only those that have not passed yet, and those of the CI sample.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tests.importers.torch import opinfo
from tests.importers.torch.opinfo import (
    BY_DOUBLE,
    BY_ENTRY,
    ERROR,
    NO_EXPORT,
    PASS,
    REFUSED,
    WRONG,
    Outcome,
)

ROOT = Path(__file__).parents[1]
RESULTS = Path(os.environ.get("OPINFO_RESULTS", ROOT / "out/opinfo.jsonl"))
PAGE = ROOT / "docs/torch.md"
BEGIN, END = "<!-- opinfo: begin -->", "<!-- opinfo: end -->"

#: Ways to pass, from the strictest, and their columns in the table.
WAYS = {PASS: "default tolerances", BY_ENTRY: "the entry's", BY_DOUBLE: "nearer to float64"}

Results = Mapping[tuple[str, str], Sequence[Outcome]]


def worst(outcomes: Iterable[Outcome]) -> str:
    """What a case counts as: samples that torch does not export do not count beside others."""
    found = {o.status for o in outcomes}
    return next((s for s in (WRONG, ERROR, REFUSED, PASS) if s in found), NO_EXPORT)


def way(outcomes: Iterable[Outcome]) -> str:
    """The least strict of ``WAYS`` in which samples pass."""
    reasons = [o.reason for o in outcomes if o.status == PASS]
    return next(
        (w for w in (BY_DOUBLE, BY_ENTRY) if any(r.startswith(w) for r in reasons)),
        PASS,
    )


def table(results: Results) -> list[str]:
    """Markdown: the counts a dtype, then what is refused, wrong, in error, or not exported."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for (_, dtype), outcomes in results.items():
        kind = dtype if dtype in opinfo.DTYPES else "others"
        status = worst(outcomes)
        counts[kind][way(outcomes) if status == PASS else status] += 1
    titles = ["dtype", "entries", "exported", *WAYS.values(), "refused", "error", "wrong"]
    lines = [
        f"| {' | '.join(titles)} | pass, of the exported |",
        "|---" * (len(titles) + 1) + "|",
    ]
    total: Counter[str] = Counter()
    for dtype in (*opinfo.DTYPES, "others"):
        lines.append(_line(dtype, counts[dtype]))
        total += counts[dtype]
    lines += [_line("all", total), ""]
    for status, title in (
        (WRONG, "Wrong"),
        (ERROR, "Errors that are no refusals"),
        (REFUSED, "Refused"),
        (NO_EXPORT, "Not exported by torch"),
    ):
        lines += _reasons(results, status, title)
    return lines


def _line(name: str, count: Counter[str]) -> str:
    row = [count[s] for s in (*WAYS, REFUSED, ERROR, WRONG)]
    exported, passed = sum(row), sum(row[: len(WAYS)])
    share = f"{100 * passed / exported:.1f} %" if exported else ""
    return f"| {' | '.join(map(str, (name, sum(count.values()), exported, *row, share)))} |"


def _reasons(results: Results, status: str, title: str) -> list[str]:
    """A list of reasons, each with the entries and dtypes that it concerns."""
    found: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for (name, dtype), outcomes in sorted(results.items()):
        if worst(outcomes) == status:
            reason = next(o.reason for o in outcomes if o.status == status)
            found[_short(reason)][name].append(dtype)
    if not found:
        return [f"**{title}**: none.", ""]
    lines = [f"**{title}**", ""]
    for reason, names in sorted(found.items(), key=lambda kv: (-len(kv[1]), kv[0])):
        listed = ", ".join(f"`{n}` ({', '.join(d)})" for n, d in names.items())
        lines.append(f"- {reason}: {listed}")
    return [*lines, ""]


def _short(reason: str) -> str:
    """The first reason of several on one line, without what Markdown would take for marks."""
    text = reason.split("; ")[0]
    # Places in files belong to the machine of the run.
    text = text.partition(", /")[0].partition(" at /")[0]
    for mark in "<>|*_`":
        text = text.replace(mark, f"\\{mark}")
    return text if len(text) <= 160 else f"{text[:160]} ..."


def write(results: Results) -> None:
    """Replace the table in the page."""
    import torch

    head, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, tail = rest.partition(END)
    lines = [
        BEGIN,
        f"torch {torch.__version__.partition('+')[0]}, {len(opinfo.database())} entries, "
        f"up to {opinfo.SAMPLES} samples a dtype; {len(results)} of {len(opinfo.cases())} cases "
        "(an entry in one dtype) were run. `python -m benchmarks opinfo` makes this table.",
        "",
        *table(results),
    ]
    PAGE.write_text(head + "\n".join(lines).rstrip() + "\n" + END + tail)


def main(quick: bool = False) -> None:
    """Run the database and write the table."""
    if not quick:
        RESULTS.unlink(missing_ok=True)
    todo = opinfo.chosen(RESULTS, failed=True)
    opinfo.update(RESULTS, todo, verbose=True)
    results = opinfo.load(RESULTS)
    print("\n".join(table(results)))
    write(results)
