"""Does a model give the same as eager torch, and if not, where does it first depart?"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch.export import ExportedProgram
from torch.fx import Graph, GraphModule, Interpreter, Node

from relax2xla import IRModule, VirtualMachine, build
from relax2xla.importers.torch.engine.export import import_program
from relax2xla.importers.torch.engine.graph_walk import Options
from relax2xla.importers.torch.engine.main_function import import_once
from relax2xla.importers.torch.engine.tensor_data import as_numpy
from relax2xla.importers.torch.source.capture import capture
from relax2xla.importers.torch.source.program import Output, Program, exported
from relax2xla.importers.torch.source.spans import Spans
from relax2xla.importers.torch.source.torch_internals import pytree
from relax2xla.runtime.device import Device
from relax2xla.script import html

#: Relative and absolute tolerance by dtype, for sums in another order; others agree exactly.
TOLERANCE: Mapping[str, tuple[float, float]] = {
    "float64": (1e-7, 1e-7),
    "complex128": (1e-7, 1e-7),
    "float32": (1e-4, 1e-5),
    "complex64": (1e-4, 1e-5),
    "float16": (1e-2, 1e-3),
    "bfloat16": (2e-2, 1e-2),
}


@dataclass(frozen=True, slots=True)
class Comparison:
    """One value: its ``name``, where the source makes it, the largest error, and what is wrong."""

    name: str
    where: str
    error: float
    problem: str = ""

    @property
    def ok(self) -> bool:
        """Whether it agrees within tolerance."""
        return not self.problem


@dataclass(frozen=True, slots=True)
class Value:
    """A value as it is given (``got``) and as torch gives it (``want``); ``inner``: a tap.

    ``layer``: the path of the module that makes it; "" for the root
    """

    name: str
    where: str
    layer: str
    inner: bool
    got: Any
    want: Any


@dataclass(frozen=True, slots=True)
class Evaluated:
    """What :func:`evaluated` finds: ``values``, the ``program`` that has these, and in ``known``
    what torch gives for every node of its graph.
    """

    values: list[Value]
    program: Program
    known: Mapping[Node, Any]


@dataclass(frozen=True, slots=True)
class Report:
    """``outputs`` in order; ``taps``: what was compared within the model, in program order."""

    outputs: list[Comparison]
    taps: list[Comparison] = field(default_factory=list[Comparison])

    @property
    def ok(self) -> bool:
        """Whether every output agrees; values inside may round differently."""
        return all(c.ok for c in self.outputs)

    @property
    def first_departure(self) -> Comparison | None:
        """The first value in program order that does not agree."""
        return next((c for c in (*self.taps, *self.outputs) if not c.ok), None)

    def __repr__(self) -> str:
        rows = {"outputs": self.outputs, "inner values": self.taps}
        counted = [f"{sum(c.ok for c in v)} of {len(v)} {k}" for k, v in rows.items() if v]
        return f"<comparison with torch: {', '.join(counted)} agree>"

    def _repr_html_(self) -> str:
        """What a notebook shows: what departs first, and both lists as tables."""
        columns = ("name", "where", "largest error", "result")
        first = self.first_departure
        where = "" if first is None else f"first departure: {first.name} ({first.where})"
        parts = [html.note(where)] if where else []
        for title, found in (("outputs", self.outputs), ("inner values", self.taps)):
            rows = [(c.name, c.where, f"{c.error:.3g}", c.problem or "agrees") for c in found]
            parts += [html.table(title, columns, rows)] if rows else []
        return html.joined(repr(self)[1:-1], parts)

    def __str__(self) -> str:
        lines = [f"{sum(c.ok for c in self.outputs)} of {len(self.outputs)} outputs agree"]
        lines += [
            f"  {c.name}: {c.problem or 'agrees'} (largest error {c.error:.3g})"
            for c in self.outputs
        ]
        if self.taps:
            lines.append(f"{sum(c.ok for c in self.taps)} of {len(self.taps)} inner values agree")
        first = self.first_departure
        if first is not None:
            lines.append(f"first departure: {first.name} ({first.where}): {first.problem}")
        return "\n".join(lines)


def verify(
    module: torch.nn.Module | ExportedProgram,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    *,
    taps: bool | str | Sequence[str] = False,
    rtol: float | None = None,
    atol: float | None = None,
    dynamic_shapes: Any = None,
    device: Device | None = None,
) -> Report:
    """Compare a model with eager torch, output by output, and with ``taps`` value by value.

    module:  a module (which is exported) or an exported program
    taps:    True for every value in the model, or module paths (``"encoder.layers.0"``), for the
             values made in these
    rtol, atol: instead of the tolerances by dtype (``TOLERANCE``)

    The report's ``first_departure`` names module path, file and line. ``str(report)`` shows it all.
    Raises ``OpNotImplemented`` where the model cannot be imported, ValueError for a tap that no
    value is made in.
    """
    options = dict(kwargs or {})
    if isinstance(module, ExportedProgram):
        program = module
    else:
        program = capture(module, args, options, dynamic_shapes)
    outputs: list[Comparison] = []
    inner: list[Comparison] = []
    for v in evaluated(program, args, options, taps, device).values:
        made = _compare(v.name, v.where, v.got, v.want, rtol, atol)
        (inner if v.inner else outputs).append(made)
    return Report(outputs, inner)


def evaluated(
    program: ExportedProgram,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    taps: bool | str | Sequence[str],
    device: Device | None,
) -> Evaluated:
    """The values are the outputs, then the tapped values in program order; see :func:`verify`."""
    walked, mod, nodes = _with_taps(exported(program), taps)
    flat = [_copied(x) for x in pytree.tree_leaves((tuple(args), dict(kwargs)))]
    want = _reference(walked, flat)
    machine = VirtualMachine(build(mod, device), device)
    got = machine["main"](*(x for x in flat if isinstance(x, torch.Tensor)))
    spans = Spans()
    (end,) = (n for n in walked.module.graph.nodes if n.op == "output")
    results = list(end.args[0])
    found: list[Value] = []
    for i, (node, value) in enumerate(zip(results, got, strict=True)):
        made = isinstance(node, Node)
        where = spans.where(node) if made else "a constant"
        inner = i >= len(results) - len(nodes)
        name = node.name if inner else _output_name(walked, i)
        layer = spans.of(node).name if made else ""
        found.append(Value(name, where, layer, inner, value, want[node] if made else node))
    return Evaluated(found, walked, want)


def _output_name(program: Program, at: int) -> str:
    spec = program.outputs[at]
    return f"output {at}" if spec.meaning == "result" else f"new value of {spec.target}"


def _copied(x: Any) -> Any:
    return x.detach().clone() if isinstance(x, torch.Tensor) else x


def _with_taps(program: Program, taps: Any) -> tuple[Program, IRModule, list[Node]]:
    """The program as it was converted, with the tapped values as further results."""
    made = import_program(program, Options())
    if made.mod is None:
        made.walk.gaps.raise_all()
    # The results in the order in which the program has them: mutated state included.
    walked = made.program
    nodes = _tapped(walked, taps)
    (end,) = (n for n in walked.module.graph.nodes if n.op == "output")
    fields = [*end.args[0]]
    order = sorted(range(len(fields)), key=lambda i: walked.outputs[i].meaning != "result")
    outputs = [walked.outputs[i] for i in order] + [Output("result")] * len(nodes)
    results = all(o.meaning == "result" for o in walked.outputs)
    if results and not nodes:
        return walked, made.mod, nodes
    # In a copy: the graph may be that of the user's own program.
    graph, copied = Graph(), dict[Node, Node]()
    graph.graph_copy(walked.module.graph, copied)
    results = [*(fields[i] for i in order), *nodes]
    graph.output(tuple(copied[r] if isinstance(r, Node) else r for r in results))
    module = GraphModule(walked.module, graph)
    inputs = [dataclasses.replace(i, node=copied[i.node]) for i in walked.inputs]
    nodes = [copied[n] for n in nodes]
    # What the state becomes is compared as a result like any other.
    seen = [Output("result", o.target) for o in outputs]
    again = import_once(Program(module, inputs, seen, walked.ranges), Options())
    if again.mod is None:
        again.walk.gaps.raise_all()
    named = Program(module, inputs, outputs, walked.ranges)
    return named, again.mod, nodes


def _tapped(program: Program, taps: Any) -> list[Node]:
    """The nodes whose values are compared."""
    if taps is False:
        return []
    wanted = None if taps is True else [taps] if isinstance(taps, str) else list(taps)
    spans = Spans()
    found: list[Node] = []
    reached: set[str] = set()
    for node in program.module.graph.nodes:
        if node.op != "call_function" or not isinstance(node.meta.get("val"), torch.Tensor):
            continue
        path = spans.of(node).name
        hits = [w for w in wanted or () if path == w or path.startswith(f"{w}.")]
        reached.update(hits)
        if wanted is None or hits:
            found.append(node)
    missing = [w for w in wanted or () if w not in reached]
    if missing:
        raise ValueError(
            f"no value is made in {', '.join(missing)}; taps are module paths as "
            "model.named_modules() gives them"
        )
    return found


class _Recorder(Interpreter):
    """Runs a graph with torch and keeps every value."""

    values: dict[Node, Any]

    def run_node(self, n: Node) -> Any:
        value = super().run_node(n)
        # Later operators may write in place.
        self.values[n] = _copied(value)
        return value


def _reference(program: Program, inputs: Sequence[Any]) -> dict[Node, Any]:
    """What eager torch gives for every node."""
    rest = iter(inputs)
    feeds: list[Any] = []
    for i in program.inputs:
        user = next(rest) if i.meaning in ("input", "number") else None
        feeds.append(_copied(i.value if user is None and i.meaning != "input" else user))
    recorder = _Recorder(program.module)
    recorder.values = {}
    with torch.no_grad():
        recorder.run(*feeds)
    # Inputs as the program leaves them: that is what those are that are results.
    recorder.values.update(zip((i.node for i in program.inputs), feeds, strict=True))
    return recorder.values


def _wide(x: Any) -> Any:
    return x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)


def _compare(
    name: str, where: str, got: Any, want: Any, rtol: float | None, atol: float | None
) -> Comparison:
    ours = np.asarray(got)
    theirs = as_numpy(want) if isinstance(want, torch.Tensor) else np.asarray(want)
    if not isinstance(want, torch.Tensor):
        same = want is None or bool(np.array_equal(ours, theirs))
        return Comparison(name, where, 0.0, "" if same else f"{ours} instead of {want}")
    for what in ("dtype", "shape"):
        a, b = operator.attrgetter(what)(ours), operator.attrgetter(what)(theirs)
        if a != b:
            return Comparison(name, where, float("inf"), f"{what} {a} instead of {b}")
    if ours.size == 0:
        return Comparison(name, where, 0.0)
    kind = ours.dtype.name
    relative, absolute = TOLERANCE.get(kind, (0.0, 0.0))
    relative = relative if rtol is None or kind not in TOLERANCE else rtol
    absolute = absolute if atol is None or kind not in TOLERANCE else atol
    a, b = _wide(ours), _wide(theirs)
    with np.errstate(invalid="ignore"):
        difference = np.abs(a - b)
    wrong = ours != theirs
    if kind in TOLERANCE:
        wrong = ~np.isclose(a, b, relative, absolute, equal_nan=True)
    finite = difference[np.isfinite(difference)]
    error = float(finite.max()) if finite.size else 0.0
    count = int(wrong.sum())
    if not count:
        return Comparison(name, where, error)
    at = tuple(int(i) for i in np.argwhere(wrong)[0]) if wrong.ndim else ()
    problem = (
        f"{count} of {wrong.size} elements differ, first at {at}: {ours[at]} instead of "
        f"{theirs[at]}"
    )
    return Comparison(name, where, error, problem)
