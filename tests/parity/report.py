"""docs/parity.md from the comparison of programs and the names of the documentation.

``python -m tests.parity.report`` writes it; a test holds that it is current.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.parity import api, corpus, known

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "parity.md"
VERDICTS = (
    "same text", "both refuse", "other text", "only TVM refuses", "only relax2xla refuses",
)  # fmt: skip
HEAD = """# Parity with TVM

Written by `python -m tests.parity.report`; do not edit. The reference is TVM 0.25, the last release
with StructInfo, whose answers are kept in `tests/parity/facts.json`. Set `RELAX2XLA_TVM` to a
Python that has it to check these answers again.

## Programs

Each program is parsed and printed by both. The printed text holds every operator, attribute,
annotation and the struct info of every binding. Ours is also parsed again and must give the same
program back."""


def _programs(counts: Mapping[tuple[str, str], int]) -> Iterator[str]:
    categories = sorted({c for c, _ in counts})
    yield "| programs | " + " | ".join(VERDICTS) + " |"
    yield "|---" * (len(VERDICTS) + 1) + "|"
    for c in categories:
        yield f"| {c} | " + " | ".join(str(counts.get((c, v), 0)) for v in VERDICTS) + " |"
    total = Counter({v: sum(n for (_, w), n in counts.items() if w == v) for v in VERDICTS})
    yield "| all | " + " | ".join(str(total[v]) for v in VERDICTS) + " |"
    yield ""
    yield "Every difference, with its reason:"
    yield ""
    for verdict, why in known.reasons():
        yield f"- *{verdict}*: {why}."


def _analyses() -> Iterator[str]:
    yield "`all_vars`, `bound_vars`, `free_vars`, `all_global_vars`, the order of"
    yield "`post_order_visit`, `udchain`, `name_to_binding`, `get_var2val`,"
    yield "`contains_impure_call`, `remove_all_unused` and `detect_recursion` of the programs"
    yield "that are written by hand, and `well_formed` of programs that are made node by node,"
    yield "most of them wrong. Every difference, with its reason:"
    yield ""
    for name, why in {**known.KNOWN_ANALYSES, **known.KNOWN_WELL_FORMED}.items():
        yield f"- `{name}`: {why}."


def _names() -> Iterator[str]:
    rows = [(e, *api.status(e)) for e in api.entries()]
    kinds = ("present", "other parameters", "replaced", "later", "not planned", "absent")
    for what, part in (
        ("names", [r for r in rows if "#" not in r[0].name]),
        ("promises in prose", [r for r in rows if "#" in r[0].name]),
    ):
        found = Counter(s for _, s, _ in part)
        shown = ", ".join(f"{found[k]} {k}" for k in kinds if found[k])
        yield f"{len(part)} {what}: {shown}."
    yield ""
    yield "A promise in prose is written `name#promise`; it is present where tests cover it."
    yield "Each test that is named exists (a test holds that)."
    yield ""
    yield "| name in TVM | here | status | tests |"
    yield "|---|---|---|---|"
    for e, status, why in sorted(rows):
        here = status in ("present", "other parameters")
        ours = f"`{api.home(e.name)}`" if here and "#" not in e.name else ""
        tests = "<br>".join(t.removeprefix("tests/") for t in api.cover(e.name)) if here else ""
        remark = f"{status}: {why}" if why else status
        yield f"| `{e.name}` | {ours} | {remark} | {tests} |"


def _used() -> Iterator[str]:
    absent: list[tuple[str, int]] = []
    count = 0
    for name, files in api.used():
        count += 1
        try:
            api.find(api.home_of_used(name))
        except LookupError:
            absent.append((name, files))
    yield f"Of {count} names that three or more of TVM's graph-level test files use, "
    yield f"{count - len(absent)} are here. The others:"
    yield ""
    for name, files in absent:
        yield f"- `{name}` ({files} files): {': '.join(api.elsewhere(name) or ('absent',))}"


def document(counts: Mapping[tuple[str, str], int]) -> str:
    """The text of docs/parity.md."""
    equal, proofs = len(corpus.pairs()), len(corpus.proofs())
    lines = [
        HEAD, "", *_programs(counts), "", "## Structural equality", "",
        f"{equal} pairs of programs that differ in one thing (a name, an attribute, a dtype, a "
        f"flag, a block): {len(known.KNOWN_PAIRS)} verdicts differ. Equal programs have equal "
        "hashes.", "", "## Analyses", "", *_analyses(), "", "## Symbolic arithmetic", "",
        f"`simplify` of {len(corpus.TERMS)} terms: {len(known.KNOWN_SIMPLIFIED)} text differs. "
        f"`can_prove_equal` of {proofs} pairs: whatever TVM proves is proved; "
        f"{len(known.KNOWN_PROOFS)} pairs are proved here only. 521 more terms are in "
        "`tests/tir/cases_tvm.tsv`.", "", "## Names of the documentation", "", *_names(), "",
        "## Names that programs use", "", *_used(), "",
    ]  # fmt: skip
    return "\n".join(line.rstrip() for line in lines)


def main() -> None:
    """Write the document."""
    from tests.parity.test_programs import verdicts

    counts = Counter((n.split("/")[0], v) for n, v in verdicts().items())
    DOCUMENT.write_text(document(counts), "utf-8")


if __name__ == "__main__":
    main()
