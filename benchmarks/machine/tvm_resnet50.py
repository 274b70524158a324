"""ResNet-50 (float32, batch 1) on Apache TVM's Relax with its default pipeline, on one core.

TVM is no dependency of this project and takes seconds a call, so this is a program of its own. Run
it from the root of the repository with the Python of an environment that holds apache-tvm, torch
and numpy (``benchmarks/README.md`` shows how to make one)::

    path/to/environment/bin/python -m benchmarks.machine.tvm_resnet50 --ours 85

The network is that of ``examples/models``, taken through ``torch.export`` and TVM's own importer,
so that both sides import the same program. With ``--ours MS``, the latency of relax2xla that
``python -m benchmarks models`` prints on the same machine, the table ends with the ratio.
"""

from __future__ import annotations

import argparse
import importlib
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

# One core for everybody, before any runtime starts its threads.
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
os.environ.setdefault("TVM_NUM_THREADS", "1")

import numpy as np
import torch

from examples.models import MODELS

T = TypeVar("T")


@dataclass(frozen=True)
class Row:
    """One line of the table: milliseconds on the clock, and of the processor's own time."""

    what: str
    wall: float
    cpu: float


def _timed(what: str, run: Callable[[], T]) -> tuple[T, Row]:
    """A result and what it took."""
    wall, cpu = time.perf_counter(), time.process_time()
    result = run()
    return result, Row(
        what, 1000 * (time.perf_counter() - wall), 1000 * (time.process_time() - cpu)
    )


def measure(calls: int, warmup: int) -> tuple[list[Row], float, str]:
    """The rows, the last of them the median latency; the error to torch; the version of TVM."""
    tvm, loading = _timed("import tvm", _tvm)
    network = MODELS["resnet50"].build()
    inputs = MODELS["resnet50"].example_inputs()
    exported = torch.export.export(network, inputs)
    with torch.no_grad():
        expected = network(*inputs).numpy()

    mod, importing = _timed(
        "import of the model (from_exported_program)", lambda: _from_exported_program(exported)
    )
    executable, compiling = _timed(
        'compile (tvm.compile, target "llvm")', lambda: tvm.compile(mod, target="llvm")
    )
    main = tvm.relax.VirtualMachine(executable, tvm.cpu())["main"]
    arguments = [tvm.runtime.tensor(t.numpy()) for t in inputs]
    for _ in range(warmup):
        main(*arguments)
    timed = [_timed("a call", lambda: main(*arguments)) for _ in range(calls)]
    result: Any = timed[-1][0]
    first = result if hasattr(result, "numpy") else result[0]
    error = float(np.abs(first.numpy() - expected).max())

    def latency(of: Callable[[list[float]], float], name: str) -> Row:
        rows = [row for _, row in timed]
        what = f"latency, {name} of {calls}"
        return Row(what, of([r.wall for r in rows]), of([r.cpu for r in rows]))

    rows = [loading, importing, compiling, latency(min, "minimum")]
    return [*rows, latency(statistics.median, "median")], error, tvm.__version__


def _tvm() -> Any:
    importlib.import_module("tvm.relax")
    return importlib.import_module("tvm")


def _from_exported_program(exported: torch.export.ExportedProgram) -> Any:
    frontend = importlib.import_module("tvm.relax.frontend.torch")
    return frontend.from_exported_program(exported)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.machine.tvm_resnet50",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--calls", type=int, default=3, help="timed calls (default: 3)")
    parser.add_argument("--warmup", type=int, default=1, help="calls before them (default: 1)")
    parser.add_argument(
        "--ours", type=float, metavar="MS", help="latency of relax2xla, to print the ratio"
    )
    args = parser.parse_args()
    torch.set_num_threads(1)
    rows, error, version = measure(args.calls, args.warmup)
    print(f"\nTVM {version}, maximum absolute error to torch {error:.1e}\n")
    print("| TVM, ResNet-50, batch 1, one core | ms | ms of CPU time |\n|---|---|---|")
    for row in rows:
        print(f"| {row.what} | {row.wall:.0f} | {row.cpu:.0f} |")
    if args.ours is not None:
        wall, cpu = (ms / args.ours for ms in (rows[-1].wall, rows[-1].cpu))
        print(
            f"\nrelax2xla, as given: {args.ours:.1f} ms. TVM takes {wall:.1f} times as long by the "
            f"clock, {cpu:.1f} times by its CPU time.\nWhere the two differ, the core was shared: "
            "the clock then flatters the side that was measured on a quiet core."
        )


if __name__ == "__main__":
    main()
