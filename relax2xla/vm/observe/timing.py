"""How long calls take: ``VirtualMachine.time_evaluator``, by the rules of TVM's."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

# By how much the number of calls grows at least, where a repeat was too short.
GROWTH: Final = 1.618
# Repeats that took no time that the clock could see end the search for a number.
BLIND: Final = 100


@dataclass(frozen=True, slots=True)
class BenchmarkResult:
    """Seconds a call, one figure for each repeat, and what is usually asked of them."""

    results: tuple[float, ...]

    @property
    def mean(self) -> float:
        """The arithmetic mean."""
        return statistics.fmean(self.results)

    @property
    def median(self) -> float:
        """The median."""
        return statistics.median(self.results)

    @property
    def min(self) -> float:
        """The shortest."""
        return min(self.results)

    @property
    def max(self) -> float:
        """The longest."""
        return max(self.results)

    @property
    def std(self) -> float:
        """The standard deviation of these figures (numpy's, over all of them)."""
        return statistics.pstdev(self.results)

    def __str__(self) -> str:
        names = ("mean", "median", "max", "min", "std")
        values = (self.mean, self.median, self.max, self.min, self.std)
        head = "".join(f" {n:^12}" for n in names)
        row = "".join(f" {v * 1e3:^12.4f}" for v in values)
        return f"Execution time summary (ms):\n{head.rstrip()}\n{row.rstrip()}"


@dataclass(frozen=True, slots=True)
class Timing:
    """How often to call, and when to rest; see ``VirtualMachine.time_evaluator``."""

    number: int = 10
    repeat: int = 1
    min_repeat_ms: float = 0
    cooldown_interval_ms: float = 0
    repeats_to_cooldown: int = 1

    def __post_init__(self) -> None:
        for name in ("number", "repeat", "repeats_to_cooldown"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"time_evaluator: {name} must be at least 1; got {value!r}")
        for name in ("min_repeat_ms", "cooldown_interval_ms"):
            if getattr(self, name) < 0:
                raise ValueError(
                    f"time_evaluator: {name} must not be negative; got {getattr(self, name)!r}"
                )


def measure(
    call: Callable[[], Any],
    wait: Callable[[Any], None],
    timing: Timing,
    before: Callable[[], Any] | None = None,
    clock: Callable[[], float] = time.perf_counter,
    sleep: Callable[[float], None] = time.sleep,
) -> BenchmarkResult:
    """Time ``call``, whose result ``wait`` waits for, after one call that does not count.

    ``before`` runs ahead of each repeat, outside of its time.
    """
    wait(call())
    number = timing.number
    results: list[float] = []
    for i in range(timing.repeat):
        if before is not None:
            before()
        blind = 0
        while True:
            start = clock()
            for _ in range(number):
                wait(call())
            seconds = clock() - start
            blind += seconds == 0
            if seconds * 1e3 >= timing.min_repeat_ms or blind >= BLIND:
                break
            needed = timing.min_repeat_ms / 1e3 / (seconds / number) + 1 if seconds else 0
            number = int(max(needed, number * GROWTH + 1))
        results.append(seconds / number)
        if timing.cooldown_interval_ms > 0 and (i + 1) % timing.repeats_to_cooldown == 0:
            sleep(timing.cooldown_interval_ms / 1e3)
    return BenchmarkResult(tuple(results))


def leaves(value: Any) -> Sequence[Any]:
    """What is in a result, without its tuples."""
    found: list[Any] = []
    todo = [value]
    while todo:
        item = todo.pop()
        if isinstance(item, tuple | list):
            todo += item
        else:
            found.append(item)
    return found
