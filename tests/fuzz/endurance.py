# ruff: noqa: T201  (this is a program)
"""``python -m tests.fuzz.endurance [RUN ...]``: many builds and calls at once, and one by one.

A run is a function that raises where a value is wrong and gives a table of counts. The command
gives each a process of its own, so that memory is what that run takes; ``--scale 0.1`` does a
tenth of the work. Sizes, and what they are compared with, are in docs/reliability.md.
"""

from __future__ import annotations

import argparse
import asyncio
import concurrent.futures
import gc
import itertools
import json
import multiprocessing
import os
import pickle
import random
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import numpy as np

import relax2xla as rx
from relax2xla import op as R
from relax2xla import tir
from relax2xla.errors import CallError
from relax2xla.vm.pjrt import cache

Row = dict[str, object]
THREADS: Final = 8
WIDTH: Final = 4
# Longest time that one thread or process is waited for: what hangs is a finding, not a wait.
PATIENCE: Final = 600.0


# -- programs, and what numpy says of them
def module(number: int) -> rx.IRModule:
    """A program of its own for each number: a chain of layers, on any count of rows."""
    n = tir.Var("n", "int64")
    x = rx.Var("x", rx.TensorStructInfo((n, WIDTH), "float32"))
    builder = rx.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            value = x
            for weight in weights(number):
                value = builder.emit(R.nn.relu(R.matmul(value, rx.const(weight))))
            out = builder.emit_output(R.add(value, rx.const(np.float32(number))))
        builder.emit_func_output(out)
    return builder.get()


def weights(number: int) -> list[np.ndarray[Any, Any]]:
    """Small integers, so that every order of sums gives the same."""
    widths = [WIDTH, *(2 + (number + 3 * i) % 13 for i in range(1 + number % 4))]
    rng = np.random.default_rng(number)
    return [rng.integers(-2, 3, (a, b)).astype(np.float32) for a, b in itertools.pairwise(widths)]


def expected(number: int, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """What the program of that number gives."""
    for weight in weights(number):
        x = np.maximum(x @ weight, 0)
    return x + np.float32(number)


def rows(count: int, seed: int) -> np.ndarray[Any, Any]:
    """An argument of ``count`` rows."""
    return np.random.default_rng(seed).integers(-3, 4, (count, WIDTH)).astype(np.float32)


def check(function: Callable[..., Any], number: int, count: int, seed: int) -> None:
    """One call, compared."""
    x = rows(count, seed)
    np.testing.assert_array_equal(np.asarray(function(x)), expected(number, x))


def built(number: int, **kwargs: int) -> Any:
    """``main`` of the program of that number."""
    return rx.VirtualMachine(rx.build(module(number)), **kwargs)["main"]


# -- threads
def together(work: Callable[[int], int]) -> int:
    """``work`` in :data:`THREADS` threads that begin at once; the sum of what they did."""
    gate = threading.Barrier(THREADS)

    def one(index: int) -> int:
        gate.wait(PATIENCE)
        return work(index)

    with ThreadPoolExecutor(THREADS) as pool:
        return sum(f.result(PATIENCE) for f in [pool.submit(one, i) for i in range(THREADS)])


def threads(scale: float = 1.0) -> list[Row]:
    """Builds, calls and saving in 8 threads."""
    each, span = max(2, round(25 * scale)), max(3, round(20 * scale))
    table: list[Row] = []

    def different(index: int) -> int:
        for k in range(each):
            number = index * each + k
            check(built(number), number, 1 + k % 3, number)
        return each

    table.append({"run": "builds, a module each", "done": together(different)})
    shared = module(3)

    def same(index: int) -> int:
        for k in range(each):
            main = rx.VirtualMachine(rx.build(shared))["main"]
            check(main, 3, 1 + k % 3, index)
        return each

    table.append({"run": "builds of one module", "done": together(same)})
    main = built(5)
    many = 40 * each

    def calls(index: int) -> int:
        rng = random.Random(index)
        for k in range(many):
            check(main, 5, 1 + rng.randrange(span), k)
        return many

    table.append({"run": f"calls of one machine, {span} shapes", "done": together(calls)})
    executable = rx.build(module(6))
    machine = rx.VirtualMachine(executable)
    with tempfile.TemporaryDirectory(prefix="relax2xla-endurance-") as folder:
        path = Path(folder) / "shared.r2x"

        def saving(index: int) -> int:
            for k in range(each):
                if index % 4 == 0:
                    executable.export_library(path)
                    loaded = rx.VirtualMachine(rx.runtime.load_module(path))["main"]
                    check(loaded, 6, 2 + k % 3, k)
                else:
                    check(machine["main"], 6, 1 + (index + k) % span, k)
            return each

        table.append({"run": "saved and loaded while it is called", "done": together(saving)})
        left = [p.name for p in Path(folder).iterdir()]
        assert left == ["shared.r2x"], left
    return table


# -- asyncio
def tasks(scale: float = 1.0) -> list[Row]:
    """Machines called from tasks of asyncio, some of them cancelled."""
    many, span = max(16, round(1000 * scale)), max(3, round(20 * scale))
    main = built(7)

    async def run() -> list[Row]:
        loop = asyncio.get_running_loop()
        await asyncio.gather(
            *(asyncio.to_thread(check, main, 7, 1 + k % span, k) for k in range(many))
        )
        with ThreadPoolExecutor(THREADS) as pool:
            jobs = (
                loop.run_in_executor(pool, check, main, 7, 1 + k % (2 * span), k)
                for k in range(many)
            )
            await asyncio.gather(*jobs)
            begun = threading.Semaphore(0)

            def begin(k: int) -> None:
                begun.release()
                check(main, 7, 1 + 2 * span + k % span, k)

            doomed = [
                asyncio.ensure_future(loop.run_in_executor(pool, begin, k)) for k in range(many)
            ]
            # Some run, some wait, some are done.
            for _ in range(min(many // 4, 2 * THREADS)):
                await asyncio.to_thread(begun.acquire)
            for task in doomed:
                task.cancel()
            ends = await asyncio.gather(*doomed, return_exceptions=True)
            wrong = [
                e
                for e in ends
                if isinstance(e, BaseException) and not isinstance(e, asyncio.CancelledError)
            ]
            assert not wrong, wrong
            cancelled = sum(isinstance(e, asyncio.CancelledError) for e in ends)
            assert cancelled > 0
        check(main, 7, 3, 0)
        return [
            {"run": "asyncio.to_thread", "done": many},
            {"run": "run_in_executor", "done": many},
            {"run": "cancelled", "done": cancelled},
        ]

    return asyncio.run(run())


# -- processes
def job(number: int, path: str) -> tuple[int, bool]:
    """In a process of the pool: build, load, call; the process, and whether it was right."""
    check(built(number), number, 1 + number % 3, number)
    loaded = rx.VirtualMachine(rx.runtime.load_module(path))["main"]
    check(loaded, 9, 1 + number % 5, number)
    return os.getpid(), True


def mistake(path: str) -> None:
    """In a process of the pool: an argument that does not fit."""
    rx.VirtualMachine(rx.runtime.load_module(path))["main"](np.zeros((2, WIDTH + 1), np.float32))


def processes(scale: float = 1.0) -> list[Row]:
    """A pool of two processes, started by spawn."""
    many = max(4, round(100 * scale))
    with tempfile.TemporaryDirectory(prefix="relax2xla-endurance-") as folder:
        path = str(Path(folder) / "shared.r2x")
        rx.build(module(9)).export_library(path)
        context = multiprocessing.get_context("spawn")
        with concurrent.futures.ProcessPoolExecutor(2, context) as pool:
            found = [pool.submit(job, n, path) for n in range(many)]
            assert all(f.result(PATIENCE)[1] for f in found)
            failed = pool.submit(mistake, path).exception(PATIENCE)
            assert isinstance(failed, CallError), failed
            assert isinstance(pickle.loads(pickle.dumps(failed)), CallError)
    pids = len({f.result()[0] for f in found})
    return [{"run": f"builds, loads and calls in {pids} processes", "done": many}]


# -- memory
def resident() -> int:
    """Bytes of memory that this process holds; 0 where the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def survivors() -> dict[str, int]:
    """What is alive of what a build makes."""
    from relax2xla.stablehlo.mlir import ir
    from relax2xla.vm.pjrt import compiler, xla

    gc.collect()
    kinds = (rx.IRModule, rx.Function, rx.VirtualMachine, rx.VMExecutable, compiler.Loaded)
    counts = dict.fromkeys((k.__name__ for k in kinds), 0)
    for value in gc.get_objects():
        # Its type, not its ``__class__``: objects of other libraries answer that with warnings.
        if issubclass(type(value), kinds[:4]):
            counts[type(value).__name__] = counts.get(type(value).__name__, 0) + 1
    client: Any = xla.jax_device(None).client
    counts["Loaded"] = len(client.live_executables())
    counts["buffers"] = len(client.live_buffers())
    context: Any = ir.Context
    count = getattr(context, "_get_live_count", None)
    counts["contexts"] = 0 if count is None else count()
    return counts


def some_builds(first: int, many: int) -> None:
    """``many`` builds of modules that were not built before, each called for two shapes."""
    for number in range(first, first + many):
        main = built(number)
        check(main, number, 2, number)
        check(main, number, 3, number)


def some_calls(**kwargs: int) -> Iterator[int]:
    """Calls of one machine, without an end; every tenth is for a shape that was not seen before."""
    import jax

    main = built(11, **kwargs)
    rng = random.Random(0)
    made = 0
    while True:
        if made % 10 == 0:
            count = 1 + made // 10
        else:
            count = rng.randrange(max(1, 1 + made // 10 - 20), 2 + made // 10)
        x = rows(count, made)
        given = x if made % 2 else jax.device_put(x)
        np.testing.assert_array_equal(np.asarray(main(given)), expected(11, x))
        made += 1
        yield made


def what_builds_leave() -> tuple[dict[str, int], dict[str, int], int]:
    """What is alive before and after six builds, and the bytes that are held after them."""
    from tests.work import held

    cache.use(None)
    some_builds(2000, 2)
    before = survivors()
    kept = held(lambda: some_builds(2002, 6))
    return before, survivors(), kept


def what_calls_leave() -> list[dict[str, int]]:
    """What is alive after 60 and after 120 calls with changing shapes, four programs being kept."""
    cache.use(None)
    made = some_calls(max_programs=4)
    return [survivors() for done in itertools.islice(made, 120) if done % 60 == 0]


def marks(title: str, stops: list[int], reach: Callable[[int], None]) -> list[Row]:
    """Memory and what lives, at the start and after each of ``stops``."""
    gc.collect()
    table: list[Row] = [{"run": title, "done": 0, "MiB": resident() >> 20}]
    for stop in stops:
        reach(stop)
        alive = survivors()
        table.append({"run": title, "done": stop, "MiB": resident() >> 20, **alive})
        print(table[-1], file=sys.stderr, flush=True)
    return table


def builds(scale: float = 1.0) -> list[Row]:
    """Memory over 500 builds of modules that all differ."""
    done = 0

    def reach(stop: int) -> None:
        nonlocal done
        some_builds(1000 + done, stop - done)
        done = stop

    stops = [max(1, round(s * scale)) for s in (10, 100, 200, 300, 400, 500)]
    return marks("builds", stops, reach)


def calls(scale: float = 1.0) -> list[Row]:
    """Memory over 10,000 calls with changing shapes, a thousand of them new."""
    made = some_calls()

    def reach(stop: int) -> None:
        for done in made:
            if done >= stop:
                break

    stops = [max(1, round(s * scale)) for s in (100, 1000, 2500, 5000, 7500, 10_000)]
    return marks("calls", stops, reach)


RUNS: Final[dict[str, Callable[[float], list[Row]]]] = {
    run.__name__: run for run in (threads, tasks, processes, builds, calls)
}


def table(found: list[Row]) -> str:
    """Rows as a table in Markdown."""
    heads = list(dict.fromkeys(key for row in found for key in row))
    lines = [heads, ["---"] * len(heads)]
    lines += [[str(row.get(h, "")) for h in heads] for row in found]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> int:
    """Run what was asked for; 1 where a run failed."""
    listing = "\n".join(f"  {name:10s} {run.__doc__}" for name, run in RUNS.items())
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz.endurance",
        description=f"{__doc__}\n\nRuns:\n{listing}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("runs", nargs="*", metavar="RUN", help="by default all")
    parser.add_argument("--scale", type=float, default=1.0, help="how much of the work (1)")
    parser.add_argument("--here", action="store_true", help="in this process, giving JSON")
    args = parser.parse_args()
    if unknown := set(args.runs) - set(RUNS):
        parser.error(f"there is no run {', '.join(sorted(unknown))}; see --help")
    names = args.runs or list(RUNS)
    if args.here:
        cache.use(None)
        for name in names:
            print(json.dumps(RUNS[name](args.scale)))
        return 0
    failed = 0
    for name in names:
        command = [sys.executable, "-m", __spec__.name, name, "--here", "--scale", str(args.scale)]
        ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        if ended.returncode:
            failed += 1
            print(f"\n{name}: ended with {ended.returncode}", flush=True)
        else:
            found = json.loads(ended.stdout.splitlines()[-1])
            print(f"\n{name}: {RUNS[name].__doc__}\n\n{table(found)}", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
