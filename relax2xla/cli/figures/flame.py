"""``run --flame``: the steps of one call as a file of speedscope, stacked by the source's modules.

The format is that of https://www.speedscope.app/file-format-schema.json: a list of frames, and for
each thread samples (stacks of frames, the outermost first) with their times.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import IO, TYPE_CHECKING, Any, Final

from relax2xla.cli.page.graph import parts_of

if TYPE_CHECKING:
    from relax2xla.vm.observe.trace import Step

_SCHEMA: Final = "https://www.speedscope.app/file-format-schema.json"


def write_speedscope(file: IO[bytes], steps: Sequence[Step], title: str) -> None:
    """Write a profile for each thread; a step lies within the modules that its name says."""
    from relax2xla import __version__

    frames: dict[str, int] = {}
    threads: dict[str, list[Step]] = {}
    for step in steps:
        threads.setdefault(step.thread, []).append(step)
    profiles: list[dict[str, Any]] = []
    for thread, own in threads.items():
        ordered = sorted(own, key=lambda s: s.start)
        times = [s.duration for s in ordered]
        profiles.append(
            {
                "type": "sampled",
                "name": thread,
                "unit": "nanoseconds",
                "startValue": 0,
                "endValue": sum(times),
                "samples": [
                    [frames.setdefault(f, len(frames)) for f in stack_of(s)] for s in ordered
                ],
                "weights": times,
            }
        )
    data = {
        "$schema": _SCHEMA,
        "exporter": f"relax2xla {__version__}",
        "name": title,
        "activeProfileIndex": 0,
        "shared": {"frames": [{"name": name} for name in frames]},
        "profiles": profiles,
    }
    file.write(json.dumps(data).encode())


def stack_of(step: Step) -> list[str]:
    """The modules that a step is in by its source's name, and the step: paths, then its HLO."""
    parts, separator = parts_of(step.source)
    paths = [separator.join(parts[: i + 1]) for i in range(len(parts))]
    return [*paths, step.op]
