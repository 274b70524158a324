"""One exported network on Apache TVM, for the Python of an environment that holds TVM and torch.

``python -m benchmarks.from_torch.torch_models_tvm FOLDER SECONDS`` reads ``program.pt2`` (flat
tensors in and out) and ``case.pt`` (its inputs and torch's outputs), takes the program through
TVM's own importer and its default pipeline for this machine's instructions with one thread, and
prints a line of JSON.
"""

from __future__ import annotations

import os

# Before any runtime starts its threads.
os.environ["TVM_NUM_THREADS"] = "1"

import importlib
import json
import re
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch


def _arrays(value: Any) -> Iterator[np.ndarray]:
    """The arrays in nested results, in order."""
    if hasattr(value, "numpy"):
        yield value.numpy()
    else:
        for part in value:
            yield from _arrays(part)


def _gap(a: np.ndarray, b: np.ndarray) -> float:
    """The largest difference, of the largest value of ``b``."""
    if a.shape != b.shape or a.dtype != b.dtype:
        raise ValueError(f"{a.dtype}{a.shape} where torch gives {b.dtype}{b.shape}")
    a, b = a.astype(np.float64), b.astype(np.float64)
    # Masks are -inf or the lowest number in both.
    gap = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b))
    found = float(gap.max(initial=0.0) / max(np.nanmax(np.abs(b)), 1e-6)) if b.size else 0.0
    return found if np.isfinite(found) else 1e30


def measure(folder: Path, seconds: float) -> dict[str, Any]:
    """The error, the time of a call, and what came before it; or where TVM gave up."""
    tvm: Any = importlib.import_module("tvm")
    relax: Any = importlib.import_module("tvm.relax")
    frontend: Any = importlib.import_module("tvm.relax.frontend.torch")
    found: dict[str, Any] = {"version": tvm.__version__}
    program = torch.export.load(folder / "program.pt2")
    inputs, expected, exact = torch.load(folder / "case.pt")
    stage = "import"
    try:
        start = time.process_time()
        mod = frontend.from_exported_program(program)
        found["import_s"] = time.process_time() - start
        stage = "build"
        start = time.process_time()
        cpu = tvm.get_global_func("target.llvm_get_system_cpu")()
        executable = tvm.compile(mod, target=tvm.target.Target({"kind": "llvm", "mcpu": cpu}))
        main = relax.VirtualMachine(executable, tvm.cpu())["main"]
        stage = "call"
        arguments = [tvm.runtime.tensor(x.numpy()) for x in inputs]
        results = list(_arrays(main(*arguments)))
        found["first_s"] = found["import_s"] + time.process_time() - start
        if len(results) != len(expected):
            raise ValueError(f"{len(results)} results where torch gives {len(expected)}")
        # The nearer of eager torch and float64, as for the others.
        found["error"] = min(
            max(_gap(a, b.numpy()) for a, b in zip(results, wanted, strict=True))
            for wanted in (expected, exact)
        )
    except Exception as e:  # whatever it is, it is what the table has to say
        text = " ".join(str(e).split())
        lacking = re.search(r"[Uu]nsupported function types? \[([^\]]*)\]", text)
        if lacking:
            names = lacking[1].replace("'", "")
            return {**found, "status": "not imported", "reason": f"no converter: {names}"}
        reason = f"{stage}: {type(e).__name__}: {text}"[:400]
        return {**found, "status": "error", "reason": reason}
    calls: list[float] = []
    end = time.perf_counter() + seconds
    while len(calls) < 3 or (len(calls) < 20 and time.perf_counter() < end):
        start = time.process_time()
        main(*arguments)
        calls.append(time.process_time() - start)
    return {**found, "cpu_ms": 1000 * statistics.median(calls)}


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps(measure(Path(sys.argv[1]), float(sys.argv[2]))))
