"""Where the time of one call goes: by region and host function, and by operation of the source."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from relax2xla.vm import xla
from relax2xla.vm.timing import leaves

if TYPE_CHECKING:
    from relax2xla.vm.calls import Calls


@dataclass(frozen=True, slots=True)
class Row:
    """Calls of one name, or steps of one operation: how many, and the seconds of all of them."""

    name: str
    count: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Report:
    """One call of ``function``.

    ``calls``: XLA programs by function and region, packed functions and builtins, each waited for.
    ``operations``: XLA's own steps by the source's name for them; they run inside of the programs,
    on several threads perhaps. ``seconds``: the whole call.
    """

    function: str
    seconds: float
    calls: tuple[Row, ...]
    operations: tuple[Row, ...]

    def table(self) -> str:
        """Both lists as text, the longest first."""
        lines = [f"{self.function}: {self.seconds * 1e3:.3f} ms"]
        for title, rows in (("call", self.calls), ("operation", self.operations)):
            if not rows:
                continue
            width = max(len(title), *(len(r.name) for r in rows))
            total = sum(r.seconds for r in rows) or 1.0
            lines += ["", f"{title:{width}s}  count        us      %"]
            lines += [
                f"{r.name:{width}s}  {r.count:5d}  {r.seconds * 1e6:8.1f}  "
                f"{100 * r.seconds / total:5.1f}"
                for r in rows
            ]
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.table()

    def json(self) -> str:
        """The report as JSON."""
        rows = {
            name: [{"name": r.name, "count": r.count, "seconds": r.seconds} for r in found]
            for name, found in (("calls", self.calls), ("operations", self.operations))
        }
        return json.dumps({"function": self.function, "seconds": self.seconds, **rows})


def profile(machine: Calls, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Report:
    """See ``VirtualMachine.profile``."""
    from relax2xla.vm import trace

    placed = machine.function(name).placed(args, kwargs)
    calls: list[tuple[str, float]] = []

    def hook(func: Any, symbol: str, /, *given: Any) -> Any:
        prepare = getattr(func, "prepare", None)
        if prepare is not None:
            prepare(given)
        start = time.perf_counter()
        result = func(*given)
        xla.block([v for v in leaves(result) if xla.is_array(v)])
        calls.append((symbol, time.perf_counter() - start))
        return result

    run = machine.runner(name, hook)
    took: list[float] = []

    def timed() -> None:
        start = time.perf_counter()
        run(*placed)
        took.append(time.perf_counter() - start)

    steps = trace.record(timed, ())
    programs = [p for loaded in machine.programs().values() for p in loaded]
    named: dict[str, str] = {}
    for program in programs:
        for op, source in trace.source_names(program.hlo_text()).items():
            named.setdefault(op, source)
    operations = ((named.get(s.op) or s.op, s.duration / 1e9) for s in steps)
    return Report(name, took[0], _rows(calls), _rows(operations))


def _rows(found: Iterable[tuple[str, float]]) -> tuple[Row, ...]:
    """One row a name, the longest first."""
    total: dict[str, tuple[int, float]] = {}
    for name, seconds in found:
        count, sum_ = total.get(name, (0, 0.0))
        total[name] = (count + 1, sum_ + seconds)
    rows = (Row(name, count, seconds) for name, (count, seconds) in total.items())
    return tuple(sorted(rows, key=lambda r: -r.seconds))
