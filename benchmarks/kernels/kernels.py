"""Kernels of TVMScript beside the same by hand in jax.numpy, and beside TVM's own code.

``python -m benchmarks kernels [--tvm PYTHON]``: each kernel is called through ``R.call_tir``, built
by the default pipeline; ``PYTHON`` is that of an environment with apache-tvm, which compiles the
same scripts for the processor (``kernels_tvm.py`` beside this file) without and with its CPU
schedules. Times are the processor's own, so that other work on the machine counts little.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

import relax2xla
from benchmarks.kernels.kernel_scripts import KERNELS, Kernel
from benchmarks.timing import interleaved
from relax2xla import op, tir
from relax2xla.builder import BlockBuilder
from relax2xla.cli.figures.timing import calls_for, ratio
from relax2xla.ir import IRModule, TensorStructInfo, Var
from relax2xla.script import from_source


def module(kernel: Kernel) -> IRModule:
    """``main``, which calls the kernel."""
    func = from_source("from relax2xla.script import tir as T\n" + kernel.script)
    assert isinstance(func, tir.PrimFunc)
    bb = BlockBuilder()
    infos = [TensorStructInfo(shape, dtype) for _, shape, dtype in kernel.parameters]
    params = [Var(p[0], i) for p, i in zip(kernel.parameters[:-1], infos, strict=False)]
    with bb.function("main", params):
        callee = bb.add_func(func, "kernel")
        bb.emit_func_output(bb.emit(op.call_tir(callee, params, infos[-1])))
    return bb.get()


def variants(kernel: Kernel) -> dict[str, Callable[[], Any]]:
    """Ours and that by hand, on arrays of the device; AssertionError where they differ."""
    arguments = [jax.numpy.asarray(a) for a in kernel.arguments()]
    machine = relax2xla.VirtualMachine(relax2xla.build(module(kernel)), relax2xla.cpu())
    ours, by_hand = machine["main"], jax.jit(kernel.by_hand)
    np.testing.assert_allclose(
        np.asarray(ours(*arguments)), np.asarray(by_hand(*arguments)), rtol=2e-3, atol=2e-3
    )
    return {
        "ours": lambda: jax.block_until_ready(ours(*arguments)),
        "by hand": lambda: jax.block_until_ready(by_hand(*arguments)),
    }


def by_tvm(python: str, seconds: float) -> dict[str, dict[str, float | None]]:
    """Seconds a call of each kernel by TVM, by way of compiling it."""
    given = [
        {"name": k.name, "script": k.script, "parameters": k.parameters, "integers": k.integers}
        for k in KERNELS
    ]
    here = Path(__file__).with_name("kernels_tvm.py")
    done = subprocess.run(
        [python, str(here), str(seconds)],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{python} {here} failed:\n{done.stderr}")
    return json.loads(done.stdout)


def main(quick: bool = False, tvm: str | None = None) -> None:
    """Print the table."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    rounds = 3 if quick else 15
    by_peer = by_tvm(tvm, 0.2 if quick else 2.0) if tvm else {}
    more = ("TVM unscheduled / ours", "TVM scheduled / ours") if tvm else ()
    head = ("kernel", "ours ms", "by hand ms", "ratio", "goal", *more)
    print(f"| {' | '.join(head)} |\n{'|---' * len(head)}|")
    for kernel in KERNELS:
        both = variants(kernel)
        calls = max(map(calls_for, both.values()))
        times = interleaved(both, rounds, calls, untimed=1, clock=time.process_time)
        ours, by_hand = (min(times[n]) for n in both)
        cells = [f"{ours * 1e3:.2f}", f"{by_hand * 1e3:.2f}"]
        cells += [f"{ratio(times, 'ours', 'by hand'):.2f}", str(kernel.goal)]
        for way in ("unscheduled", "scheduled") if tvm else ():
            took = by_peer[kernel.name][way]
            cells.append("" if took is None else f"{took / ours:.1f}")
        print(f"| {kernel.name} | {' | '.join(cells)} |")
        sys.stdout.flush()
