"""Timing side by side: variants are run in turn, so that a machine that drifts drifts for all."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any


def interleaved(
    variants: Mapping[str, Callable[[], Any]], rounds: int, calls: int = 1, warmup: int = 1
) -> dict[str, list[float]]:
    """Seconds a call of each variant, one figure a round; the order rotates from round to round."""
    for _ in range(warmup):
        for run in variants.values():
            run()
    names = list(variants)
    times: dict[str, list[float]] = {n: [] for n in names}
    for r in range(rounds):
        for i in range(len(names)):
            name = names[(i + r) % len(names)]
            run = variants[name]
            start = time.perf_counter()
            for _ in range(calls):
                run()
            times[name].append((time.perf_counter() - start) / calls)
    return times


def table(times: Mapping[str, list[float]], against: str, unit: str = "ms") -> str:
    """A Markdown table: median and minimum of each variant, and the ratio of its median to a peer's.

    The ratio is the median of the ratios round by round.
    """
    scale = {"s": 1.0, "ms": 1e3, "us": 1e6}[unit]
    lines = [f"| variant | median {unit} | min {unit} | ratio to {against} |", "|---|---|---|---|"]
    for name, values in times.items():
        ratios = [a / b for a, b in zip(values, times[against], strict=True)]
        lines.append(
            f"| {name} | {scale * statistics.median(values):.2f} | {scale * min(values):.2f} "
            f"| {statistics.median(ratios):.2f} |"
        )
    return "\n".join(lines)
