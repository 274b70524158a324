"""``torch.compile`` on one core: XLA beside TorchInductor and eager torch, in one process.

``python -m benchmarks.from_torch.torch_models_speed`` prints a table. The variants take turns.
Beside time on the clock there is time of the CPU, which other work on the machine changes less.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

# One core for everybody: the process before any runtime starts its threads.
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})

import torch

from examples.models import MODELS

NETWORKS = ("bert_base", "vit_b16", "resnet50")
PEERS = ("inductor", "eager")

Times = Mapping[str, list[tuple[float, float]]]


def interleaved(variants: Mapping[str, Callable[[], Any]], rounds: int) -> Times:
    """Seconds on the clock and of the CPU that each takes, in turn."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in variants}
    for call in variants.values():
        call()
    for _ in range(rounds):
        for name, call in variants.items():
            start, cpu = time.perf_counter(), time.process_time()
            call()
            times[name].append((time.perf_counter() - start, time.process_time() - cpu))
    return times


def measure(name: str, rounds: int) -> tuple[Times, dict[str, float]]:
    """Times a call of each variant, and seconds of the first call of the compilers."""
    network, inputs = MODELS[name].build(), MODELS[name].example_inputs()
    variants: dict[str, Callable[[], Any]] = {"eager": lambda: network(*inputs)}
    first: dict[str, float] = {}
    with torch.no_grad():
        expected = network(*inputs)
        for backend in ("relax2xla", "inductor"):
            compiled: Any = torch.compile(network, backend=backend)
            start = time.perf_counter()
            try:
                found = compiled(*inputs)
            except Exception as e:  # Inductor needs a compiler of C++
                print(f"{name}: {backend} does not run: {str(e).splitlines()[0]}", file=sys.stderr)
                continue
            first[backend] = time.perf_counter() - start
            torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)
            variants[backend] = lambda compiled=compiled: compiled(*inputs)
        # reset() forgets what was compiled before, so both are called once more, in interleaved.
        return interleaved(variants, rounds), first


def ratio(times: Times, to: str, clock: int) -> float:
    """The median, over the rounds, of our time by a peer's."""
    pairs = zip(times["relax2xla"], times[to], strict=True)
    return statistics.median(a[clock] / b[clock] for a, b in pairs)


def rows(rounds: int) -> list[str]:
    """The table, in Markdown."""
    lines = [
        "| network | variant | median ms | median ms of CPU | ratio of relax2xla's time to it "
        "(CPU) | first call s |",
        "|---|---|---|---|---|---|",
    ]
    for name in NETWORKS:
        times, first = measure(name, rounds)
        for variant, values in times.items():
            wall, cpu = (1000 * statistics.median(v[i] for v in values) for i in (0, 1))
            ratios = f"{ratio(times, variant, 0):.2f} ({ratio(times, variant, 1):.2f})"
            started = f"{first[variant]:.1f}" if variant in first else ""
            lines.append(f"| {name} | {variant} | {wall:.1f} | {cpu:.1f} | {ratios} | {started} |")
    return lines


if __name__ == "__main__":
    torch.set_num_threads(1)
    print("\n".join(rows(3 if "--quick" in sys.argv else 20)))
