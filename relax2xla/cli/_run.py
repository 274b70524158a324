"""``relax2xla run``: one call of a model on XLA."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from relax2xla.cli._console import loading, note, out, status, table
from relax2xla.cli._model import (
    Array,
    by_value_noted,
    check_shapes,
    entry_name,
    inputs_of,
    leaves_of,
    load_model,
    nest,
    outputs_of,
    parse_device,
    parse_shapes,
)
from relax2xla.cli._reports import Reports, compile_ahead, report, report_memory
from relax2xla.cli._signals import interruptible
from relax2xla.cli._weights import set_weights
from relax2xla.errors import FileFormatError, TVMError
from relax2xla.importers.files import check_file, check_target, write_atomically
from relax2xla.vm import cache


def run_run(
    file: Path,
    inputs: Sequence[str],
    output: Path | None,
    seed: int,
    device_name: str,
    function: str,
    trust: bool,
    shape: Sequence[str],
    reports: Reports | None = None,
    weights: Path | None = None,
) -> None:
    """Run ``file`` once; print a table of the results, and save them to ``output``.

    ``weights``: a file whose arrays take the place of the model's.
    """
    reports = reports or Reports()
    device = parse_device(device_name)
    shapes = parse_shapes(shape)
    if output is not None:
        _check_output(output)
    if reports.trace is not None:
        check_target(reports.trace)
    if reports != Reports():
        # A program of the cache may have been compiled from another source, with its names.
        cache.use(None)
    from relax2xla.vm.build import build
    from relax2xla.vm.machine import BoundFunction, VirtualMachine

    saved = file.suffix.lower() == ".r2x"
    if saved:
        from relax2xla.vm.package import load_module

        start = time.perf_counter()
        # Machine code in a file is run as it is, so it takes the same trust as a .pt2 file.
        check_file(file)
        with loading(file.name):
            executable = load_module(file, compiled=trust)
    else:
        mod = load_model(file, trust, shapes)
        start = time.perf_counter()
        executable = build(mod)
    machine = VirtualMachine(executable, device)
    name = entry_name(list(machine.executable), function)
    main = machine[name]
    if saved:
        check_shapes(leaves_of(main.params), shapes)
    with loading("weights"):
        if weights is not None:
            set_weights(machine, weights)
        if isinstance(main, BoundFunction):
            main.weights()
    with status("compiling"), interruptible():
        flat = inputs_of(machine, name, inputs, seed, shapes)
        if reports.memory:
            compile_ahead(machine, main, nest(main.params, flat))
    told = report_memory(machine) if reports.memory else set[int]()
    with status("compiling"), interruptible(), by_value_noted(machine, name, inputs):
        results = outputs_of(main(*nest(main.params, flat)))
    first = time.perf_counter()
    if output is not None and output.suffix.lower() == ".npy" and len(results) != 1:
        raise TVMError(f"{output} holds one array; there are {len(results)} results: use .npz")
    outputs_of(main(*nest(main.params, flat)))
    again = time.perf_counter()
    given = [v for v in flat if isinstance(v, np.ndarray)]
    names = [leaf.names[0] for leaf in leaves_of(main.params)]
    if given:
        table(_COLUMNS, [_row(n, v) for n, v in zip(names, flat, strict=True)], "inputs")
        out()
    table(_COLUMNS, [_row(f"output_{i}", v) for i, v in enumerate(results)], "outputs")
    note(f"compiled and run in {first - start:.2f} s; a second run took {_time(again - first)}")
    if output is not None:
        save_results(output, results)
        note(f"wrote {output}")
    if reports.memory:
        report_memory(machine, told)
    report(machine, main.name, nest(main.params, flat), reports)


_COLUMNS = ("name", "dtype", "shape", "min", "mean", "max", "first values")


def _row(name: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, np.ndarray):
        return (name, type(value).__name__, "", "", "", "", str(value))
    shape = "x".join(map(str, value.shape)) or "scalar"
    dtype = value.dtype.name
    numbers = widened(value)
    few = " ".join(f"{v:.4g}" for v in numbers.reshape(-1)[:4])
    if value.size > 4:
        few += " ..."
    if value.size == 0 or numbers.dtype.kind == "c":
        return (name, dtype, shape, "", "", "", few)
    low, mean, high = numbers.min(), numbers.mean(dtype=np.float64), numbers.max()
    return (name, dtype, shape, f"{low:.4g}", f"{mean:.4g}", f"{high:.4g}", few)


def _time(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.2f} s"


def widened(value: Array) -> Array:
    """``value`` in a dtype that numpy itself has and that holds it exactly."""
    if value.dtype.kind in "biufc" and value.dtype.isbuiltin == 1:
        return value.astype(np.uint8) if value.dtype.kind == "b" else value
    return value.astype(np.int8 if "int" in value.dtype.name else np.float32)


def _check_output(output: Path) -> None:
    if output.suffix.lower() not in (".npz", ".npy"):
        raise FileFormatError(f"{output}: results are saved as .npz, or as .npy for a single one")
    check_target(output)


def save_results(output: Path, results: Sequence[Array]) -> None:
    """Write results; dtypes that numpy does not know, such as bfloat16, in a wider one."""
    plain = [r if r.dtype.kind == "b" else widened(r) for r in results]
    if output.suffix.lower() == ".npy":
        write_atomically(output, lambda file: np.save(file, plain[0], allow_pickle=False))
        return
    named: Any = {f"output_{i}": value for i, value in enumerate(plain)}
    write_atomically(output, lambda file: np.savez(file, **named))
