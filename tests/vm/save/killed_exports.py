"""Exports that end with kill -9: run by ``test_package_faults``, as a process of its own.

``python -m tests.vm.save.killed_exports FILE SEED COLD WARM`` writes FILE once, then again and
again, by one of two executables in turn, in copies of this process that are killed: COLD copies
know no XLA yet, so that they compile; WARM ones only write what does not need XLA, whose threads a
copy of a process does not have. After each it prints a line and waits for one.

A third of them die at a call of Python that is drawn at random, a third at one in the writing of
the file, a third at a random time. The first two of each ten live, so that both are written.
"""

from __future__ import annotations

import functools
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

import numpy as np

import relax2xla as rx
from relax2xla.stablehlo import mlir
from relax2xla.vm.save import writer as writer  # ahead, for all copies
from tests.vm.save.test_package_faults import network

# Of each ten.
WHOLE = 2


def watched(see: Callable[[bool], None], run: Callable[[], Any]) -> None:
    """``run`` with ``see`` told of every event, and whether it is within the writing."""
    writing = 0

    def event(frame: FrameType, kind: str, arg: Any) -> None:
        nonlocal writing
        if frame.f_code.co_name == "write_archive" and kind in ("call", "return"):
            writing += 1 if kind == "call" else -1
        see(writing > 0)

    sys.setprofile(event)
    try:
        run()
    finally:
        sys.setprofile(None)


def child(run: Callable[[], Any]) -> int:
    """A copy of this process that does ``run``; its id."""
    pid = os.fork()
    if pid == 0:
        try:
            run()
        finally:
            os._exit(0)
    return pid


def measured(export: Callable[[], None]) -> tuple[int, int, float]:
    """Events of an export, those within its writing, and how long it takes, in a copy."""
    out, into = os.pipe()

    def run() -> None:
        counts = [0, 0]

        def see(writing: bool) -> None:
            counts[writing] += 1

        start = time.perf_counter()
        watched(see, export)
        took = time.perf_counter() - start
        os.write(into, f"{sum(counts)} {counts[1]} {took}".encode())

    os.waitpid(child(run), 0)
    total, writing, took = os.read(out, 100).split()
    os.close(out)
    os.close(into)
    return int(total), int(writing), float(took)


def kill(export: Callable[[], None], total: int, writing: int, took: float, draw: Any) -> None:
    """One export in a copy that dies on its way; at the latest when it has ended."""
    kind = draw.choice(("call", "call in the writing", "time"))
    if kind == "time":
        pid = child(export)
        time.sleep(draw.uniform(0, took))
        os.kill(pid, signal.SIGKILL)
    else:
        inside = kind != "call"
        left = draw.randrange(writing if inside else total)

        def see(within: bool) -> None:
            nonlocal left
            left -= within or not inside
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)

        pid = child(lambda: watched(see, export))
    os.waitpid(pid, 0)


def main() -> None:
    path, seed, cold, warm = sys.argv[1], *map(int, sys.argv[2:])
    draw = random.Random(seed)
    pair: list[rx.VMExecutable] = [network(np.random.default_rng(i))[0] for i in (0, 1)]
    mlir.context()
    for count, compiled in ((cold, True), (warm, False)):
        runs = [functools.partial(e.export_library, path, compiled=compiled) for e in pair]
        if not compiled:
            for run in runs:
                run()
        sizes = measured(runs[0])
        for number in range(count):
            run = runs[number % 2]
            if number % 10 < WHOLE:
                os.waitpid(child(run), 0)
            else:
                kill(run, *sizes, draw=draw)
            sys.stdout.write("ended\n")
            sys.stdout.flush()
            sys.stdin.readline()


if __name__ == "__main__":
    main()
