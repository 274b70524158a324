"""``relax2xla verify``: the same results as the framework that the model comes from?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from relax2xla.cli.commands.inspect import STABLEHLO
from relax2xla.cli.process.console import good, note, out, print_json, status, table
from relax2xla.cli.proof.comparison import Asked, Row, compare, named, results
from relax2xla.cli.proof.reference import references
from relax2xla.cli.proof.reproduce import Piece
from relax2xla.cli.proof.taps import Errors, Taps, taps_of
from relax2xla.cli.reading.inputs import files_in
from relax2xla.cli.reading.model import load_model, parse_device, parse_shapes
from relax2xla.cli.reading.values import flat_results
from relax2xla.errors import TVMError
from relax2xla.importers.files import check_target, format_of, write_atomically
from relax2xla.ir import IRModule

#: The formats whose models have values inside of them that a reference gives, too.
TAPPED: Final = ("onnx", "pt2", *STABLEHLO)


def run_verify(file: Path, asked: Asked, trust: bool, shape: Sequence[str]) -> int:
    """Compare and print one row an output; gives the exit status, 0 or 1."""
    device = parse_device(asked.device)
    shapes = parse_shapes(shape)
    kind = format_of(file).name
    asked_inside = {"--taps": asked.taps, "--bisect": asked.bisect, "--html": asked.html}
    for option, given in asked_inside.items():
        if given and kind not in TAPPED:
            raise TVMError(
                f"{option} is for .onnx and .pt2 models and StableHLO; of Relax text as {file} "
                "nobody else gives the values inside. relax2xla convert makes StableHLO of it, and "
                "relax2xla reduce shrinks any program"
            )
    if asked.bisect is not None:
        from relax2xla.cli.proof.reproduce import check_folder

        check_folder(asked.bisect)
    if asked.html is not None:
        if asked.taps is False:
            raise TVMError("--html shows what --taps compares: leave --no-taps out")
        check_target(asked.html, file, *files_in(asked.inputs))
    mod = load_model(file, trust, shapes)
    flat, ours = results(file, mod, device, asked, shapes)

    def compared(taps: bool) -> list[dict[str, Any]]:
        tapped: Taps | None = None
        if taps:
            tapped = taps_of(kind, file, mod, shapes, flat, device, asked)
        names = () if tapped is None else tapped.names
        made: list[dict[str, Any]] = []
        with status("running the reference"):
            others = references(file, mod, flat, device) if tapped is None else tapped.references()
            for reference, theirs in others:
                given = theirs[: -len(names) or None]
                rows = compare(flat_results(ours), flat_results(given), asked.rtol, asked.atol)
                rows = named(rows, mod)
                found: dict[str, Any] = {"reference": reference.name, "outputs": rows}
                if tapped is not None:
                    found["taps"], layers = tapped.compare(theirs, asked)
                    errors.append(layers)
                    # Where no value inside departs, an output may, since more is fused then.
                    wrong = (i for i, row in enumerate(rows) if not row.fits)
                    first = found["taps"].get("first", next(wrong, None))
                    if asked.bisect is not None and not pieces and first is not None:
                        made_of = tapped.pieces(theirs, first)
                        pieces.update(_reproduced(asked.bisect, made_of, kind, asked))
                        found["taps"] |= pieces
                made.append(found)
        return made

    errors: list[Errors] = []
    pieces: dict[str, Any] = {}
    inside = bool(asked.taps or asked.bisect or asked.html)
    reports = compared(inside)
    departs = any(not r.fits for f in reports for r in f["outputs"])
    if asked.taps is None and not inside and departs and kind in TAPPED:
        _looked_for(reports, lambda: compared(True))
    if asked.bisect is not None and not pieces:
        note(f"nothing departs, and {asked.bisect} is not written")
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
) -> None:
    """Add what departs inside of the model, where that can be had; results stay as they were."""
    try:
        found = {f["reference"]: f for f in compared()}
    except (TVMError, NotImplementedError, RuntimeError) as e:
        note(f"where it departs first cannot be said: {' '.join(str(e).split())[:300]}")
        return
    for report in reports:
        if (more := found.pop(report["reference"], None)) is not None:
            report["taps"] = more["taps"]
    reports.extend(found.values())


def _write_page(target: Path, file: Path, mod: IRModule, errors: Errors) -> None:
    """The page of ``view``, coloured by the errors of the layers."""
    from relax2xla.cli.page.heat import errors_heat
    from relax2xla.cli.page.page import page

    with status(f"drawing {file.name}"):
        text = page(mod, file.name, heat=lambda graph: errors_heat(graph, errors))
        write_atomically(target, lambda stream: stream.write(text.encode("utf-8", "replace")))
    note(f"wrote {target}")


def _reproduced(folder: Path, pieces: Iterator[Piece], kind: str, asked: Asked) -> dict[str, Any]:
    """Write the smallest of the pieces that departs; gives what it is, for the report."""
    from relax2xla.cli.proof.reproduce import reproduce

    given = (("--rtol", asked.rtol), ("--atol", asked.atol))
    options = [word for name, v in given if v is not None for word in (name, str(v))]
    if kind == "pt2":
        options.append("--trust")
    if kind in STABLEHLO:
        options.append("--taps")  # beside the interpreter, too
    names, departs = reproduce(
        folder,
        pieces,
        lambda file, inputs: _departs(file, inputs, asked),
        options,
        asked.plugins,
    )
    if not names:
        note(f"what departs is computed by nothing, and {folder} is not written")
        return {}
    what = "a node, its" if len(names) == 1 else f"{len(names)} nodes, their"
    note(f"wrote {folder}: {what} inputs, and a script")
    return {"reproducer": {"folder": str(folder), "nodes": names, "departs": departs}}


def _departs(file: Path, inputs: Path, asked: Asked) -> bool:
    """Whether a model of ours gives something else than its references, as ``--taps`` compares."""
    device = parse_device(asked.device)
    mod = load_model(file, True, {})
    flat, ours = results(file, mod, device, replace(asked, inputs=[str(inputs)]), {})
    return any(
        not row.fits
        for _, theirs in references(file, mod, flat, device, interpreter=True)
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
        within = f" of {first['module']}" if first.get("module") else ""
        made = made or f"node {first['node']!r} ({first['op']}){within}, output {row.name!r}"
        out(f"first departure: {made}, {row.dtype} {row.shape}: {error}")
        off = first.get("largest relative error of its inputs")
        if off is not None:
            out(f"  its inputs are off by at most {off:.2e} (relative)")
        _print_departures(taps["departures"])
    if "reproducer" in taps:
        _print_piece(taps["reproducer"])


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
