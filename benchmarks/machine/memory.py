"""Memory of a process that loads a saved BERT-base: the weights are in it once.

Measured in a process of its own: resident memory beyond the frameworks', after the first result.
Pages of the mapped file and memory of the process itself are told apart.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.machine.aot import prepare


def _resident() -> dict[str, float]:
    """MiB of this process by kind, as Linux counts them."""
    lines = Path("/proc/self/status").read_text().splitlines()
    wanted = {"VmRSS": "all", "RssAnon": "own", "RssFile": "files"}
    found = (line.split() for line in lines if line.split(":")[0] in wanted)
    return {wanted[name.rstrip(":")]: int(size) / 1024 for name, size, _ in found}


def _measure(folder: Path) -> dict[str, Any]:
    import jax
    import numpy as np

    import relax2xla as rx

    load: Any = rx.load_module
    jax.block_until_ready(jax.numpy.zeros(1))
    with np.load(folder / "inputs.npz") as archive:
        inputs = [archive[n] for n in archive.files]
    before = _resident()
    executable = load(folder / "compiled.r2x")
    main = rx.VirtualMachine(executable)["main"]
    jax.block_until_ready(main(*inputs))
    after = _resident()
    weights = sum(e.lifted.raw_size()[1] for e in executable.entries.values()) / 2**20
    return {"weights": weights, **{k: after[k] - before[k] for k in after}}


def main(quick: bool = False) -> None:
    """Print one table."""
    with tempfile.TemporaryDirectory() as name:
        words = [sys.executable, "-m", "benchmarks.machine.memory", name]
        environment = {**os.environ, "RELAX2XLA_CACHE": "0"}
        subprocess.run([*words, "prepare"], env=environment, check=True, capture_output=True)
        done = subprocess.run(words, env=environment, check=True, capture_output=True, text=True)
        found = json.loads(done.stdout.splitlines()[-1])
    print("\nBERT-base loaded from a file, after the first result\n")
    print("| memory | MiB | ratio to the weights |\n|---|---|---|")
    for kind, size in found.items():
        print(f"| {kind} | {size:.0f} | {size / found['weights']:.2f} |")


if __name__ == "__main__":
    if len(sys.argv) > 2:
        prepare(Path(sys.argv[1]))
    else:
        print(json.dumps(_measure(Path(sys.argv[1]))))
