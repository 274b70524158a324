"""What pictures colour operators by: the time that a profile has for them, or their error.

Profiles name the source's operators and layers, as ``run --profile`` prints them. Operators that
share a name share its time: it is one layer of the source, and XLA's steps do not tell them apart.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any, Final

from relax2xla.cli.page.graph import Graph, Node
from relax2xla.errors import FileFormatError, TVMError
from relax2xla.ir import Span

#: The largest profile that is read, in bytes.
MOST_BYTES: Final = 1 << 28
# An error of this part of the tolerance and less has no colour; what is tolerated goes up to the
# limit of the scale, and errors of so many tolerances have all of it.
_LEAST, _LIMIT, _LARGEST = 1e-4, 0.5, 1e4

_FORMS: Final = (
    "expected the JSON of relax2xla run --trace FILE, of run --profile --json, or of "
    "VirtualMachine.profile(...).json()"
)


@dataclass(frozen=True, slots=True)
class Heat:
    """How strongly operators and groups are coloured (0 to 1), and the words for each.

    ``title``: what the colour means; ``remark``: what of it no operator shows
    ``limit``: what is coloured no stronger is within the tolerance; 0 where there is none
    ``layers``: what operators share their colour with: those of the same name here
    """

    title: str
    nodes: Mapping[int, tuple[float, str]] = field(default_factory=dict[int, tuple[float, str]])
    groups: Mapping[int, tuple[float, str]] = field(default_factory=dict[int, tuple[float, str]])
    remark: str = ""
    limit: float = 0.0
    layers: Mapping[int, str] = field(default_factory=dict[int, str])

    def as_dict(self) -> dict[str, Any]:
        """For the page's script."""
        nodes = {i: [round(f, 4), t, self.layers[i]] for i, (f, t) in self.nodes.items()}
        groups = {i: [round(f, 4), t] for i, (f, t) in self.groups.items()}
        words = {"title": self.title, "remark": self.remark, "limit": self.limit}
        return {**words, "nodes": nodes, "groups": groups}


def read_profile(file: Path) -> dict[str, float]:
    """Seconds by the source's names, of a profile or a trace.

    Raises FileFormatError for a file that is neither, or larger than 256 MiB.
    """
    if not file.is_file():
        raise FileFormatError(f"{file}: there is no such file")
    if file.stat().st_size > MOST_BYTES:
        raise FileFormatError(f"{file} has {file.stat().st_size:,} bytes; a profile has fewer")
    try:
        data = json.loads(file.read_bytes())
        data = data.get("profile", data)
        rows = data.get("operations")
        pairs = (
            [(e["name"], e["dur"] / 1e6) for e in data["traceEvents"] if e.get("ph") == "X"]
            if rows is None
            else [(r["name"], r["seconds"]) for r in rows]
        )
        times: dict[str, float] = {}
        for name, seconds in pairs:
            times[str(name)] = times.get(str(name), 0.0) + float(seconds)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise FileFormatError(f"{file} is no profile: {_FORMS}") from None
    if not times or not all(math.isfinite(t) and t >= 0 for t in times.values()):
        raise FileFormatError(f"{file} has no times of operators: {_FORMS}")
    return times


def times_heat(graph: Graph, times: Mapping[str, float], file: str) -> Heat:
    """Operators by the time of their source's names; TVMError where no name is in the graph."""
    total = sum(times.values()) or 1.0
    named = {n.index: key for n in graph.nodes if (key := _key(n, times)) is not None}
    sharing: dict[str, int] = {}
    for key in named.values():
        sharing[key] = sharing.get(key, 0) + 1
    if not named:
        few = ", ".join(list(times)[:3])
        raise TVMError(
            f"{file} has times of {few}, which no operator of the model is called; make the "
            "profile of the same file, with the same --shape"
        )
    most = max(times[key] for key in sharing) or 1.0
    nodes = {
        i: (times[key] / most, _time(times[key], total, sharing[key])) for i, key in named.items()
    }
    held: dict[int, set[str]] = {}
    for i, key in named.items():
        for group in _around(graph, i):
            held.setdefault(group, set()).add(key)
    sums = {g: sum(times[k] for k in keys) for g, keys in held.items()}
    groups = {g: (min(1.0, s / most), _time(s, total, 1)) for g, s in sums.items()}
    lost = 100 * (1 - sum(times[key] for key in sharing) / total)
    remark = f"{lost:.1f} % of the time has no operator here" if lost >= 0.05 else ""
    return Heat("time", nodes, groups, remark, layers=named)


def errors_heat(graph: Graph, errors: Mapping[str, tuple[float, str]]) -> Heat:
    """Operators by the largest error of a value of their layer, with words for it.

    errors: by layer, the error as a multiple of the tolerance
    """
    named = {n.index: key for n in graph.nodes if (key := _key(n, errors)) is not None}
    nodes = {i: (_strength(errors[key][0]), errors[key][1]) for i, key in named.items()}
    groups: dict[int, tuple[float, str]] = {}
    for i, found in nodes.items():
        for group in _around(graph, i):
            groups[group] = max(groups.get(group, found), found)
    departing = sum(share > 1 for share, _ in errors.values())
    remark = f"{departing} of {len(errors)} layers depart" if departing else "nothing departs"
    if lost := len(errors) - len({*named.values()}):
        remark += f"; {lost} layers have no operator here"
    return Heat("error", nodes, groups, remark, _LIMIT, named)


def _strength(share: float) -> float:
    """How strong the colour of an error is: up to ``_LIMIT`` for what is tolerated."""
    if share <= 1:
        return _LIMIT * (1 - math.log(max(share, _LEAST)) / math.log(_LEAST))
    if not math.isfinite(share):
        return 1.0
    return min(1.0, _LIMIT + 0.05 + (1 - _LIMIT) * math.log(share) / math.log(_LARGEST))


def _key(node: Node, known: Mapping[str, Any]) -> str | None:
    """The name of ``node`` in a table by the source's names, or by its place in a file."""
    if node.kind in ("input", "output"):
        return None
    spans = [span for var, value in node.values for span in (value.span, var.span) if span]
    return next((k for k in (node.source, *map(line_of, spans)) if k and k in known), None)


def line_of(span: Span) -> str:
    """File and line of what has no name, as XLA's steps have them."""
    while span.kind in ("callsite", "fused") and span.children:
        span = span.children[0]
    return f"{PurePath(span.file).name}:{span.line}" if span.file else ""


def _around(graph: Graph, node: int) -> list[int]:
    """The groups that ``node`` is in, from the inside out."""
    found: list[int] = []
    at = graph.nodes[node].group
    while at >= 0:
        found.append(at)
        at = graph.groups[at].parent
    return found


def _time(seconds: float, total: float, sharing: int) -> str:
    shared = f", shared by {sharing} operators" if sharing > 1 else ""
    unit, scale = next((u, s) for u, s in _UNITS if seconds * s >= 1 or u == "us")
    digits = 1 if unit == "us" else 2
    return f"{seconds * scale:.{digits}f} {unit}, {100 * seconds / total:.1f} %{shared}"


_UNITS: Final = (("s", 1.0), ("ms", 1e3), ("us", 1e6))
