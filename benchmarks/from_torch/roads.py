"""The two roads of a torch network, torch.export and ONNX: do both give a program of one speed?

Each architecture of docs/results/torch_models.md that both roads take is built both ways and timed
on one core, the two in turn, in a process of its own. A ratio far from 1 says that one importer
writes something that the pipeline does not know. ``--only 'timm/*'`` takes some, ``--quick`` five.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.chosen import chosen

# Seconds that one architecture may take.
LIMIT = 300.0
# Ratios beyond this, either way, are worth a look.
FAR = 1.2


def main(quick: bool = False, only: Sequence[str] | None = None) -> None:
    """Print a row for each architecture as it is done, and what is far from 1 at the end."""
    from benchmarks.from_torch.torch_models_zoo import ZOO

    names = chosen(ZOO, only)
    far: list[str] = []
    print("| architecture | export ms | ONNX ms | export / ONNX |\n|---|---|---|---|")
    for name in names[:5] if quick else names:
        found = _in_a_process(name)
        if "reason" in found:
            print(f"| {name} | {found['reason'][:80]} | | |", flush=True)
            continue
        export, onnx, ratio = found["export"], found["onnx"], found["ratio"]
        print(f"| {name} | {export:.2f} | {onnx:.2f} | {ratio:.2f} |", flush=True)
        if not 1 / FAR <= ratio <= FAR:
            far.append(f"{name} {ratio:.2f}")
    print(f"\nbeyond {FAR}: {', '.join(far) or 'none'}")


def _in_a_process(name: str) -> dict[str, Any]:
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.from_torch.roads", name]
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
    except subprocess.TimeoutExpired:
        return {"reason": f"longer than {LIMIT:.0f} s"}
    lines = run.stdout.strip().splitlines()
    if run.returncode or not lines:
        return {"reason": (run.stderr.strip().splitlines() or ["no message"])[-1]}
    return json.loads(lines[-1])


def measure(name: str) -> dict[str, Any]:
    """Milliseconds of a call by either road, and the median of their ratios round by round."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    import onnx
    import torch

    import relax2xla
    from benchmarks.from_torch.torch_models_zoo import ZOO
    from benchmarks.timing import interleaved
    from relax2xla.cli.figures.timing import ratio
    from relax2xla.frontend.onnx import from_onnx
    from relax2xla.frontend.torch import from_exported_program

    warnings.simplefilter("ignore")
    example = ZOO[name]()
    args, kwargs = example.inputs(1)
    with torch.no_grad(), tempfile.TemporaryDirectory() as folder:
        exported = from_exported_program(torch.export.export(example.network, args, kwargs))
        path = Path(folder, "network.onnx")
        torch.onnx.export(example.network, args, path, kwargs=kwargs, dynamo=True, verbose=False)
        converted = from_onnx(onnx.load(path))
    tensors = [t for t in (*args, *kwargs.values()) if isinstance(t, torch.Tensor)]
    calls: dict[str, Any] = {}
    for road, mod in (("export", exported), ("onnx", converted)):
        function = relax2xla.VirtualMachine(relax2xla.build(mod))["main"]
        count = len(function.params)
        if count != len(tensors):
            raise SystemExit(f"{road} has {count} parameters for {len(tensors)} tensors")
        given = [t.numpy() for t in tensors]
        calls[road] = lambda function=function, given=given: relax2xla.testing.to_numpy(
            function(*given)
        )
    times = interleaved(calls, 12, warmup=2)
    made = {road: 1e3 * statistics.median(values) for road, values in times.items()}
    return {**made, "ratio": ratio(times, "export", "onnx")}


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1])))
