"""``relax2xla verify``: the same results as the framework that the model comes from?"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from relax2xla.cli.console import good, note, out, print_json, status, table
from relax2xla.cli.model import (
    by_value_noted,
    entry_name,
    inputs_of,
    load_model,
    nest,
    parse_device,
    parse_shapes,
)
from relax2xla.cli.reference import references, torch_arguments
from relax2xla.cli.values import (
    Array,
    dtype_of,
    flat_results,
    is_map,
    is_maps,
    is_text,
    kind_of,
    maps_of,
    plain,
)
from relax2xla.errors import TVMError
from relax2xla.importers.files import check_target, format_of, write_atomically
from relax2xla.ir import IRModule
from relax2xla.runtime.device import Device

# Relative and absolute tolerance by dtype; what is not here must be equal.
TOLERANCES: Final[dict[str, tuple[float, float]]] = {
    "float64": (1e-6, 1e-8),
    "complex128": (1e-6, 1e-8),
    "float32": (1e-3, 1e-4),
    "complex64": (1e-3, 1e-4),
    "float16": (1e-2, 1e-3),
    "bfloat16": (5e-2, 1e-2),
}


@dataclass(frozen=True, slots=True)
class Asked:
    """The options of ``verify``; ``rtol`` and ``atol`` None: by dtype.

    ``taps``: None is where an output departs, of a file that has values inside of it to compare.
    ``bisect``: a folder for the part that departs; ``html``: a page with the errors as colours.
    """

    inputs: Sequence[str]
    seed: int
    rtol: float | None
    atol: float | None
    device: str
    taps: bool | None
    json: bool
    bisect: Path | None = None
    html: Path | None = None


# Results that are no arrays: sizes, and constants of a model.
PLAIN: Final = (bool, int, float, complex, str)


@dataclass(frozen=True, slots=True)
class Row:
    """How one result compares: ``largest`` absolute and ``relative`` error, and the tolerance.

    ``expected``: what the dtype and shape should have been, where they are other ones.
    """

    name: str
    dtype: str
    shape: str
    fits: bool
    largest: float = 0.0
    relative: float = 0.0
    rtol: float = 0.0
    atol: float = 0.0
    expected: str = ""

    def cells(self) -> tuple[str, ...]:
        """For the table."""
        head = (self.name, self.dtype, self.shape)
        if self.expected:
            return (*head, "", "", "", f"expected {self.expected}")
        errors = (f"{self.largest:.2e}", f"{self.relative:.2e}")
        tolerance = f"{self.atol:g} + {self.rtol:g}|x|"
        return (*head, *errors, tolerance, "ok" if self.fits else "MISMATCH")

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {n: getattr(self, n) for n in self.__slots__}


def run_verify(file: Path, asked: Asked, trust: bool, shape: Sequence[str]) -> int:
    """Compare and print one row an output; gives the exit status, 0 or 1."""
    device = parse_device(asked.device)
    shapes = parse_shapes(shape)
    kind = format_of(file).name
    if asked.taps and kind not in ("onnx", "pt2"):
        raise TVMError(
            "--taps is for .onnx and .pt2 models: other formats have no framework that gives the "
            "values inside of them"
        )
    if asked.bisect is not None:
        if kind != "onnx":
            raise TVMError(
                f"--bisect is for .onnx models, whose nodes make a model of their own; {file} is "
                "none. relax2xla reduce shrinks any program"
            )
        from relax2xla.cli.reproduce import check_folder

        check_folder(asked.bisect)
    if asked.html is not None:
        if kind not in ("onnx", "pt2") or asked.taps is False:
            raise TVMError("--html shows what --taps compares: of .onnx and .pt2 models")
        check_target(asked.html)
    mod = load_model(file, trust, shapes)
    flat, ours = results(file, mod, device, asked, shapes)

    def compared(taps: bool) -> list[dict[str, Any]]:
        tapped: Taps | TorchTaps | None = None
        if taps and kind == "onnx":
            tapped = Taps(file, shapes, flat, device, asked)
        elif taps:
            tapped = TorchTaps(file, flat, device)
        names = () if tapped is None else tapped.names
        made: list[dict[str, Any]] = []
        with status("running the reference"):
            for reference, theirs in references(file, mod, flat, device, taps=names):
                given = theirs if tapped is None else theirs[: -len(names) or None]
                rows = compare(flat_results(ours), flat_results(given), asked.rtol, asked.atol)
                found: dict[str, Any] = {"reference": reference.name, "outputs": rows}
                if tapped is not None:
                    found["taps"], layers = tapped.compare(theirs, asked)
                    errors.append(layers)
                    if isinstance(tapped, Taps) and asked.bisect is not None and not pieces:
                        pieces.update(tapped.reproduced(theirs, flat, found["taps"], asked))
                        found["taps"] |= pieces
                made.append(found)
        return made

    errors: list[dict[str, tuple[float, str]]] = []
    pieces: dict[str, Any] = {}
    inside = bool(asked.taps or asked.bisect or asked.html)
    reports = compared(inside)
    departs = any(not r.fits for f in reports for r in f["outputs"])
    if asked.taps is None and not inside and departs and kind in ("onnx", "pt2"):
        reports = _looked_for(reports, lambda: compared(True))
    fits = [
        all(r.fits for r in f["outputs"]) and not f.get("taps", {}).get("departing")
        for f in reports
    ]
    if asked.html is not None and errors:
        _write_page(asked.html, file, mod, errors[0])
    if asked.json:
        shown = [{**f, "agrees": ok} for f, ok in zip(reports, fits, strict=True)]
        print_json({"file": str(file), "agrees": all(fits), "references": _plain(shown)})
    else:
        for f, ok in zip(reports, fits, strict=True):
            _print(f, ok)
    return 0 if all(fits) else 1


def _looked_for(
    reports: list[dict[str, Any]], compared: Callable[[], list[dict[str, Any]]]
) -> list[dict[str, Any]]:
    """The reports with what departs inside of the model, where that can be had."""
    try:
        return compared()
    except (TVMError, NotImplementedError, RuntimeError) as e:
        note(f"where it departs first cannot be said: {' '.join(str(e).split())[:300]}")
        return reports


def _write_page(
    target: Path, file: Path, mod: IRModule, errors: Mapping[str, tuple[float, str]]
) -> None:
    """The page of ``view``, coloured by the errors of the layers."""
    from relax2xla.cli.page.heat import errors_heat
    from relax2xla.cli.page.page import page

    with status(f"drawing {file.name}"):
        text = page(mod, file.name, heat=lambda graph: errors_heat(graph, errors))
        write_atomically(target, lambda stream: stream.write(text.encode("utf-8", "replace")))
    note(f"wrote {target}")


def _layer_errors(rows: Iterable[tuple[str, Row]]) -> dict[str, tuple[float, str]]:
    """The largest error of each layer, and words for it.

    Beside numbers that are nearly zero any error is large: there the absolute one counts.
    """
    found: dict[str, tuple[float, str]] = {}
    for layer, row in rows:
        error = row.relative
        if row.atol:
            error = min(error, row.largest * row.rtol / row.atol)
        error = math.inf if row.expected else error
        words = row.expected and f"expected {row.expected}"
        words = words or f"max abs {row.largest:.2e}, max rel {row.relative:.2e}"
        words += "" if row.fits else ", DEPARTS"
        found[layer] = max(found.get(layer, (0.0, words)), (error, words))
    return found


def _departs(file: Path, inputs: Path, asked: Asked) -> bool:
    """Whether a model gives something else than its references do, as ``--taps`` compares."""
    device = parse_device(asked.device)
    mod = load_model(file, False, {})
    flat, ours = results(file, mod, device, replace(asked, inputs=[str(inputs)]), {})
    return any(
        not row.fits
        for _, theirs in references(file, mod, flat, device)
        for row in compare(
            flat_results(ours), flat_results(theirs), asked.rtol, asked.atol, scaled=True
        )
    )


def _plain(data: Any) -> Any:
    """Rows, wherever they are, as JSON has them."""
    match data:
        case Row():
            return data.as_dict()
        case dict():
            return {k: _plain(v) for k, v in data.items()}
        case list():
            return [_plain(v) for v in data]
        case _:
            return data


def results(
    file: Path,
    mod: IRModule,
    device: Device,
    asked: Asked,
    shapes: Mapping[str, Any],
    flat: Any = None,
) -> tuple[list[Any], Any]:
    """The inputs of ``mod``, read from ``file``, made unless given; what it gives for them."""
    from relax2xla.vm.call.machine import VirtualMachine
    from relax2xla.vm.plan.build import build

    with status("compiling"):
        machine = VirtualMachine(build(mod), device)
        name = entry_name(list(machine.executable))
        flat = flat or inputs_of(machine, name, file, asked.inputs, asked.seed, shapes)
    with status("running"):
        main = machine[name]
        with by_value_noted(machine, name, asked.inputs):
            return flat, main(*nest(main.params, flat))


class Taps:
    """What the nodes of an ONNX graph compute, of a program that gives all of it.

    ``names``: the values besides the graph's outputs
    """

    def __init__(
        self,
        file: Path,
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
        with status("compiling all values"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they were shown when the model itself was read
            mod = load_onnx.load(file, shapes, self.names)
            made = results(file, mod, device, asked, shapes, flat)[1]
        self.values = list(made) if len(self.order) > 1 else [made]

    def compare(
        self, theirs: Sequence[Any], asked: Asked
    ) -> tuple[dict[str, Any], dict[str, tuple[float, str]]]:
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
            node, row = self.makers[departing[0]], rows[departing[0]]
            taken = [rows[i].relative for i in node.input if i in rows]
            found["first"] = {
                "node": node.name,
                "op": node.op_type,
                "output": row,
                "largest relative error of its inputs": max(taken, default=0.0),
            }
        named = ((self.makers[n].name or n, row) for n, row in rows.items() if n in self.makers)
        return found, _layer_errors(named)

    def reproduced(
        self, theirs: Sequence[Any], flat: Sequence[Any], found: Mapping[str, Any], asked: Asked
    ) -> dict[str, Any]:
        """Write the piece of the first node that departs; gives what it is, {} where none does."""
        from relax2xla.cli.reproduce import reproduce

        if asked.bisect is None:
            return {}
        if "first" not in found:
            note(f"nothing departs, and {asked.bisect} is not written")
            return {}
        known = {**dict(zip(self.inputs, flat, strict=True))}
        known |= dict(zip(self.order, theirs, strict=True))
        given = (("--rtol", asked.rtol), ("--atol", asked.atol))
        options = [word for name, v in given if v is not None for word in (name, str(v))]
        names, departs = reproduce(
            asked.bisect,
            self.proto,
            found["first"]["output"].name,
            known,
            lambda model, inputs: _departs(model, inputs, asked),
            options,
        )
        what = "a node, its" if len(names) == 1 else f"{len(names)} nodes, their"
        note(f"wrote {asked.bisect}: {what} inputs, and a script")
        return {"reproducer": {"folder": str(asked.bisect), "nodes": names, "departs": departs}}


class TorchTaps:
    """What the operators of an exported program compute, beside what torch does."""

    names: Sequence[str] = ()  # The reference gives the outputs alone.

    def __init__(self, file: Path, flat: Sequence[Any], device: Device) -> None:
        from relax2xla.importers.files import load_exported
        from relax2xla.importers.torch.verification import evaluated

        program = load_exported(file)
        with status("compiling all values"):
            args, kwargs = torch_arguments(program, flat)
            self.values = evaluated(program, args, kwargs, True, device)

    def compare(
        self, theirs: Sequence[Any], asked: Asked
    ) -> tuple[dict[str, Any], dict[str, tuple[float, str]]]:
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


def _print(found: Mapping[str, Any], fits: bool) -> None:
    rows: list[Row] = found["outputs"]
    columns = ("output", "dtype", "shape", "max abs", "max rel", "tolerance", "result")
    table(columns, [r.cells() for r in rows])
    taps = found.get("taps")
    if taps is not None:
        _print_taps(taps)
    verdict = f"{'agrees with' if fits else 'DIFFERS from'} {found['reference']}"
    out(f"{good(verdict, fits)}\n")


def _print_taps(taps: Mapping[str, Any]) -> None:
    left = f", {len(taps['skipped'])} could not be" if taps["skipped"] else ""
    out(f"{taps['compared']} values compared{left}; {taps['departing']} depart")
    if "first" in taps:
        first = taps["first"]
        row: Row = first["output"]
        error = row.expected and f"expected {row.expected}"
        error = error or f"max abs {row.largest:.2e}, max rel {row.relative:.2e}"
        made = f"{row.name!r} ({first['where']})" if "where" in first else ""
        made = made or f"node {first['node']!r} ({first['op']}), output {row.name!r}"
        out(f"first departure: {made}, {row.dtype} {row.shape}: {error}")
        off = first.get("largest relative error of its inputs")
        if off is not None:
            out(f"  its inputs are off by at most {off:.2e} (relative)")
        if "reproducer" in taps:
            _print_piece(taps["reproducer"])
        _print_departures(taps["departures"])


def _print_piece(piece: Mapping[str, Any]) -> None:
    names = ", ".join(piece["nodes"])
    said = "departs as well" if piece["departs"] else "agrees: what departs needs what is around it"
    out(f"reproducer: python {Path(piece['folder']) / 'reproduce.py'} ({names}), which {said}")


# Values of the table of departures: what follows the first ones mostly departs because of them.
_MOST: Final = 10


def _print_departures(departures: Sequence[Mapping[str, Any]]) -> None:
    """The first values that depart, in the order of the program, by layer."""
    rows: list[tuple[str, ...]] = []
    for d in departures[:_MOST]:
        row: Row = d["value"]
        rows.append((d["layer"] or "(no name)", *row.cells()))
    out()
    columns = ("layer", "value", "dtype", "shape", "max abs", "max rel", "tolerance", "result")
    table(columns, rows, "what departs, in the order of the program")
    if len(departures) > _MOST:
        out(f"and {len(departures) - _MOST} more after these")


def compare(
    ours: Sequence[Any],
    theirs: Sequence[Any],
    rtol: float | None,
    atol: float | None,
    name: str = "output",
    scaled: bool = False,
) -> list[Row]:
    """One row a result; results of one name have numbers.

    scaled: let ``atol``, unless it is given, grow with the largest number expected, because sums
            of large terms that cancel are off by as much
    """
    from relax2xla.runtime.convert import to_host

    if len(ours) != len(theirs):
        expected = f"{len(theirs)} results"
        return [Row(name, "", f"{len(ours)} results", False, expected=expected)]
    rows: list[Row] = []
    for i, (mine, yours) in enumerate(zip(ours, theirs, strict=True)):
        label = f"{name}_{i}" if name == "output" or len(ours) > 1 else name
        if _hosted(mine) or _hosted(yours):
            rows.append(_compare_hosted(label, mine, yours, rtol, atol))
            continue
        a, b = (np.asarray(v) if isinstance(v, PLAIN) else to_host(v) for v in (mine, yours))
        rel, ab = _tolerance(a.dtype.name, rtol, atol)
        head = (label, *kind_of(a))
        if a.shape != b.shape or dtype_of(a) != dtype_of(b):
            rows.append(Row(*head, False, expected=f"{dtype_of(b)} of shape {b.shape}"))
            continue
        if scaled and atol is None and ab:
            ab *= max(1.0, _largest(b))
        largest, relative, good = difference(a, b, rel, ab)
        rows.append(Row(*head, good, largest, relative, rel, ab))
    return rows


def _tolerance(dtype: str, rtol: float | None, atol: float | None) -> tuple[float, float]:
    rel, ab = TOLERANCES.get(dtype, (0.0, 0.0))
    return (rel if rtol is None else rtol), (ab if atol is None else atol)


def _hosted(value: object) -> bool:
    """Whether a result is a map, a sequence of maps, or not there."""
    return value is None or is_map(value) or is_maps(value)


def _compare_hosted(
    label: str, mine: Any, yours: Any, rtol: float | None, atol: float | None
) -> Row:
    """Maps have the same keys, and their values differ as those of tensors may."""
    head = (label, *(kind_of(mine) if _hosted(mine) else kind_of(np.asarray(mine))))
    other = kind_of(yours) if _hosted(yours) else kind_of(np.asarray(yours))
    if mine is None or yours is None or head[1:] != other:
        return Row(*head, mine is None and yours is None, expected=" ".join(other).strip())
    a, b = maps_of(mine), maps_of(yours)
    wrong = [y for x, y in zip(a, b, strict=True) if set(x) != set(y)]
    if wrong:
        keys = ", ".join(repr(k) for k in list(wrong[0])[:5])
        return Row(*head, False, expected=f"the keys {keys}")
    values = [
        np.array([x[k] for x, keys in zip(rows, a, strict=True) for k in keys]) for rows in (a, b)
    ]
    if dtype_of(values[0]) != dtype_of(values[1]):
        return Row(*head, False, expected=f"values of {dtype_of(values[1])}")
    # What is a number of Python now was a float32: ONNX has no other floats in maps but doubles.
    floats = "float32" if values[0].dtype.kind == "f" else values[0].dtype.name
    rel, ab = _tolerance(floats, rtol, atol)
    largest, relative, good = difference(values[0], values[1], rel, ab)
    return Row(*head, good, largest, relative, rel, ab)


def _largest(a: Array) -> float:
    """The largest finite magnitude."""
    size = np.abs(_wide(a))
    return float(size[np.isfinite(size)].max(initial=0.0))


def _wide(a: Array) -> Array:
    wide: Any = np.complex128 if a.dtype.kind == "c" else np.float64
    return a.astype(wide)


def difference(ours: Array, theirs: Array, rtol: float, atol: float) -> tuple[float, float, bool]:
    """Largest absolute and relative difference, and whether every element is within tolerance.

    Infinities and NaN must stand at the same places. Strings are equal or not.
    """
    if is_text(ours):
        same = [_text(x) == _text(y) for x, y in zip(ours.flat, theirs.flat, strict=True)]
        error = 0.0 if all(same) else math.inf
        return error, error, all(same)
    a, b = _wide(ours), _wide(theirs)
    equal = (ours == theirs) | (np.isnan(a) & np.isnan(b))
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        # Large integers that differ may be equal as floats.
        least = 1.0 if ours.dtype.kind in "biu" else 0.0
        gap = np.where(equal, 0.0, np.maximum(np.abs(a - b), least))
        relative = np.where(equal, 0.0, gap / np.abs(b))
        good = equal | (np.isfinite(gap) & (gap <= atol + rtol * np.abs(b)))
    return float(gap.max(initial=0.0)), float(relative.max(initial=0.0)), bool(good.all())


def _text(value: Any) -> str:
    return str(plain(value))
