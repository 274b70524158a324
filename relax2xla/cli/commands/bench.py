"""``relax2xla bench``: latency beside the frameworks that can run the same file."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from relax2xla.cli.figures import timing
from relax2xla.cli.page.plot import plot_page, plot_svg
from relax2xla.cli.process.console import note, print_json, status, table
from relax2xla.cli.proof.reference import on_device, references, unoptimised
from relax2xla.cli.reading.inputs import files_in
from relax2xla.cli.reading.model import (
    by_value_noted,
    entry_name,
    inputs_of,
    load_model,
    nest,
    parse_device,
    parse_shapes,
)
from relax2xla.errors import TVMError
from relax2xla.importers.files import check_target, format_of, write_atomically


def run_bench(
    file: Path,
    inputs: Sequence[str],
    seed: int,
    rounds: int,
    threads: int | None,
    device_name: str,
    as_json: bool,
    trust: bool,
    shape: Sequence[str],
    plot: Path | None = None,
) -> None:
    """Measure and print one row a variant; ``plot``: a file for a picture of the times."""
    if plot is not None:
        if plot.suffix.lower() not in (".svg", ".html"):
            raise TVMError(f"--plot {plot}: expected a name that ends in .svg or .html")
        check_target(plot, file, *files_in(inputs))
    device = parse_device(device_name)
    shapes = parse_shapes(shape)
    if threads is not None:
        use_cores(threads)
    mod = load_model(file, trust, shapes)
    import jax

    from relax2xla.vm.call.machine import VirtualMachine
    from relax2xla.vm.plan.build import build

    start = time.perf_counter()
    with status("compiling"):
        machine = VirtualMachine(build(mod), device)
        name = entry_name(list(machine.executable))
        main, flat = machine[name], inputs_of(machine, name, file, inputs, seed, shapes)
        args = nest(main.params, on_device(flat, device))
        with by_value_noted(machine, name, inputs):
            jax.block_until_ready(main(*args))
    compiled = time.perf_counter() - start
    variants: dict[str, Callable[[], Any]] = {
        "relax2xla": lambda: jax.block_until_ready(main(*args))
    }
    with status("preparing the others"):
        reference, _ = next(references(file, mod, flat, device, threads))
        variants[reference.name] = reference.run
        if format_of(file).name in ("onnx", "pt2"):
            plain = unoptimised(mod, flat, device)
            variants[plain.name] = plain.run
    with status("measuring"):
        calls = min(timing.calls_for(run) for run in variants.values())
        times = timing.interleaved(variants, rounds, calls, untimed=calls)
    found = {
        name: {
            "median_ms": 1e3 * statistics.median(values),
            "min_ms": 1e3 * min(values),
            "p90_ms": 1e3 * timing.percentile(values, 90),
            "p99_ms": 1e3 * timing.percentile(values, 99),
            "calls_per_s": 1 / statistics.median(values),
            "ratio": timing.ratio(times, name, "relax2xla"),
        }
        for name, values in times.items()
    }
    remark = f"{rounds} rounds of {calls} calls, all variants in turn"
    if plot is not None:
        draw = plot_svg if plot.suffix.lower() == ".svg" else plot_page
        count = os.cpu_count() if threads is None else threads
        cores = f"{count} {'core' if threads is None else 'thread'}{'s' * (count != 1)}"
        text = draw(times, file.name, f"{remark}; {device}, {cores}")
        write_atomically(plot, lambda stream: stream.write(text.encode("utf-8", "replace")))
        note(f"wrote {plot}")
    if as_json:
        done = {"file": str(file), "rounds": rounds, "compile_s": compiled, "variants": found}
        print_json(done)
        return
    table(
        ("variant", "median ms", "min ms", "p90 ms", "p99 ms", "calls/s", "times relax2xla"),
        [
            (
                name,
                *(f"{f[k]:.3f}" for k in ("median_ms", "min_ms", "p90_ms", "p99_ms")),
                f"{f['calls_per_s']:,.1f}",
                f"{f['ratio']:.2f}",
            )
            for name, f in found.items()
        ],
    )
    note(f"{remark}; compiled in {compiled:.1f} s")


def use_cores(count: int) -> None:
    """Let this process run on ``count`` cores only, before any runtime starts its threads."""
    setter = getattr(os, "sched_setaffinity", None)
    if setter is None:
        raise TVMError(
            "--threads is not supported on this system; use the variables of each runtime"
        )
    allowed = sorted(os.sched_getaffinity(0))
    if count > len(allowed):
        raise TVMError(f"--threads {count}: there are only {len(allowed)} cores")
    setter(0, allowed[:count])
