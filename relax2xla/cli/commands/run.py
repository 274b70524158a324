"""``relax2xla run``: one call of a model on XLA."""

from __future__ import annotations

import json
import time
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from relax2xla.cli.commands.inspect import STABLEHLO
from relax2xla.cli.figures.reports import Reports, compile_ahead, report, report_memory
from relax2xla.cli.process.console import loading, note, out, print_json, status, table
from relax2xla.cli.reading.inputs import files_in, leaves_of
from relax2xla.cli.reading.model import (
    by_value_noted,
    check_shapes,
    entry_name,
    inputs_of,
    load_model,
    nest,
    parse_device,
    parse_shapes,
)
from relax2xla.cli.reading.values import (
    Array,
    host_results,
    is_array,
    is_map,
    is_maps,
    is_text,
    kind_of,
    to_json,
    words,
)
from relax2xla.cli.reading.weights import set_weights
from relax2xla.errors import FileFormatError, TVMError
from relax2xla.importers.files import check_file, check_targets, format_of, write_atomically
from relax2xla.vm.pjrt import cache


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
    as_json: bool = False,
) -> None:
    """Run ``file`` once; print a table of the results, and save them to ``output``.

    ``weights``: a file whose arrays take the place of the model's.
    """
    reports = reports or Reports()
    if as_json and reports.memory:
        raise TVMError("--json is of the results and the profile; --memory prints tables")
    device = parse_device(device_name)
    shapes = parse_shapes(shape)
    read = [file, *files_in(inputs), *([] if weights is None else [weights])]
    results = [] if output is None else _files_of(output)
    asked = [target for target in (reports.trace, reports.flame) if target is not None]
    check_targets([*results, *asked], *read)
    if reports != Reports():
        # A program of the cache may have been compiled from another source, with its names.
        store = cache.current()
        cache.use(store and cache.DiskCache(store.folder, store.limit, programs=False))
    from relax2xla.vm.call.machine import BoundFunction, VirtualMachine
    from relax2xla.vm.plan.build import build

    saved = file.suffix.lower() == ".r2x"
    # XLA computes what depends on constants alone where it puts sizes into a StableHLO program, and
    # weights lose their names; the machine puts the sizes in when the weights are arguments.
    late = weights is not None and not saved and format_of(file).name in STABLEHLO
    if saved:
        from relax2xla.vm.save.reader import load_module

        start = time.perf_counter()
        # Machine code in a file is run as it is, so it takes the same trust as a .pt2 file.
        check_file(file)
        with loading(file.name):
            executable = load_module(file, compiled=trust, native=trust)
    else:
        mod = load_model(file, trust, {} if late else shapes)
        start = time.perf_counter()
        executable = build(mod)
    machine = VirtualMachine(executable, device)
    name = entry_name(list(machine.executable), function)
    main = machine[name]
    if saved or late:
        check_shapes(leaves_of(main.params), shapes)
    with loading("weights"):
        if weights is not None:
            set_weights(machine, weights)
        if isinstance(main, BoundFunction):
            main.weights()
    with status("compiling"):
        flat = inputs_of(machine, name, file, inputs, seed, shapes)
        if reports.memory:
            compile_ahead(machine, main, nest(main.params, flat))
    told = report_memory(machine) if reports.memory else set[int]()
    with status("compiling"), by_value_noted(machine, name, inputs):
        results = host_results(main(*nest(main.params, flat)))
    first = time.perf_counter()
    if output is not None:
        _check_results(output, results)
    host_results(main(*nest(main.params, flat)))
    again = time.perf_counter()
    called = machine.executable.result_names(name, len(results))
    given = [v for v in flat if not isinstance(v, int | tuple) or _elements(v)]
    names = [leaf.names[0] for leaf in leaves_of(main.params)]
    summary: dict[str, Any] = {}
    if as_json:
        summary = {
            "file": str(file),
            "inputs": [_described(n, v) for n, v in zip(names, flat, strict=True)],
            "outputs": [_described(n, v) for n, v in zip(called, results, strict=True)],
            "first_s": first - start,
            "again_s": again - first,
        }
    elif given:
        table(_COLUMNS, [_row(n, v) for n, v in zip(names, flat, strict=True)], "inputs")
        out()
    if not as_json:
        table(_COLUMNS, [_row(n, v) for n, v in zip(called, results, strict=True)], "outputs")
    note(f"compiled and run in {first - start:.2f} s; a second run took {_time(again - first)}")
    if output is not None:
        note(f"wrote {' and '.join(map(str, save_results(output, called, results)))}")
    if reports.memory:
        report_memory(machine, told)
    profiled = report(machine, main.name, nest(main.params, flat), reports, as_json)
    if as_json:
        print_json(summary if profiled is None else {**summary, "profile": profiled})


_COLUMNS = ("name", "dtype", "shape", "min", "mean", "max", "first values")


def _row(name: str, value: Any) -> tuple[str, ...]:
    if _elements(value):
        return (name, f"sequence of {kind_of(value[0])[0]}", str(len(value)), "", "", "", "")
    if value is None or isinstance(value, np.ndarray) or is_map(value) or is_maps(value):
        head = (name, *kind_of(value))
        return (*head, *_numbers(value)) if is_array(value) else (*head, "", "", "", words(value))
    return (name, type(value).__name__, "", "", "", "", str(value))


def _described(name: str, value: Any) -> dict[str, Any]:
    """One value as JSON: the columns of the table that say something of it."""
    if not is_array(value) or is_text(value):
        row = zip(_COLUMNS, _row(name, value), strict=True)
        return {column: text for column, text in row if text}
    numbers = widened(value)
    found = {"name": name, "dtype": value.dtype.name, "shape": list(value.shape)}
    if value.size and numbers.dtype.kind != "c" and np.isfinite(numbers).all():
        low, high = numbers.min().item(), numbers.max().item()
        found |= {"min": low, "mean": numbers.mean(dtype=np.float64).item(), "max": high}
    return found


def _numbers(value: Array) -> tuple[str, ...]:
    """Least, mean, largest and the first ones of an array."""
    numbers = widened(value)
    few = " ".join(f"{v:.4g}" for v in numbers.reshape(-1)[:4])
    if value.size > 4:
        few += " ..."
    if value.size == 0 or numbers.dtype.kind == "c":
        return ("", "", "", few)
    low, mean, high = numbers.min(), numbers.mean(dtype=np.float64), numbers.max()
    return (f"{low:.4g}", f"{mean:.4g}", f"{high:.4g}", few)


def _elements(value: object) -> bool:
    """Whether an argument is a sequence of tensors."""
    return isinstance(value, tuple) and bool(value) and isinstance(value[0], np.ndarray)


def _time(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.2f} s"


def widened(value: Array) -> Array:
    """``value`` in a dtype that numpy itself has and that holds it exactly."""
    if value.dtype.kind in "biufc" and value.dtype.isbuiltin == 1:
        return value.astype(np.uint8) if value.dtype.kind == "b" else value
    return value.astype(np.int8 if "int" in value.dtype.name else np.float32)


def _files_of(output: Path) -> list[Path]:
    """What saving results as ``output`` may write."""
    if output.suffix.lower() not in (".npz", ".npy", ".json"):
        raise FileFormatError(
            f"{output}: results are saved as .npz, as .npy for a single one, or as .json"
        )
    # What no .npz can hold goes to the second.
    return [output, output.with_suffix(".json")] if output.suffix.lower() == ".npz" else [output]


def _check_results(output: Path, results: Sequence[Any]) -> None:
    """TVMError where a .npy cannot hold the results."""
    if output.suffix.lower() != ".npy":
        return
    if len(results) != 1:
        raise TVMError(f"{output} holds one array; there are {len(results)} results: use .npz")
    if not _numpy_holds(results[0]):
        raise TVMError(
            f"{output} holds an array; the result is a {kind_of(results[0])[0]}: use .json"
        )


def _numpy_holds(value: Any) -> bool:
    """Whether a file of numpy can have a result as it is, without pickle."""
    if not isinstance(value, np.ndarray):
        return False
    # numpy's own strings end at the last character that is not zero.
    return not is_text(value) or not any(str(v).endswith("\0") for v in value.flat)


def _stored(value: Array) -> Array:
    """A result in a dtype of numpy's own."""
    if is_text(value):
        return value.astype(np.str_)
    return value if value.dtype.kind == "b" else widened(value)


def _write_npz(file: BinaryIO, arrays: Mapping[str, Array]) -> None:
    """As ``np.savez``, which takes no array called ``file``."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asanyarray(array), allow_pickle=False)


def save_results(output: Path, names: Sequence[str], results: Sequence[Any]) -> list[Path]:
    """Write results, and give the files: a .json too where an .npz cannot hold all of them.

    dtypes that numpy does not know, such as bfloat16, are saved in a wider one.
    """
    suffix = output.suffix.lower()
    named = dict(zip(names, results, strict=True))
    if suffix == ".npy":
        plain = _stored(results[0])
        write_atomically(output, lambda file: np.save(file, plain, allow_pickle=False))
        return [output]
    others = named
    written: list[Path] = []
    if suffix == ".npz":
        arrays: Any = {n: _stored(v) for n, v in named.items() if _numpy_holds(v)}
        others = {n: v for n, v in named.items() if n not in arrays}
        write_atomically(output, lambda file: _write_npz(file, arrays))
        written.append(output)
        output = output.with_suffix(".json")
    if others or suffix == ".json":
        text = json.dumps({n: to_json(v) for n, v in others.items()}, indent=2, allow_nan=False)
        write_atomically(output, lambda file: file.write(text.encode() + b"\n"))
        written.append(output)
    return written
