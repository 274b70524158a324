"""``relax2xla quantize``: weights in integers of few bits, and what that changes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from relax2xla.cli.console import note, out, size, status, table
from relax2xla.cli.inspect import weights
from relax2xla.cli.model import load_model, parse_device, parse_shapes
from relax2xla.cli.values import flat_results
from relax2xla.cli.verify import Asked, results
from relax2xla.errors import TVMError
from relax2xla.importers.files import check_target, form_of, render, write_atomically
from relax2xla.ir import IRModule
from relax2xla.runtime.convert import to_host
from relax2xla.transform import QuantizeWeights

# Forms that hold a program as it is; StableHLO is made of what the program computes.
_FORMS = ("relax", "mlir", "mlirbc")


def run_quantize(
    file: Path,
    output: Path | None,
    bits: int,
    group: int,
    asked: Asked | None,
    trust: bool,
    shape: Sequence[str],
) -> None:
    """Write ``file`` with quantised weights; ``asked``: run both, and print how far they differ."""
    if output is None and asked is None:
        raise TVMError("give -o OUT, to write the model, or --verify, to see its error, or both")
    if output is not None:
        check_target(output)
        if form_of(str(output)) not in _FORMS:
            raise TVMError(f"{output}: a quantised model is written as .relax, .mlir or .mlirbc")
        if output.exists() and output.resolve() == file.resolve():
            raise TVMError(f"{output} is the file that is read; give another name")
    shapes = parse_shapes(shape)
    mod = load_model(file, trust, shapes)
    with status("quantising"):
        made = QuantizeWeights(bits, group)(mod)
    before, after = _bytes(mod), _bytes(made)
    if before == after:
        raise TVMError(
            f"{file} has no weights to quantise: float constants that products, convolutions or "
            "tables read (weights that are arguments are bound with BindParams first)"
        )
    note(f"weights: {size(before)} before, {size(after)} now")
    if output is not None:
        with status(f"writing {output}"):
            data = render(made, form_of(str(output)), None)
            write_atomically(output, lambda stream: stream.write(data))
        note(f"wrote {output}: {size(len(data))}")
    if asked is not None:
        device = parse_device(asked.device)
        flat, exact = results(file, mod, device, asked, shapes)
        changed = results(file, made, device, asked, shapes, flat)[1]
        _print(flat_results(exact), flat_results(changed))


def _bytes(mod: IRModule) -> int:
    return weights(list(mod.relax_functions().values()))["bytes"]


def _print(exact: Sequence[object], changed: Sequence[object]) -> None:
    """A row an output: its errors, and how often the largest of a row is the same one."""
    rows: list[tuple[str, ...]] = []
    for i, (mine, other) in enumerate(zip(exact, changed, strict=True)):
        a, b = (np.asarray(to_host(v)) for v in (mine, other))
        if a.dtype.kind not in "fV" or not a.size:
            continue
        a, b = a.astype(np.float64), b.astype(np.float64)
        error, signal = np.sqrt(np.mean((a - b) ** 2)), np.sqrt(np.mean(a**2))
        share = error / signal if signal else 0.0
        same = ""
        if a.ndim and a.shape[-1] > 1:
            best = [v.reshape(-1, v.shape[-1]).argmax(-1) for v in (a, b)]
            same = f"{(best[0] == best[1]).sum()} of {len(best[0])}"
        rows.append((f"output_{i}", f"{np.abs(a - b).max():.2e}", f"{share:.2%}", same))
    table(("output", "max abs", "error, of the output's root mean square", "same largest"), rows)
    out("errors are those of the weights, beside the model as it was")
