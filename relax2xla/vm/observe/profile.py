"""Where the time of one call goes: by region and host function, and by operation of the source."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

from relax2xla.script import html
from relax2xla.vm.observe import trace
from relax2xla.vm.observe.instrument import Hook
from relax2xla.vm.observe.timing import leaves
from relax2xla.vm.pjrt import compiler, xla


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
    on several threads perhaps. ``seconds``: the whole call, without compiling. ``steps``: each
    step in order, see ``vm.observe.trace``.
    """

    function: str
    seconds: float
    calls: tuple[Row, ...]
    operations: tuple[Row, ...]
    steps: tuple[trace.Step, ...] = field(default=(), repr=False)

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

    def __repr__(self) -> str:
        counted = f"calls: {len(self.calls)}, operations: {len(self.operations)}"
        return f"<profile of {self.function}: {self.seconds * 1e3:.3f} ms, {counted}>"

    def _repr_html_(self) -> str:
        """What a notebook shows: both lists as tables."""
        parts: list[str] = []
        for title, rows in (("calls", self.calls), ("operations", self.operations)):
            total = sum(r.seconds for r in rows) or 1.0
            cells = [
                (r.name, r.count, f"{r.seconds * 1e6:.1f}", f"{100 * r.seconds / total:.1f}")
                for r in rows
            ]
            if cells:
                parts.append(html.table(title, ("name", "count", "us", "%"), cells))
        return html.joined(f"{self.function}: {self.seconds * 1e3:.3f} ms", parts)

    def json(self) -> str:
        """The report as JSON."""
        rows = {
            name: [{"name": r.name, "count": r.count, "seconds": r.seconds} for r in found]
            for name, found in (("calls", self.calls), ("operations", self.operations))
        }
        return json.dumps({"function": self.function, "seconds": self.seconds, **rows})


def profile(
    name: str,
    runner: Callable[[Hook], Callable[..., Any]],
    args: Sequence[Any],
    program_of: Callable[[Any, Sequence[Any]], compiler.Loaded | None],
) -> Report:
    """See ``VirtualMachine.profile``.

    runner: the function ``name``, whose calls go by a hook; args: on the device. program_of: the
    program of a function for arguments, with the source's names, where it is one.
    """
    calls: list[tuple[str, float]] = []
    # The programs that ran, each once, and their texts.
    numbers: dict[compiler.Loaded, int] = {}
    texts: list[str] = []
    compiling = 0.0

    def hook(func: Any, symbol: str, /, *given: Any) -> Any:
        nonlocal compiling
        start = time.perf_counter()
        with trace.mark(trace.LEFT_OUT):
            program = program_of(func, given)
        if program is not None and program not in numbers:
            numbers[program] = len(numbers)
            texts.append(program.hlo_text())
        compiled = time.perf_counter()
        compiling += compiled - start
        with nullcontext() if program is None else trace.mark(numbers[program]):
            result = func(*given)
            xla.block([v for v in leaves(result) if xla.is_array(v)])
        calls.append((symbol, time.perf_counter() - compiled))
        return result

    run = runner(hook)
    took: list[float] = []

    def timed() -> None:
        start = time.perf_counter()
        run(*args)
        took.append(time.perf_counter() - start - compiling)

    steps = trace.record(timed, texts)
    ran = [Row(n, count, t) for n, t, count in trace.by_name(calls)]
    operations = [Row(n, count, ns / 1e9) for n, ns, count in trace.by_source(steps)]
    return Report(name, took[0], tuple(ran), tuple(operations), tuple(steps))
