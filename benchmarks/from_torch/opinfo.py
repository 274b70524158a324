"""Torch's operator database through the PyTorch importer, and the table of it in docs/torch.md.

Outcomes are kept in ``out/opinfo.jsonl`` (or what ``OPINFO_RESULTS`` names), a line a case. A run
tries every case anew; ``--quick`` only those that have not passed yet, and those of the CI sample.
``--dynamic`` exports one float32 sample of each entry with symbolic sizes and runs it at two sizes;
outcomes are in ``out/opinfo_dynamic.jsonl``.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tests.importers.torch.opinfo import suite
from tests.importers.torch.opinfo.dynamic import FIXED
from tests.importers.torch.opinfo.suite import (
    BY_DOUBLE,
    BY_ENTRY,
    ERROR,
    NO_EXPORT,
    ONE_SIZE,
    PASS,
    REFUSED,
    WRONG,
    Outcome,
)

ROOT = Path(__file__).parents[2]
RESULTS = Path(os.environ.get("OPINFO_RESULTS", ROOT / "out/opinfo.jsonl"))
PAGE = ROOT / "docs/torch.md"
DYNAMIC = RESULTS.with_stem(f"{RESULTS.stem}_dynamic")

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
        kind = dtype if dtype in suite.DTYPES else "others"
        status = worst(outcomes)
        counts[kind][way(outcomes) if status == PASS else status] += 1
    titles = ["dtype", "entries", "exported", *WAYS.values(), "refused", "error", "wrong"]
    lines = [
        f"| {' | '.join(titles)} | pass, of the exported |",
        "|---" * (len(titles) + 1) + "|",
    ]
    total: Counter[str] = Counter()
    for dtype in (*suite.DTYPES, "others"):
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


def write(name: str, lines: Sequence[str]) -> None:
    """Replace what stands between the page's marks of a name."""
    begin, end = (f"<!-- {name}: {which} -->" for which in ("begin", "end"))
    head, found, rest = PAGE.read_text().partition(begin)
    if not found:
        raise RuntimeError(f"{PAGE} has no mark {begin}")
    _, _, tail = rest.partition(end)
    PAGE.write_text(f"{head}{begin}\n" + "\n".join(lines).rstrip() + f"\n{end}{tail}")


def static(results: Results) -> list[str]:
    """The text about the samples as they are."""
    import torch

    return [
        f"torch {torch.__version__.partition('+')[0]}, {len(suite.database())} entries, "
        f"up to {suite.SAMPLES} samples a dtype; {len(results)} of {len(suite.cases())} cases "
        "(an entry in one dtype) were run. `python -m benchmarks opinfo` makes this table.",
        "",
        *table(results),
    ]


def symbolic(results: Results) -> list[str]:
    """The text about the samples with symbolic sizes."""
    found = Counter(worst(o) for o in results.values())
    fixed = sum(o[0].reason == FIXED for o in results.values())
    alone = sum(o[0].reason == ONE_SIZE for o in results.values())
    lines = [
        f"Of {len(results)} entries in float32 that were run, "
        f"{sum(found.values()) - found[NO_EXPORT]} are exported with symbolic sizes (torch fixes "
        f"all sizes of {fixed} others). Of these "
        f"{found[PASS]} pass, {alone} of them at the sample's sizes alone, because torch takes no "
        f"larger ones; {found[REFUSED]} are refused, {found[ERROR]} are errors, {found[WRONG]} "
        "wrong. `python -m benchmarks opinfo --dynamic` makes this list.",
        "",
    ]
    for status, title in (
        (WRONG, "Wrong"),
        (ERROR, "Errors that are no refusals"),
        (REFUSED, "Refused"),
    ):
        lines += _reasons(results, status, title)
    return lines


def main(quick: bool = False, dynamic: bool = False) -> None:
    """Run the database and write the table."""
    path, name, text = (
        (DYNAMIC, "opinfo_dynamic", symbolic) if dynamic else (RESULTS, "opinfo", static)
    )
    if not quick:
        path.unlink(missing_ok=True)
    dtypes = ("float32",) if dynamic else ()
    todo = suite.chosen(path, dtypes, failed=True)
    suite.update(path, todo, verbose=True, dynamic=dynamic)
    lines = text(suite.load(path))
    print("\n".join(lines))
    write(name, lines)
