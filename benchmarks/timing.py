"""Tables of times measured side by side (the measuring itself is shared with the command line)."""

from __future__ import annotations

import statistics
from collections.abc import Mapping

from relax2xla.cli.figures.timing import interleaved as interleaved
from relax2xla.cli.figures.timing import ratio


def table(times: Mapping[str, list[float]], against: str, unit: str = "ms") -> str:
    """A Markdown table: median and minimum of each variant, and the ratio of its time to a peer's.

    The ratio is the median of the ratios round by round.
    """
    scale = {"s": 1.0, "ms": 1e3, "us": 1e6}[unit]
    lines = [f"| variant | median {unit} | min {unit} | ratio to {against} |", "|---|---|---|---|"]
    for name, values in times.items():
        lines.append(
            f"| {name} | {scale * statistics.median(values):.2f} | {scale * min(values):.2f} "
            f"| {ratio(times, name, against):.2f} |"
        )
    return "\n".join(lines)
