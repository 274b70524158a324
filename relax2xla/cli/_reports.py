"""What ``relax2xla run`` reports beside results: time by source name, a trace, memory."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from relax2xla.cli._console import note, out, size, table
from relax2xla.importers.files import write_atomically

if TYPE_CHECKING:
    from relax2xla.vm.machine import VirtualMachine

# Lines of a table.
_MOST = 20


@dataclass(frozen=True, slots=True)
class Reports:
    """Which reports the user asks for; ``trace`` is the file to write."""

    profile: bool = False
    trace: Path | None = None
    memory: bool = False


def report(machine: VirtualMachine, run: Callable[[], object], reports: Reports) -> None:
    """Time by source name, and a trace: ``run`` calls the function once more, and waits."""
    if not reports.profile and reports.trace is None:
        return
    from relax2xla.vm.trace import by_source, record, write_chrome_trace

    programs = [p for loaded in machine.programs().values() for p in loaded]
    steps = record(run, [p.hlo_text() for p in programs])
    if reports.profile:
        total = sum(s.duration for s in steps) or 1.0
        rows = [
            (name, f"{time / 1e3:.1f}", f"{100 * time / total:.1f}", str(count))
            for name, time, count in by_source(steps)[:_MOST]
        ]
        out()
        table(("source", "us", "%", "steps"), rows, "time in XLA's steps")
    if reports.trace is not None:
        write_atomically(reports.trace, lambda file: write_chrome_trace(file, steps))
        note(f"wrote {reports.trace}: {len(steps)} steps")


def compile_ahead(machine: VirtualMachine, function: Any, args: Sequence[Any]) -> None:
    """Compile what a call of ``function`` will run, as far as that is known without running it."""
    prepare = getattr(function, "prepare", None)
    if prepare is None:
        machine.warm(function.name)
    else:
        prepare(function.placed(args, {}))


def report_memory(machine: VirtualMachine, told: Collection[int] = ()) -> set[int]:
    """Print XLA's account of the programs that are loaded; gives their ids, ``told`` among them.

    Those of ``told`` are left out.
    """
    found = [(n, program) for n, loaded in machine.programs().items() for program in loaded]
    for name, program in found:
        if id(program) not in told:
            _memory(name, program)
    return {id(program) for _, program in found}


def _memory(name: str, program: object) -> None:
    """XLA's own account of one program, and its largest values."""
    from relax2xla.vm.trace import largest_values
    from relax2xla.vm.xla import Loaded

    assert isinstance(program, Loaded)
    account = program.memory()
    parts = {
        "arguments and weights": account.argument_size_in_bytes,
        "results": account.output_size_in_bytes,
        "of these in the memory of arguments": account.alias_size_in_bytes,
        "temporaries": account.temp_size_in_bytes,
        "code": account.generated_code_size_in_bytes,
    }
    peak = getattr(account, "peak_memory_in_bytes", 0)
    if peak:
        parts["peak"] = peak
    out()
    table(("memory", "size"), [(n, size(v)) for n, v in parts.items()], f"memory of {name} by XLA")
    rows = [(v.source or v.op, v.kind, size(v.bytes)) for v in largest_values(program.hlo_text())]
    if rows:
        table(("value", "made by", "size"), rows, "largest values that are computed")
