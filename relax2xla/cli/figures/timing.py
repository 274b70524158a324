"""Timing side by side: variants are run in turn, so that a machine that drifts drifts for all."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def interleaved(
    variants: Mapping[str, Callable[[], Any]],
    rounds: int,
    calls: int = 1,
    warmup: int = 1,
    untimed: int = 0,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Seconds a call of each variant, one figure a round; the order rotates from round to round.

    ``untimed``: calls before each measurement. Idle threads of the runtime measured before may
    spin for some milliseconds and take its cores; with several cores one such call is fair.
    ``clock``: ``time.process_time`` on a machine with other work.
    """
    for _ in range(warmup):
        for run in variants.values():
            run()
    names = list(variants)
    times: dict[str, list[float]] = {n: [] for n in names}
    for r in range(rounds):
        for i in range(len(names)):
            name = names[(i + r) % len(names)]
            run = variants[name]
            for _ in range(untimed):
                run()
            start = clock()
            for _ in range(calls):
                run()
            times[name].append((clock() - start) / calls)
    return times


def percentile(values: Sequence[float], share: float) -> float:
    """The value that ``share`` percent of ``values`` do not exceed, between two of them."""
    ordered = sorted(values)
    at = (len(ordered) - 1) * share / 100
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (at - low) * (ordered[high] - ordered[low])


def ratio(times: Mapping[str, Sequence[float]], name: str, against: str) -> float:
    """The median of the ratios of two variants, round by round."""
    return statistics.median(a / b for a, b in zip(times[name], times[against], strict=True))


def rounds_for(
    variants: Mapping[str, Callable[[], Any]], seconds: float, least: int = 3, most: int = 20
) -> int:
    """How many rounds (with one untimed call each) take about ``seconds``; runs all twice."""
    for run in variants.values():
        run()
    start = time.perf_counter()
    for run in variants.values():
        run()
    once = time.perf_counter() - start
    return max(least, min(most, int(seconds / (2 * once))))


def calls_for(run: Callable[[], Any], at_least: float = 2e-3, most: int = 1000) -> int:
    """How many calls last ``at_least`` seconds, so that the clock's own cost does not show."""
    run()
    start = time.perf_counter()
    run()
    return max(1, min(most, round(at_least / max(time.perf_counter() - start, 1e-7))))
