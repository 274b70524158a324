"""What XLA did while something ran: its own events, with the source's names for its steps.

Events come from XLA's profiler (``jax.profiler``): one for each step of a compiled program that
ran, with the time that it took. A step is an instruction of the optimised HLO, often a fusion of
several operations of the source; its name in the source is that of the operation it ends in, or
of the last one that has a name. What has no name is called by its file and line.
"""

from __future__ import annotations

import bisect
import json
import math
import re
import tempfile
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

import jax

# An instruction of HLO text: its name, what it gives, and the source's name.
_INSTRUCTION: Final = re.compile(
    r"^\s*(?:ROOT )?%?([\w.-]+) = (.+?) ([\w-]+)\((.*?)(?:metadata=\{([^}]*)\}.*)?$"
)
_OP_NAME: Final = re.compile(r'op_name="((?:[^"\\]|\\.)*)"')
_PLACE: Final = re.compile(r'source_file="(?:[^"]*[/\\])?([^"/\\]*)" source_line=(\d+)')
_COMPUTATION: Final = re.compile(r"^(?:ENTRY )?%?([\w.-]+) \(.*\{$")
_TARGET: Final = re.compile(r'custom_call_target="([^"]+)"')
_CALLS: Final = re.compile(r"\bcalls=%?([\w.-]+)")
# Around the run of a program, in XLA's record: the program's number follows.
_MARK: Final = "relax2xla program "
#: The number of what the record is not to have.
LEFT_OUT: Final = -1
_SHAPE: Final = re.compile(r"([a-z]+[0-9]*[a-z0-9]*)\[([\d,]*)\]")
_BITS: Final = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a program that ran; times in nanoseconds from the beginning of the record."""

    op: str
    source: str
    start: float
    duration: float
    thread: str


@dataclass(frozen=True, slots=True)
class Value:
    """One value of a compiled program: the instruction that makes it, and its bytes.

    target: what a custom call calls
    """

    op: str
    source: str
    kind: str
    bytes: int
    target: str = ""


def mark(program: int) -> AbstractContextManager[None]:
    """Says to :func:`record` that what runs inside, until it is waited for, is that program."""
    return jax.profiler.TraceAnnotation(f"{_MARK}{program}")


def record(run: Callable[[], object], hlo: Sequence[str]) -> list[Step]:
    """The steps of compiled programs while ``run()`` runs, which waits until all is computed.

    ``hlo``: the texts of the optimised programs, for the source's names, by the numbers of their
    marks; ``run`` may add to it. Different programs have steps of the same names, so a step that
    no mark is around has no source.
    """
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    options.host_tracer_level = 3
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder, profiler_options=options):
            run()
        names = [source_names(text) for text in hlo]
        files = sorted(Path(folder).rglob("*.xplane.pb"))
        # From Python 3.12 on, jaxlib's types warn as they are made, and it does not survive that
        # as an error.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            steps = [
                s for f in files for s in _steps(jax.profiler.ProfileData.from_file(str(f)), names)
            ]
    return sorted(steps, key=lambda s: s.start)


def _steps(data: Any, names: Sequence[Mapping[str, str]]) -> Iterable[Step]:
    events = [(p, line, e) for p in data.planes for line in p.lines for e in line.events]
    runs = sorted(
        (e.start_ns, e.start_ns + e.duration_ns, int(e.name.removeprefix(_MARK)))
        for _, _, e in events
        if e.name.startswith(_MARK)
    )
    for plane, line, event in events:
        op = dict(event.stats).get("hlo_op")
        if op is None or event.name != op:
            continue
        at = bisect.bisect(runs, (event.start_ns, math.inf, 0)) - 1
        number = runs[at][2] if at >= 0 and event.start_ns <= runs[at][1] else None
        if number != LEFT_OUT:
            source = "" if number is None else names[number].get(op, "")
            yield Step(op, source, event.start_ns, event.duration_ns, f"{plane.name} {line.name}")


def by_source(steps: Iterable[Step]) -> list[tuple[str, float, int]]:
    """Name (the source's, else XLA's), nanoseconds and number of steps, the longest first."""
    return by_name((s.source or s.op, s.duration) for s in steps)


def by_name(times: Iterable[tuple[str, float]]) -> list[tuple[str, float, int]]:
    """One row a name: its times together and how many there were, the longest first."""
    total: dict[str, tuple[float, int]] = {}
    for name, time in times:
        before, count = total.get(name, (0.0, 0))
        total[name] = (before + time, count + 1)
    return sorted(((n, t, c) for n, (t, c) in total.items()), key=lambda row: -row[1])


def write_chrome_trace(file: IO[bytes], steps: Sequence[Step]) -> None:
    """Write steps as JSON that chrome://tracing and Perfetto show."""
    threads = {t: i for i, t in enumerate(dict.fromkeys(s.thread for s in steps))}
    events: list[dict[str, Any]] = [
        {"ph": "M", "pid": 0, "tid": i, "name": "thread_name", "args": {"name": t}}
        for t, i in threads.items()
    ]
    events += [
        {
            "ph": "X",
            "pid": 0,
            "tid": threads[s.thread],
            "name": s.source or s.op,
            "ts": s.start / 1e3,
            "dur": s.duration / 1e3,
            "args": {"hlo_op": s.op, "source": s.source},
        }
        for s in steps
    ]
    file.write(json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}).encode())


# -- HLO -------------------------------------------------------------------------------------------
def source_names(hlo: str) -> dict[str, str]:
    """The source's names of the instructions of an HLO text, by the names of their steps.

    A step has its instruction's name, and XLA's own calls into oneDNN have their target behind it.
    """
    named = [v for v in _instructions(hlo) if v.source]
    return {v.op: v.source for v in named} | {f"{v.op}{v.target}": v.source for v in named}


def largest_values(hlo: str, count: int = 10) -> list[Value]:
    """The largest values that the program computes, parameters left out, the largest first."""
    entry = hlo[hlo.find("\nENTRY") :]
    skipped = ("parameter", "bitcast", "tuple", "get-tuple-element", "constant")
    made = [v for v in _instructions(entry) if v.kind not in skipped]
    return sorted(made, key=lambda v: -v.bytes)[:count]


def _instructions(hlo: str) -> Iterable[Value]:
    inside = ""
    # The last name in each computation, for the fusions of it that have none of their own.
    last: dict[str, str] = {}
    for line in hlo.splitlines():
        header = _COMPUTATION.match(line)
        if header is not None:
            inside = header[1]
        found = _INSTRUCTION.match(line)
        if found is None:
            continue
        name = _OP_NAME.search(found[5] or "")
        place = _PLACE.search(found[5] or "")
        called = _CALLS.search(line)
        source = name[1] if name else f"{place[1]}:{place[2]}" if place else ""
        if not source and called is not None:
            source = last.get(called[1], "")
        if source:
            last[inside] = source
        target = _TARGET.search(line) if found[3] == "custom-call" else None
        target_name = target[1] if target is not None else ""
        yield Value(found[1], source, found[3], _bytes(found[2]), target_name)


def _bytes(shape: str) -> int:
    """Bytes of an HLO shape such as ``f32[2,3]{1,0}``, or of the tuple of several."""
    total = 0
    for dtype, dims in _SHAPE.findall(shape):
        bits = _BITS.search(dtype)
        width = int(bits[0]) if bits else 8
        total += math.prod(int(d) for d in dims.split(",") if d) * max(1, width // 8)
    return total
