# ruff: noqa: T201  (this is a program)
"""``python -m tests.fuzz [TARGET ...]``: random inputs until the time is up, then the findings.

An input is known by its target and number: ``python -m tests.fuzz onnx --only 17 --keep out``
tries one again, in this process, and keeps it as a file.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import traceback
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.fuzz.engine import TARGETS, Count, Outcome, campaign, load_target, tried
from tests.fuzz.target import Target


def main() -> int:
    """Run targets; 1 where something was found."""
    listing = "\n".join(f"  {n:13s} {load_target(n).title}" for n in TARGETS)
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz",
        description=f"{__doc__}\n\nTargets:\n{listing}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="by default all")
    parser.add_argument("--seconds", type=float, help="time for all targets (60)")
    parser.add_argument("--inputs", type=int, help="inputs of each target, whatever time they take")
    parser.add_argument("--first", type=int, default=0, help="number of the first input (0)")
    parser.add_argument("--only", type=int, help="try this input alone, here, and say all about it")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="with --only: keep it as a file")
    parser.add_argument("--jobs", type=int, default=2, help="processes (2)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write outcomes and counts")
    args = parser.parse_args()
    if unknown := set(args.targets) - set(TARGETS):
        parser.error(f"there is no target {', '.join(sorted(unknown))}; see --help")
    names = args.targets or list(TARGETS)
    if args.only is not None:
        return one(names, args.only, args.keep)
    many = args.inputs if args.inputs is not None else 10**9
    numbers = range(args.first, args.first + many)
    share = float("inf") if args.inputs is not None else (args.seconds or 60.0) / len(names)
    if args.inputs is not None and args.seconds is not None:
        share = args.seconds / len(names)
    counts: dict[str, Count] = {}
    for name in names:
        sys.stderr.write(f"{name}: {load_target(name).title}\n")
        counts[name] = campaign(name, numbers, share, args.jobs, Progress())
        sys.stderr.write("\n")
    print(table(counts))
    found = [f for c in counts.values() for f in c.findings.items()]
    for (target, *_), outcomes in sorted(found, key=lambda f: -len(f[1])):
        first = outcomes[0]
        print(
            f"\n{target}: {first.kind} x{len(outcomes)} at {first.at or '?'}, "
            f"inputs {', '.join(str(o.number) for o in outcomes[:5])}\n  {first.detail}"
        )
    if args.json:
        args.json.write_text(json.dumps({n: plain(c) for n, c in counts.items()}, indent=1))
    return int(bool(found))


def one(names: list[str], number: int, keep: Path | None) -> int:
    """Try one input in this process."""
    import tempfile

    (name,) = names
    target = load_target(name)
    target.phase = lambda text: print(f"phase: {text}", flush=True)
    with tempfile.TemporaryDirectory(prefix="relax2xla-fuzz-") as folder:
        target.prepare(Path(folder))
        made = target.input(number)
        if keep:
            print(kept(target, number, keep))
        try:
            print("accepted:", target.attempt(made, Path(folder)))
        except Exception:
            traceback.print_exc()
        found = tried(target, number, Path(folder))
    print(found)
    return int(found.is_finding)


def kept(target: Target, number: int, folder: Path) -> Path:
    """The file that an input was written to."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{target.name}-{number}{target.suffix}"
    path.write_bytes(target.show(target.input(number)))
    return path


class Progress:
    """A line of counts on standard error, and findings as they come."""

    def __init__(self) -> None:
        self.last = 0.0

    def __call__(self, found: Outcome, count: Count) -> None:
        if found.is_finding and len(count.findings[found.signature]) == 1:
            sys.stderr.write(f"\n  {found.kind} {found.number}: {found.at} {found.detail[:160]}\n")
        if time.monotonic() - self.last > 0.5:
            self.last = time.monotonic()
            sys.stderr.write(f"\r  {count.inputs} inputs, {dict(count.kinds)}  ")
            sys.stderr.flush()


def table(counts: dict[str, Count]) -> str:
    """Counts as a table in Markdown."""
    kinds = ("accepted", "refused", "endless", "wrong", "leaked", "died", "hung")
    rows = [["target", "inputs", *kinds, "ms each"]]
    for name, count in counts.items():
        each = 1000 * count.seconds / max(count.inputs, 1)
        rows.append([name, str(count.inputs), *(str(count.kinds[k]) for k in kinds), f"{each:.1f}"])
    rows.insert(1, ["---"] * len(rows[0]))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def plain(count: Count) -> dict[str, Any]:
    """A count as plain data."""
    return {
        "inputs": count.inputs,
        "seconds": count.seconds,
        "kinds": dict(count.kinds),
        "details": dict(count.details),
        "findings": [[asdict(o) for o in found] for found in count.findings.values()],
    }


if __name__ == "__main__":
    sys.exit(main())
