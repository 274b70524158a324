"""Every case of TVM's own test files that fails here, with its reason (``tvm_cases.tsv``).

TVM's tests are no part of this project, so what they gave is read from where they ran::

    python -m tests.parity.tvm_cases 0.20 FOLDER

FOLDER: a file of JSON lines for each test file, each with the ``id`` of a case and its ``outcome``.
What fails without a reason is printed, and the rows none of whose cases failed; the exit code is 1
where there are any of the former.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

TABLE = Path(__file__).with_name("tvm_cases.tsv")
_FAILED = ("failed", "error", "crash")


class Row(NamedTuple):
    """Versions of TVM, names of test files and a pattern of their cases, and why these fail."""

    versions: frozenset[str]
    files: frozenset[str]
    cases: str
    reason: str

    def explains(self, version: str, case: str) -> bool:
        """Whether it speaks of a case: ``test_file.py::test_case[...]``."""
        file, _, name = case.partition(".py::test_")
        known = version in self.versions and file.removeprefix("test_") in self.files
        return known and re.fullmatch(self.cases, name) is not None


def rows() -> list[Row]:
    """The table."""
    lines = TABLE.read_text().splitlines()[1:]
    split = [line.split("\t") for line in lines]
    return [Row(frozenset(v.split()), frozenset(f.split()), c, r) for v, f, c, r in split]


def outcomes(folder: Path) -> dict[str, str]:
    """The cases of a folder by their outcome; a failed setup or end of one counts."""
    found: dict[str, str] = {}
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_text().splitlines():
            case = json.loads(line)
            name = str(case["id"]).rpartition("/")[2]
            if found.get(name) not in _FAILED:
                found[name] = str(case["outcome"])
    return found


def unexplained(
    version: str, found: Mapping[str, str], table: Iterable[Row]
) -> tuple[list[str], list[Row]]:
    """Failed cases that no row speaks of, and rows of the version that speak of none."""
    failed = [case for case, outcome in found.items() if outcome in _FAILED]
    mine = [row for row in table if version in row.versions]
    lost = [c for c in failed if not any(row.explains(version, c) for row in mine)]
    return lost, [row for row in mine if not any(row.explains(version, c) for c in failed)]


def main(version: str, folder: str) -> int:
    """Print what is not as the table says."""
    found = outcomes(Path(folder))
    if not found:
        sys.stdout.write(f"no cases in {folder}: it holds files of JSON lines (*.jsonl)\n")
        return 2
    lost, stale = unexplained(version, found, rows())
    out = [f"no reason: {case}" for case in lost]
    out += [f"none fails: {', '.join(sorted(r.files))}: {r.cases}" for r in stale]
    out.append(f"{len(lost)} without a reason, {len(stale)} rows of none\n")
    sys.stdout.write("\n".join(out))
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
