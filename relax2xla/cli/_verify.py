"""``relax2xla verify``: the same results as the framework that the model comes from?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from relax2xla.cli._console import out, status, table
from relax2xla.cli._model import (
    Array,
    entry_name,
    load_model,
    make_inputs,
    nest,
    outputs_of,
    parse_device,
    parse_shapes,
)
from relax2xla.cli._reference import source_reference

# Relative and absolute tolerance by dtype; what is not here must be equal.
TOLERANCES: Final[dict[str, tuple[float, float]]] = {
    "float64": (1e-6, 1e-8),
    "complex128": (1e-6, 1e-8),
    "float32": (1e-3, 1e-4),
    "complex64": (1e-3, 1e-4),
    "float16": (1e-2, 1e-3),
    "bfloat16": (5e-2, 1e-2),
}


def run_verify(
    file: Path,
    inputs: Sequence[str],
    seed: int,
    rtol: float | None,
    atol: float | None,
    device_name: str,
    trust: bool,
    shape: Sequence[str],
) -> int:
    """Compare and print one row an output; gives the exit status, 0 or 1."""
    device = parse_device(device_name)
    shapes = parse_shapes(shape)
    mod = load_model(file, trust, shapes)
    from relax2xla.runtime.convert import to_host
    from relax2xla.vm.build import build
    from relax2xla.vm.machine import VirtualMachine

    with status("compiling"):
        machine = VirtualMachine(build(mod), device)
        main = machine[entry_name(list(machine.executable))]
        flat = make_inputs(main.params, inputs, seed, shapes)
        ours = outputs_of(main(*nest(main.params, flat)))
    with status("running the reference"):
        reference = source_reference(file, mod, flat, device)
        theirs = [to_host(v) for v in reference.run()]
    if len(ours) != len(theirs):
        out(f"mismatch: {len(ours)} results, {len(theirs)} from {reference.name}")
        return 1
    rows, fits = compare(ours, theirs, rtol, atol)
    table(("output", "dtype", "shape", "max abs", "max rel", "tolerance", "result"), rows)
    out(f"\n{'agrees with' if fits else 'DIFFERS from'} {reference.name}")
    return 0 if fits else 1


def compare(
    ours: Sequence[Array], theirs: Sequence[Array], rtol: float | None, atol: float | None
) -> tuple[list[tuple[str, ...]], bool]:
    """One row an output, and whether all fit."""
    rows: list[tuple[str, ...]] = []
    fits = True
    for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        rel, ab = TOLERANCES.get(a.dtype.name, (0.0, 0.0))
        rel, ab = (rel if rtol is None else rtol), (ab if atol is None else atol)
        shape = "x".join(map(str, a.shape)) or "scalar"
        head = (f"output_{i}", a.dtype.name, shape)
        if a.shape != b.shape or a.dtype != b.dtype:
            fits = False
            rows.append((*head, "", "", "", f"expected {b.dtype.name} of shape {b.shape}"))
            continue
        largest, relative, good = difference(a, b, rel, ab)
        fits &= good
        errors = (f"{largest:.2e}", f"{relative:.2e}", f"{ab:g} + {rel:g}|x|")
        rows.append((*head, *errors, "ok" if good else "MISMATCH"))
    return rows, fits


def difference(ours: Array, theirs: Array, rtol: float, atol: float) -> tuple[float, float, bool]:
    """Largest absolute and relative difference, and whether every element is within tolerance.

    Infinities and NaN must stand at the same places.
    """
    wide: Any = np.complex128 if ours.dtype.kind == "c" else np.float64
    a, b = ours.astype(wide), theirs.astype(wide)
    equal = (ours == theirs) | (np.isnan(a) & np.isnan(b))
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        # Large integers that differ may be equal as floats.
        least = 1.0 if ours.dtype.kind in "biu" else 0.0
        gap = np.where(equal, 0.0, np.maximum(np.abs(a - b), least))
        relative = np.where(equal, 0.0, gap / np.abs(b))
        good = equal | (np.isfinite(gap) & (gap <= atol + rtol * np.abs(b)))
    return float(gap.max(initial=0.0)), float(relative.max(initial=0.0)), bool(good.all())
