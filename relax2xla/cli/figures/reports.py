"""What ``relax2xla run`` reports beside results: time by source name, a trace, memory."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from relax2xla.cli.process.console import note, out, size, table
from relax2xla.importers.files import write_atomically

if TYPE_CHECKING:
    from relax2xla.vm.call.machine import VirtualMachine
    from relax2xla.vm.observe.profile import Row

# Lines of a table.
_MOST = 20


@dataclass(frozen=True, slots=True)
class Reports:
    """Which reports the user asks for; ``trace`` is the file to write."""

    profile: bool = False
    trace: Path | None = None
    memory: bool = False


def report(
    machine: VirtualMachine,
    name: str,
    args: Sequence[Any],
    reports: Reports,
    as_json: bool = False,
) -> dict[str, Any] | None:
    """Time by region and by source name, and a trace, of one more call of ``name``.

    ``as_json``: give the times, if they are asked for, as plain data instead of printing them.
    """
    if not reports.profile and reports.trace is None:
        return None
    from relax2xla.vm.observe.trace import write_chrome_trace

    found = machine.profile(name, *args)
    if reports.profile and not as_json:
        out()
        if len(found.calls) > 1:
            table(("call", *_TIMES, "count"), times(found.calls), "time in programs and functions")
            out()
        table(("source", *_TIMES, "steps"), times(found.operations), "time in XLA's steps")
    if reports.trace is not None:
        write_atomically(reports.trace, lambda file: write_chrome_trace(file, found.steps))
        note(f"wrote {reports.trace}: {len(found.steps)} steps")
    return json.loads(found.json()) if reports.profile else None


_TIMES = ("us", "%")


def times(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """Rows of a table, the most first, with what is left out and the total."""
    total = sum(r.seconds for r in rows)
    shown = [(r.name, r.seconds, r.count) for r in rows[:_MOST]]
    if rest := rows[_MOST:]:
        name = f"other ({len(rest)})"
        shown.append((name, sum(r.seconds for r in rest), sum(r.count for r in rest)))
    shown.append(("total", total, sum(r.count for r in rows)))
    return [
        (name, f"{1e6 * seconds:.1f}", f"{100 * seconds / (total or 1.0):.1f}", str(count))
        for name, seconds, count in shown
    ]


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
    from relax2xla.vm.observe.trace import largest_values
    from relax2xla.vm.pjrt.compiler import Loaded

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
