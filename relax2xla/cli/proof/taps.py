"""``verify --taps``: the values inside of a model beside those of its reference.

A class for each format says which values there are (``names``), has what relax2xla gives for them,
and compares that with what a reference gives. Its ``pieces`` are models of the parts that depart,
for ``--bisect``.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from relax2xla.cli.process.console import status
from relax2xla.cli.proof.comparison import Asked, Row, compare, results
from relax2xla.cli.proof.reference import (
    Reference,
    both_ways,
    references,
    static_program,
    torch_arguments,
)
from relax2xla.cli.proof.reproduce import Piece
from relax2xla.cli.reading.values import flat_results
from relax2xla.ir import IRModule
from relax2xla.runtime.device import Device

#: By layer: the largest error as a multiple of the tolerance (more than 1 departs), and words.
Errors = dict[str, tuple[float, str]]
_DEPARTS: Final = 1.0 + 1e-6


class Taps(Protocol):
    """The values inside of a model; ``names``: those that a reference gives after its outputs."""

    @property
    def names(self) -> Sequence[str]: ...

    def references(self) -> Iterator[tuple[Reference, list[Any]]]:
        """The references that can give these values, and what they give: outputs first."""
        ...

    def compare(self, theirs: Sequence[Any], asked: Asked) -> tuple[dict[str, Any], Errors]:
        """How many values were compared and depart, and the first one; the errors of layers."""
        ...

    def pieces(self, theirs: Sequence[Any], first: Mapping[str, Any] | int) -> Iterator[Piece]:
        """What makes a value that departs, alone, then with more that comes before it.

        first: what ``compare`` says of the first value that departs, or the number of an output
        """
        ...


def taps_of(
    kind: str,
    file: Path,
    mod: IRModule,
    shapes: Mapping[str, Any],
    flat: Sequence[Any],
    device: Device,
    asked: Asked,
) -> Taps:
    """The values inside of ``mod``, read from a file of the format ``kind``, one of TAPPED."""
    if kind == "onnx":
        return OnnxTaps(file, mod, shapes, flat, device, asked)
    if kind == "pt2":
        return TorchTaps(file, mod, flat, device)
    return StablehloTaps(file, mod, flat, device, asked)


def _layer_errors(rows: Iterable[tuple[str, Row]]) -> Errors:
    """The largest error of each layer as a multiple of what is tolerated, and words for it.

    Beside numbers that are nearly zero any error is large: there the absolute one counts.
    """
    found: Errors = {}
    for layer, row in rows:
        shares = [e / t for e, t in ((row.relative, row.rtol), (row.largest, row.atol)) if t]
        share = min(shares, default=0.0)
        # The tolerances hold for each element, and the errors are the largest of all.
        share = min(share, 1.0) if row.fits else max(share, _DEPARTS)
        error = math.inf if row.expected or (not row.fits and not shares) else share
        words = row.expected and f"expected {row.expected}"
        words = words or f"max abs {row.largest:.2e}, max rel {row.relative:.2e}"
        words += "" if row.fits else ", DEPARTS"
        found[layer] = max(found.get(layer, (0.0, words)), (error, words))
    return found


class OnnxTaps:
    """What the nodes of an ONNX graph compute, of a program that gives all of it.

    ``names``: the values besides the graph's outputs
    """

    def __init__(
        self,
        file: Path,
        mod: IRModule,
        shapes: Mapping[str, Any],
        flat: Sequence[Any],
        device: Device,
        asked: Asked,
    ) -> None:
        from relax2xla.importers.onnx import load as load_onnx
        from relax2xla.importers.onnx.read.source import read

        self.proto = read(file).proto
        graph = self.proto.graph
        outputs = [o.name for o in graph.output]
        self.inputs = load_onnx.input_names(graph)
        self.makers = load_onnx.makers(graph)
        self.names = [n for n in self.makers if n not in outputs]
        self.order = [*outputs, *self.names]
        self.flat, self.about = flat, (file, mod, flat, device)
        with status("compiling all values"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they were shown when the model itself was read
            tapped = load_onnx.load(file, shapes, self.names)
            made = results(file, tapped, device, asked, shapes, flat)[1]
        self.values = list(made) if len(self.order) > 1 else [made]

    def references(self) -> Iterator[tuple[Reference, list[Any]]]:
        return references(*self.about, taps=self.names)

    def compare(self, theirs: Sequence[Any], asked: Asked) -> tuple[dict[str, Any], Errors]:
        """How many values were compared and depart, and the first node that makes such a one.

        And the largest error of each node.
        """
        rows: dict[str, Row] = {}
        skipped: list[str] = []
        for name, a, b in zip(self.order, self.values, theirs, strict=True):
            mine, yours = flat_results(a), flat_results(b)
            if any(v is None for v in (*mine, *yours)) or len(mine) != len(yours):
                skipped.append(name)
                continue
            parts = compare(mine, yours, asked.rtol, asked.atol, name, scaled=True)
            worst = min(parts, key=lambda r: (r.fits, -r.relative), default=None)
            if worst is not None:
                rows[name] = worst
        departing = [n for n in self.makers if n in rows and not rows[n].fits]
        made = [(self.makers[n], rows[n]) for n in departing]
        found: dict[str, Any] = {
            "compared": len(rows),
            "departing": len(departing),
            "skipped": skipped,
            "departures": [
                {"layer": node.name, "op": node.op_type, "value": row} for node, row in made
            ],
        }
        if departing:
            from relax2xla.importers.onnx.engine.functions import module_of

            node, row = self.makers[departing[0]], rows[departing[0]]
            taken = [rows[i].relative for i in node.input if i in rows]
            found["first"] = {
                "node": node.name,
                "op": node.op_type,
                # Where torch.onnx.export wrote the model: the module there.
                "module": next((span.name for span in module_of(node)), ""),
                "output": row,
                "largest relative error of its inputs": max(taken, default=0.0),
            }
        named = ((self.makers[n].name or n, row) for n, row in rows.items() if n in self.makers)
        return found, _layer_errors(named)

    def pieces(self, theirs: Sequence[Any], first: Mapping[str, Any] | int) -> Iterator[Piece]:
        from relax2xla.cli.proof.onnx_pieces import onnx_pieces

        known = {**dict(zip(self.inputs, self.flat, strict=True))}
        known |= dict(zip(self.order, theirs, strict=True))
        name = self.order[first] if isinstance(first, int) else first["output"].name
        return onnx_pieces(self.proto, name, known)


class TorchTaps:
    """What the operators of an exported program compute, beside what torch does."""

    names: Sequence[str] = ()  # The reference gives the outputs alone.

    def __init__(self, file: Path, mod: IRModule, flat: Sequence[Any], device: Device) -> None:
        from relax2xla.importers.files import load_exported
        from relax2xla.importers.torch.verification import evaluated

        self.about = file, mod, flat, device
        program = load_exported(file)
        with status("compiling all values"):
            args, kwargs = torch_arguments(program, flat)
            self.evaluated = evaluated(program, args, kwargs, True, device)
        self.values = self.evaluated.values

    def references(self) -> Iterator[tuple[Reference, list[Any]]]:
        return references(*self.about)

    def compare(self, theirs: Sequence[Any], asked: Asked) -> tuple[dict[str, Any], Errors]:
        """How many values were compared and depart, and the first one; the errors of layers."""
        rows = [
            (v, row)
            for v in self.values
            if v.inner
            for row in compare([v.got], [v.want], asked.rtol, asked.atol, v.name, scaled=True)
        ]
        departing = [(v, row) for v, row in rows if not row.fits]
        found: dict[str, Any] = {"compared": len(rows), "departing": len(departing), "skipped": []}
        found["departures"] = [
            {"layer": v.layer, "op": v.where, "value": row} for v, row in departing
        ]
        if departing:
            value, row = departing[0]
            found["first"] = {"layer": value.layer, "where": value.where, "output": row}
        return found, _layer_errors((v.layer, row) for v, row in rows)

    def pieces(self, theirs: Sequence[Any], first: Mapping[str, Any] | int) -> Iterator[Piece]:
        from relax2xla.cli.proof.torch_pieces import output_node, torch_pieces

        if isinstance(first, int):
            return torch_pieces(self.evaluated, output_node(self.evaluated, first))
        return torch_pieces(self.evaluated, first["output"].name)


class StablehloTaps:
    """What the operations of a StableHLO program compute, of a program that gives all of it.

    Private functions are inlined; what a loop or a branch computes inside counts as its own.
    """

    def __init__(
        self, file: Path, mod: IRModule, flat: Sequence[Any], device: Device, asked: Asked
    ) -> None:
        from relax2xla.cli.proof.stablehlo_pieces import inside_of
        from relax2xla.importers.stablehlo import from_stablehlo

        program, self.args = static_program(file, mod, flat, device)
        self.inside = inside_of(from_stablehlo(program, raise_ops=False))
        self.device = device
        with status("compiling all values"):
            made = results(file, self.inside.program, device, asked, {}, self.args)[1]
        self.values = flat_results(made)
        self.names = [v.name_hint for v in self.inside.values]

    def references(self) -> Iterator[tuple[Reference, list[Any]]]:
        return both_ways(self.inside.program, self.args, self.device, "jax.jit of the file")

    def compare(self, theirs: Sequence[Any], asked: Asked) -> tuple[dict[str, Any], Errors]:
        """How many values were compared and depart, and the first one; the errors of layers."""
        at = len(self.inside.outputs)
        rows: list[tuple[Any, Row]] = []
        for value, a, b in zip(self.inside.values, self.values[at:], theirs[at:], strict=True):
            name = value.name_hint
            (row,) = compare([a], [b], asked.rtol, asked.atol, name, scaled=True)
            rows.append((value, row))
        departing = [(v, row) for v, row in rows if not row.fits]
        where, layer = self.inside.where, self.inside.layer
        found: dict[str, Any] = {"compared": len(rows), "departing": len(departing), "skipped": []}
        found["departures"] = [
            {"layer": layer(v), "op": where(v), "value": row} for v, row in departing
        ]
        if departing:
            self.first, row = departing[0]
            found["first"] = {
                "layer": layer(self.first),
                "where": where(self.first),
                "output": row,
            }
        return found, _layer_errors((layer(v), row) for v, row in rows)

    def pieces(self, theirs: Sequence[Any], first: Mapping[str, Any] | int) -> Iterator[Piece]:
        from relax2xla.cli.proof.stablehlo_pieces import stablehlo_pieces

        at = len(self.inside.outputs)
        known = dict(zip(self.inside.program["main"].params, self.args, strict=True))
        known |= dict(zip(self.inside.values, theirs[at:], strict=True))
        start = self.inside.outputs[first] if isinstance(first, int) else self.first
        return stablehlo_pieces(self.inside, start, known)
