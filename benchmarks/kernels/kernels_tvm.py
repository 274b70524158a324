"""TVM's side of the benchmark ``kernels``: run by the Python of an environment with apache-tvm.

Reads kernels as JSON, compiles each for the processor as it stands and with TVM's rules for
processors (``dlight.cpu``), and prints the seconds a call of each takes.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("TVM_NUM_THREADS", "1")

import numpy as np


def _tvm(name: str) -> Any:
    """A module of TVM, whose names differ by version."""
    return importlib.import_module(name)


def _arguments(kernel: dict[str, Any]) -> list[np.ndarray]:
    rng: Any = np.random.default_rng(5)
    made: list[np.ndarray] = []
    for _, shape, dtype in kernel["parameters"]:
        if dtype == "uint32":
            made.append(rng.integers(0, 1 << 32, shape, dtype=dtype))
        elif "int" in dtype:
            made.append(rng.integers(*kernel["integers"], shape, dtype=dtype))
        else:
            made.append(rng.standard_normal(shape).astype(dtype))
    return made


def _seconds(run: Callable[[], Any], limit: float) -> float:
    """The least time of a call, for about ``limit`` seconds."""
    run()
    least, start = float("inf"), time.process_time()
    while time.process_time() - start < limit:
        before = time.process_time()
        run()
        least = min(least, time.process_time() - before)
    return least


def main() -> None:
    """Print seconds a call by kernel and way."""
    tvm = _tvm("tvm")
    script = _tvm("tvm.script").from_source
    dlight: Any = _tvm("tvm.s_tir.dlight")
    names = {"T": _tvm("tvm.script").tirx}
    rules = [dlight.cpu.GEMV(), dlight.cpu.Reduction()]
    equal: Any = _tvm("tvm_ffi").structural_equal
    limit = float(sys.argv[1])
    found: dict[str, dict[str, float | None]] = {}
    for kernel in json.load(sys.stdin):
        text = kernel["script"].replace("T.block(", "T.sblock(")
        text = text.replace("T.alloc_buffer(", "T.sblock_alloc_buffer(")
        text = text.replace("@T.prim_func", "@T.prim_func(s_tir=True)")
        mod = tvm.IRModule({"kernel": script(text, names).with_attr("global_symbol", "kernel")})
        arrays = [tvm.runtime.tensor(a) for a in _arguments(kernel)]
        target = tvm.target.Target({"kind": "llvm", "num-cores": 1})
        with target:
            scheduled = dlight.ApplyDefaultSchedule(*rules)(mod)
        times: dict[str, float | None] = {}
        for way, made in (("unscheduled", mod), ("scheduled", scheduled)):
            changed = way == "unscheduled" or not equal(made, mod)
            run = tvm.compile(made, target=target)["kernel"] if changed else None
            times[way] = _seconds(functools.partial(run, *arrays), limit) if run else None
        found[kernel["name"]] = times
    print(json.dumps(found))


if __name__ == "__main__":
    main()
