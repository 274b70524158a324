"""The tables of ``torch_models`` in ``docs/results/torch_models.md``, from the rows that it keeps,
and their sums in ``docs/torch.md``.

A row is one architecture's: ``name``, ``date``, ``versions``, and ``steps``, an outcome of each.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[2] / "docs/results/torch_models.md"
SUMS = Path(__file__).parents[2] / "docs/torch.md"
BEGIN, END = "<!-- torch_models: begin -->", "<!-- torch_models: end -->"
TIMES = "**Times on one core**"
IMPORTS = "**Import of 24 layers**"
SPEED = "**Speed of torch.compile on one core**"

# The steps of ours, in which a network agrees with torch or not; then those of the peers.
OURS = ("export", "any batch", "torch.compile", "other batches")
# What "times" measures: steps that leave a call to be timed.
TIMED = ("export", "torch.compile", "inductor")
STEPS = ("export", "any batch", "torch.compile", "inductor", "times", "other batches", "tvm")
PEERS = {"inductor": "Inductor", "tvm": "TVM"}

Row = Mapping[str, Any]


def passed(outcome: Row) -> bool:
    """Whether a step ran and agreed with torch."""
    return outcome["status"] in ("pass", "partly torch")


def settled(row: Row) -> bool:
    """Whether nothing of ours is left to do."""
    steps = row["steps"]
    return all(s in steps and steps[s]["status"] in ("pass", "torch refuses") for s in OURS)


def detail(outcome: Row) -> str:
    """The error of a step that ran, or why it did not."""
    left = "; ".join(outcome.get("left", ()))
    found = outcome.get("reason") or left
    if found or not passed(outcome):
        return f"{outcome['status']} {found or _number(outcome.get('error'), '.1e')}"
    return _number(outcome.get("error"), ".1e") or "pass"


# -- tables --------------------------------------------------------------------------------------
def correctness(rows: Sequence[Row]) -> Iterator[str]:
    """Markdown: a line an architecture with the errors of our steps."""
    yield f"| network | {' | '.join(f'{s}: error' for s in OURS)} | graph nodes | import s |"
    yield f"|---|{'---|' * (len(OURS) + 2)}"
    for row in rows:
        cells = [_error(row["steps"].get(step)) for step in OURS]
        export = row["steps"].get("export", {})
        cells += [str(export.get("nodes", "")), _number(export.get("import_s"), ".2f")]
        yield f"| {row['name']} | {' | '.join(cells)} |"


def _error(outcome: Row | None) -> str:
    if outcome is None:
        return ""
    return _number(outcome.get("error"), ".1e") if passed(outcome) else outcome["status"]


# Heading -> the variant whose time a call it has.
CALLS = {
    "torch.compile": "relax2xla",
    "exported": "exported",
    "eager": "eager",
    "Inductor": "inductor",
    "TVM": "tvm",
}
# Heading -> the variants whose ratio it has.
RATIOS = {
    "torch.compile to eager": ("relax2xla", "eager"),
    "torch.compile to Inductor": ("relax2xla", "inductor"),
    "exported to TVM": ("exported", "tvm"),
}
# Heading -> the step whose first call it has.
FIRST = {
    "torch.compile": "torch.compile",
    "Inductor": "inductor",
    "exported": "export",
    "TVM": "tvm",
    "torch.compile for another batch": "other batches",
}


def _ratio(row: Row, pair: tuple[str, str]) -> float | None:
    """Of two variants that take turns the median of each turn's; of TVM that of the medians."""
    times = row["steps"].get("times", {})
    if pair[1] != "tvm":
        return times.get("ratio", {}).get("/".join(pair))
    ours, theirs = times.get("cpu_ms", {}).get(pair[0]), row["steps"].get("tvm", {}).get("cpu_ms")
    tvm = row["steps"].get("tvm", {"status": ""})
    return ours / theirs if ours and theirs and passed(tvm) else None


def _time(row: Row, variant: str) -> str:
    """Milliseconds a call, or in a word why there are none."""
    steps = row["steps"]
    peer = steps.get(variant)
    if peer is not None and not passed(peer):
        return peer["status"]
    found = peer.get("cpu_ms") if variant == "tvm" and peer else None
    found = found or steps.get("times", {}).get("cpu_ms", {}).get(variant)
    return _number(found, ".2f")


def times(rows: Sequence[Row]) -> Iterator[str]:
    """Markdown: a line an architecture with times beside the peers, and means of the ratios."""
    heads = [f"{name} ms" for name in CALLS]
    heads += list(RATIOS)
    heads += [f"first call s: {name}" for name in FIRST]
    yield f"| network | {' | '.join(heads)} |"
    yield f"|---|{'---|' * len(heads)}"
    for row in rows:
        cells = [_time(row, variant) for variant in CALLS.values()]
        ratios = [_ratio(row, pair) for pair in RATIOS.values()]
        cells += [_number(r, ".2g" if r and r < 0.1 else ".2f") for r in ratios]
        firsts = (row["steps"].get(step, {}) for step in FIRST.values())
        cells += [_number(o.get("first_s") if o and passed(o) else None, ".1f") for o in firsts]
        yield f"| {row['name']} | {' | '.join(cells)} |"


def means(rows: Sequence[Row]) -> str:
    """A sentence: the geometric mean of each ratio."""
    parts: list[str] = []
    for name, pair in RATIOS.items():
        found = [x for row in rows if (x := _ratio(row, pair))]
        if found:
            mean = statistics.geometric_mean(found)
            parts.append(f"{name} {mean:.2f} ({len(found)} networks)")
    return f"Geometric means of the ratios: {', '.join(parts)}."


def _number(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def notes(rows: Sequence[Row]) -> Iterator[str]:
    """What went wrong: of ours a line a network and step, of the peers a line a reason."""
    for row in rows:
        for step, outcome in row["steps"].items():
            if step not in PEERS and outcome["status"] != "pass":
                yield f"- {row['name']}, {step}: {_escaped(detail(outcome))}"
    for step, peer in PEERS.items():
        reasons: dict[str, list[str]] = defaultdict(list)
        for row in rows:
            outcome = row["steps"].get(step)
            if outcome is not None and outcome["status"] not in ("pass", "not run"):
                reasons[_escaped(detail(outcome))].append(row["name"])
        for reason, names in reasons.items():
            yield f"- {peer}, {', '.join(names)}: {reason}"


def _escaped(text: str) -> str:
    """Without what Markdown would take for marks, and without the places of files."""
    text = text.partition(", /")[0].partition(" at /")[0]
    for mark in "<>|*_`":
        text = text.replace(mark, f"\\{mark}")
    return text if len(text) <= 200 else f"{text[:200]} ..."


# -- the page ------------------------------------------------------------------------------------
def _versions(rows: Sequence[Row]) -> str:
    """All that occur, in order."""
    found: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        for package, version in row["versions"].items():
            found[package].add(version)
        if version := row["steps"].get("tvm", {}).get("version"):
            found["TVM"].add(version)
    return ", ".join(f"{package} {' and '.join(sorted(v))}" for package, v in found.items())


def write(
    results: Mapping[str, Row], names: Sequence[str], deep: Sequence[str], speed: Sequence[str]
) -> None:
    """Replace the tables in their page, in the order of ``names``, and the sums of them.

    ``deep`` and ``speed``, the tables of imports and of full-size networks, stay as they are in the
    page where they were not made anew.
    """
    head, _, rest = PAGE.read_text().partition(BEGIN)
    old, _, tail = rest.partition(END)
    kept, _, fast = old.partition(SPEED)
    deep = deep or kept.partition(IMPORTS)[2].strip().splitlines()
    speed = speed or fast.strip().splitlines()
    rows = [results[n] for n in names if n in results]
    agree: list[str] = []
    for step in OURS:
        tried = [row["steps"][step] for row in rows if step in row["steps"]]
        agree.append(f"{step} {sum(map(passed, tried))} of {len(tried)}")
    of_all = (
        f"Of {len(names)} architectures in the list {len(rows)} were run. With eager torch agree: "
        f"{', '.join(agree)}."
    )
    lines = [
        BEGIN,
        f"{_versions(rows)}. `python -m benchmarks torch_models` makes these tables.",
        "",
        of_all,
        "",
        "An error is the largest difference from eager torch beside the largest value of its "
        "output; where rounding takes that beyond 1e-4, it is the difference from torch in "
        "float64, if that is less.",
        "",
        *correctness(rows),
        "",
        TIMES,
        "",
        means(rows),
        "",
        *times([row for row in rows if "times" in row["steps"]]),
        "",
        *notes(rows),
    ]
    for title, table in ((IMPORTS, deep), (SPEED, speed)):
        if table:
            lines += ["", title, "", *table]
    PAGE.write_text(head + "\n".join(lines).rstrip() + "\n" + END + tail)
    before, _, rest = SUMS.read_text().partition(BEGIN)
    link = f"[The tables](results/{PAGE.name})."
    after = rest.partition(END)[2]
    SUMS.write_text(f"{before}{BEGIN}\n{of_all} {means(rows)} {link}\n{END}{after}")
