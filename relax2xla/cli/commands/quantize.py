"""``relax2xla quantize``: weights in integers of few bits, and what that changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from relax2xla.cli.commands.convert import described, told_written
from relax2xla.cli.commands.inspect import weights
from relax2xla.cli.process.console import note, out, print_json, status, table, weights_text
from relax2xla.cli.proof.comparison import Asked, names_of_results, results
from relax2xla.cli.reading.model import load_model, parse_device, parse_shapes
from relax2xla.cli.reading.values import flat_results
from relax2xla.errors import TVMError
from relax2xla.importers.files import check_target, form_of, write_program
from relax2xla.ir import IRModule
from relax2xla.runtime.convert import to_host
from relax2xla.transform import QuantizeWeights

# Forms that hold a program as it is; StableHLO is made of what the program computes.
_FORMS = ("relax", "mlir", "mlirbc")


def run_quantize(
    file: Path,
    output: Path | None,
    weights_to: str | None,
    bits: int,
    group: int,
    asked: Asked | None,
    trust: bool,
    shape: Sequence[str],
    as_json: bool = False,
) -> None:
    """Write ``file`` with quantised weights; ``asked``: run both, and print how far they differ.

    ``weights_to``: the file for weights, "inline", or None for what suits the form.
    """
    if output is None and asked is None:
        raise TVMError("give -o OUT, to write the model, or --verify, to see its error, or both")
    if output is None and weights_to is not None:
        raise TVMError("--weights is for a program in a file; name it with -o")
    if output is not None:
        check_target(output, file)
        if form_of(str(output)) not in _FORMS:
            raise TVMError(f"{output}: a quantised model is written as .relax, .mlir or .mlirbc")
    quantised = QuantizeWeights(bits, group)
    shapes = parse_shapes(shape)
    mod = load_model(file, trust, shapes)
    with status("quantising"):
        made = quantised(mod)
    before, after = (weights(list(m.relax_functions().values())) for m in (mod, made))
    if before["bytes"] == after["bytes"]:
        raise TVMError(
            f"{file} has no weights to quantise: float constants of at least "
            f"{quantised.least:,} elements that products, convolutions or tables read (weights "
            "that are arguments are bound with BindParams first)"
        )
    note(f"{_counted(before)} before; {_counted(after)} now, scales among them")
    found: dict[str, Any] = {"file": str(file), "bits": bits, "group": group}
    found["weights_before"] = before
    if output is not None:
        with status(f"writing {output}"):
            form = form_of(str(output))
            written, beside = write_program(made, output, form, None, weights_to)
        told_written(output, written, after, beside)
        found |= described(output, form, written, after, beside)
    found["weights"] = after
    if asked is not None:
        device = parse_device(asked.device)
        flat, exact = results(file, mod, device, asked, shapes)
        changed = results(file, made, device, asked, shapes, flat)[1]
        found["outputs"] = _errors(mod, flat_results(exact), flat_results(changed))
    if as_json:
        print_json(found)
    elif asked is not None:
        _print(found["outputs"])


def _counted(held: Mapping[str, Any]) -> str:
    return weights_text(held["arrays"], held["bytes"])


def _errors(
    mod: IRModule, exact: Sequence[object], changed: Sequence[object]
) -> list[dict[str, Any]]:
    """For each output its errors, and how often the largest of a row is the same one."""
    names = names_of_results(mod, len(exact))
    rows: list[dict[str, Any]] = []
    for name, mine, other in zip(names, exact, changed, strict=True):
        a, b = (np.asarray(to_host(v)) for v in (mine, other))
        if a.dtype.kind not in "fV" or not a.size:
            continue
        a, b = a.astype(np.float64), b.astype(np.float64)
        with np.errstate(invalid="ignore", over="ignore"):
            worst = np.abs(a - b).max()
            error, signal = np.sqrt(np.mean((a - b) ** 2)), np.sqrt(np.mean(a**2))
        row: dict[str, Any] = {
            "name": name,
            "max_abs": float(worst),
            "error_share": float(error / signal) if signal else 0.0,
        }
        if a.ndim and a.shape[-1] > 1:
            best = [v.reshape(-1, v.shape[-1]).argmax(-1) for v in (a, b)]
            row |= {"same_largest": int((best[0] == best[1]).sum()), "rows": len(best[0])}
        rows.append(row)
    return rows


def _print(errors: Sequence[Mapping[str, Any]]) -> None:
    rows = [
        (
            row["name"],
            f"{row['max_abs']:.2e}",
            f"{row['error_share']:.2%}",
            f"{row['same_largest']} of {row['rows']}" if "rows" in row else "",
        )
        for row in errors
    ]
    table(("output", "max abs", "error, of the output's root mean square", "same largest"), rows)
    out("errors are those of the weights, beside the model as it was")
