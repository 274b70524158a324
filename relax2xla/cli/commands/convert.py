"""``relax2xla convert``: a model in another form."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from relax2xla.cli.commands.inspect import weights
from relax2xla.cli.process.console import note, print_json, size, status, weights_text
from relax2xla.cli.reading.model import load_model, parse_shapes
from relax2xla.errors import TVMError
from relax2xla.importers.beside import INLINE
from relax2xla.importers.files import check_target, form_of, render, write_program
from relax2xla.runtime.whole_file import descriptor

# From this size on, weights written as text are worth a word.
LARGE: Final = 32 * 2**20


def run_convert(
    file: Path,
    output: str,
    to: Any,
    version: str | None,
    trust: bool,
    shape: Sequence[str],
    weights_to: str | None = None,
    as_json: bool = False,
) -> None:
    """Write ``file`` in another form to ``output`` ("-", or /dev/stdout, is standard output).

    ``weights_to``: the file for weights, "inline", or None for what suits the form.
    """
    if descriptor(Path(output)) == 1:
        to, output = to or form_of(output), "-"
    if output == "-" and weights_to not in (None, INLINE):
        raise TVMError("--weights is for a program in a file; name it with -o")
    if output == "-" and as_json:
        raise TVMError("--json and -o - both write to standard output; name a file with -o")
    if output == "-" and to is None:
        raise TVMError("-o - needs --to relax, mlir, mlirbc or stablehlo")
    form = to or form_of(output)
    if version is not None and form != "stablehlo":
        raise TVMError("--stablehlo-version belongs to portable artefacts (--to stablehlo)")
    if output != "-":
        check_target(Path(output), file)
    mod = load_model(file, trust, parse_shapes(shape))
    held = weights(list(mod.relax_functions().values()))
    with status(f"writing {output}"):
        if output == "-":
            data = render(mod, form, version)
            sys.stdout.flush()
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
            return
        written, beside = write_program(mod, Path(output), form, version, weights_to)
    told_written(output, written, held, beside)
    if beside is None and held["bytes"] > LARGE and form in ("relax", "mlir"):
        note("hint: .mlirbc holds the same weights in less space, and is faster to read")
    if as_json:
        print_json({"file": str(file), **described(output, form, written, held, beside)})


def told_written(
    output: object, written: int, held: Mapping[str, Any], beside: Path | None
) -> None:
    """Say what was written, and where its weights (as :func:`inspect.weights` has them) are."""
    counted = weights_text(held["arrays"], held["bytes"])
    if beside is not None:
        note(f"wrote {output}: {size(written)}")
        note(f"wrote {beside}: {size(beside.stat().st_size)}, the large ones of {counted}")
        return
    note(f"wrote {output}: {size(written)}" + (f", {counted} inline" if held["arrays"] else ""))


def described(
    output: object, form: str, written: int, held: Mapping[str, Any], beside: Path | None
) -> dict[str, Any]:
    """The same as plain data."""
    return {
        "output": str(output),
        "form": form,
        "bytes": written,
        "weights": dict(held),
        "weights_file": None if beside is None else str(beside),
    }
