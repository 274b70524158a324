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
# Which tests cover what a name promises: by the prefix of our name, the first that fits.
COVER: tuple[tuple[str, str], ...] = (
    ("relax2xla.expr_functor", "tests/test_expr_functor.py"),
    ("relax2xla.PyExpr", "tests/test_expr_functor.py"),
    ("relax2xla.ExprFunctor", "tests/test_expr_functor.py"),
    ("relax2xla.BlockBuilder", "tests/test_builder.py"),
    ("relax2xla.analysis", "tests/analysis"),
    ("relax2xla.frontend", "tests/importers"),
    ("relax2xla.transform", "tests/transform"),
    ("relax2xla.script", "tests/script"),
    ("relax2xla.tir", "tests/tir"),
    ("relax2xla.target", "tests/parity/test_api.py"),
    ("relax2xla.nd", "tests/parity/test_api.py"),
    ("relax2xla.error", "tests/parity/test_api.py"),
    ("relax2xla.VirtualMachine", "tests/vm"),
    ("relax2xla.VMExecutable", "tests/vm"),
    ("relax2xla.ExecBuilder", "tests/vm"),
    ("relax2xla.build", "tests/vm"),
    ("relax2xla.compile", "tests/vm"),
    ("relax2xla.get_pipeline", "tests/integration"),
    ("relax2xla.call_", "tests/op/test_intrinsic.py"),
    ("relax2xla.cpu", "tests/vm"),
    ("relax2xla.Device", "tests/vm"),
    ("relax2xla.register_func", "tests/vm"),
    ("relax2xla.runtime", "tests/vm"),
    ("relax2xla", "tests/ir"),
)


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


def _names() -> Iterator[str]:
    rows = [(e, *api.status(e)) for e in api.entries()]
    found = Counter(s for _, s, _ in rows)
    yield "| " + " | ".join(found) + " |"
    yield "|---" * len(found) + "|"
    yield "| " + " | ".join(str(n) for n in found.values()) + " |"
    yield ""
    yield "Behaviours are promises in the documentation's prose, without a name of their own."
    yield ""
    yield "| name in TVM | here | status | tests |"
    yield "|---|---|---|---|"
    for e, status, why in sorted(rows):
        if status == "behaviour":
            continue
        ours = api.home(e.name)
        here = status in ("present", "other parameters")
        test = next((t for start, t in COVER if ours.startswith(start)), "") if here else ""
        remark = f"{status}: {why}" if why else status
        yield f"| `{e.name}` | {f'`{ours}`' if here else ''} | {remark} | {test} |"


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
        yield f"- `{name}` ({files} files): {api.later(name) or 'absent'}"


def document(counts: Mapping[tuple[str, str], int]) -> str:
    """The text of docs/parity.md."""
    equal, proofs = len(corpus.pairs()), len(corpus.proofs())
    lines = [
        HEAD, "", *_programs(counts), "", "## Structural equality", "",
        f"{equal} pairs of programs that differ in one thing (a name, an attribute, a dtype, a "
        f"flag, a block): {len(known.KNOWN_PAIRS)} verdicts differ. Equal programs have equal "
        "hashes.", "", "## Symbolic arithmetic", "",
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
