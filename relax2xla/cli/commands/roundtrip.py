"""``relax2xla roundtrip``: StableHLO programs read, written back, compared, and run by XLA."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from relax2xla.cli.process.console import note, out, print_json, progress, table
from relax2xla.cli.process.isolate import Worker
from relax2xla.cli.proof.programs import Outcome, check_program, split
from relax2xla.errors import FileFormatError
from relax2xla.importers.files import check_file, format_of, write_atomically

SUFFIXES: Final = (".mlir", ".mlirbc", ".stablehlo")
# MLIR's reader of these trusts them; damaged ones can end the process.
BINARY: Final = (".mlirbc", ".stablehlo")
READABLE: Final = ("mlir", "mlirbc", "stablehlo")
# Of more programs than this, only those that need a look are rows of the table.
ROWS: Final = 40
WORDS: Final = {
    "same": "the same",
    "identical": "text identical",
    "differs": "DIFFERS",
    "unparsed": "not parsed",
    "error": "ERROR",
}


@dataclass(frozen=True, slots=True)
class Settings:
    """What the command line says."""

    run: bool
    as_json: bool
    seed: int
    isolate: bool | None
    timeout: float
    memory: float
    save: Path | None


@dataclass(frozen=True, slots=True)
class Program:
    """One program: its file and, of several in the file, its number."""

    file: Path
    part: int
    parts: int

    @property
    def name(self) -> str:
        """How the table calls it."""
        return f"{self.file}#{self.part + 1}" if self.parts > 1 else str(self.file)


def run_roundtrip(files: Sequence[Path], settings: Settings) -> int:
    """Check all; gives 1 where something differs, 2 where something cannot be read, else 0.

    A program at which a child process ends is saved, in ``settings.save`` or a new folder.
    """
    isolate = settings.isolate
    if isolate is None:
        isolate = any(f.is_dir() or f.suffix.lower() in BINARY for f in files)
    save = settings.save
    if save is not None:
        save.mkdir(parents=True, exist_ok=True)
    programs = [p for f in find(files) for p in _programs(f)]
    found: list[tuple[Program, Outcome]] = []
    with ExitStack() as stack:
        step = stack.enter_context(progress("round trips", len(programs)))
        check = check_program
        if isolate:
            check = stack.enter_context(
                Worker(settings.timeout, int(settings.memory * 2**30))
            ).check
        for p in programs:
            step(p.name)
            outcome = check(p.file, p.part, settings.run, settings.seed)
            found.append((p, outcome))
            if outcome.died or (settings.save and outcome.status in ("differs", "error")):
                save = save or Path(tempfile.mkdtemp(prefix="relax2xla-roundtrip-"))
                _save(p, save)
    counts = Counter(o.status for _, o in found)
    if settings.as_json:
        rows = [{"program": p.name, **asdict(o)} for p, o in found]
        print_json({"programs": rows, "summary": {s: counts[s] for s in WORDS}})
    else:
        _print(found, counts)
    return 1 if counts["differs"] else 2 if counts["unparsed"] or counts["error"] else 0


def find(files: Sequence[Path]) -> Iterator[Path]:
    """Files as given, and the programs in folders, in order and each once."""
    seen: set[Path] = set()
    for file in files:
        inside = [file]
        if file.is_dir():
            inside = sorted(
                p for p in file.rglob("*") if p.suffix.lower() in SUFFIXES and _is_file(p)
            )
            if not inside:
                raise FileFormatError(f"{file} holds no file of the kinds {', '.join(SUFFIXES)}")
        else:
            check_file(file)
            if format_of(file).name not in READABLE:
                raise FileFormatError(
                    f"{file}: round trips are of StableHLO: .mlir, .mlirbc or .stablehlo. Others "
                    "become that by relax2xla convert"
                )
        for path in inside:
            if path.resolve() not in seen:
                seen.add(path.resolve())
                yield path


def _is_file(path: Path) -> bool:
    """Whether it is for the table: a file, or a link to what is not there."""
    return path.is_file() or (path.is_symlink() and not path.exists())


def _programs(file: Path) -> list[Program]:
    try:
        count = len(split(file.read_bytes()))
    except OSError:
        count = 1  # the check says why it cannot be read
    return [Program(file, i, count) for i in range(count)]


def _save(program: Program, folder: Path) -> None:
    try:
        data = split(program.file.read_bytes())[program.part]
    except OSError:
        return  # the table says that it cannot be read
    number = f"-{program.part + 1}" if program.parts > 1 else ""
    target = folder / f"{program.file.stem}{number}{program.file.suffix}"
    write_atomically(target, lambda stream: stream.write(data))
    note(f"saved {target}")


def _print(found: Sequence[tuple[Program, Outcome]], counts: Counter[Any]) -> None:
    shown = found
    if len(found) > ROWS:
        shown = [(p, o) for p, o in found if o.status in ("differs", "unparsed", "error")]
    if shown:
        rows = [
            (p.name, str(o.ops), f"{o.seconds:.2f}", WORDS[o.status], o.detail) for p, o in shown
        ]
        table(("program", "calls", "seconds", "result", "remark"), rows)
        out()
    if len(shown) < len(found):
        reasons = Counter(o.detail for _, o in found if o.status == "identical" and o.detail)
        for reason, count in reasons.most_common(10):
            out(f"{count} {reason}")
    parts = [f"{counts[s]} {word}" for s, word in WORDS.items() if counts[s]]
    what = "program" if len(found) == 1 else "programs"
    out(f"{len(found)} {what}: {', '.join(parts)}")
