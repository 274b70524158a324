"""Torch's own operator database through the importer: export, import, build, run, compare.

A *case* is an entry of ``op_db`` in one dtype; up to three of its samples are tried. One line of
JSON is written per sample: the entry, the dtype, the number of the sample, its status and a reason.

pass       dtype, shape and values are torch's, by the tolerances of ``torch.testing.assert_close``,
           or by those that torch's own tests have for the entry; or they are no further from the
           float64 result than eager torch's (its reason says which); of results that
           torch leaves open (random numbers, signs of eigenvectors) the properties that
           :mod:`checks` names
refused    the importer (or the build) says that it cannot, and why
wrong      other values, dtypes or shapes than torch's
error      an exception that is not a refusal, or no end within the time limit
no export  torch.export does not export the sample; eager torch fails on it

Cases run in worker processes, which are replaced when a case takes too long.

With ``--dynamic`` every size of a sample that torch.export lets be symbolic is, and the program
runs for the sample's sizes and for larger ones (:mod:`dynamic`).

::

    python -m tests.importers.torch.opinfo.suite [--out FILE] [--failed] [--dynamic]
                                                 [--only NAME ...]
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import io
import itertools
import json
import os
import queue
import re
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[4]
DTYPES = ("float32", "int64", "bool", "bfloat16", "complex64")
SAMPLES = 3
TIMEOUT = 90.0
PASS, REFUSED, WRONG, ERROR, NO_EXPORT = "pass", "refused", "wrong", "error", "no export"


#: What the reason of a pass begins with where the default tolerances do not do.
BY_ENTRY, BY_DOUBLE = "by the entry's tolerances", "nearer to float64"
#: The reason of a pass where eager torch takes no larger sizes.
ONE_SIZE = "at one size"


class Case(NamedTuple):
    """An entry of the database, by its number and name, in one dtype."""

    number: int
    name: str
    dtype: str


class Outcome(NamedTuple):
    """What came of one sample of a case."""

    name: str
    dtype: str
    sample: int
    status: str
    reason: str = ""
    seconds: float = 0.0

    @property
    def case(self) -> tuple[str, str]:
        return self.name, self.dtype


# -- the database ---------------------------------------------------------------------------------
def database() -> Sequence[Any]:
    """Torch's entries; ``ImportError`` without expecttest, which torch's own tests need."""
    from torch.testing._internal.common_methods_invocations import op_db

    return op_db


def full_name(entry: Any) -> str:
    """``linalg.svd``, ``std.unbiased``: the entry's name with its variant."""
    variant = entry.variant_test_name
    return f"{entry.name}.{variant}" if variant else entry.name


def cases() -> list[Case]:
    """Every entry in those of ``DTYPES`` that it takes; in the first it has, where it has none."""
    import torch

    found: list[Case] = []
    for number, entry in enumerate(database()):
        taken = {str(d).removeprefix("torch.") for d in entry.supported_dtypes("cpu")}
        own = [d for d in DTYPES if d in taken] or sorted(taken)[:1]
        found += [Case(number, full_name(entry), d) for d in own if hasattr(torch, d)]
    return found


# -- one sample -----------------------------------------------------------------------------------
class Call:
    """A sample as a module of its tensors: everything else is fixed."""

    def __init__(self, function: Callable[..., Any], sample: Any) -> None:
        import torch
        from torch.utils import _pytree as pytree

        leaves, spec = pytree.tree_flatten((sample.input, tuple(sample.args), sample.kwargs))
        tensors = [x.detach() for x in leaves if isinstance(x, torch.Tensor)]
        places = [i for i, x in enumerate(leaves) if isinstance(x, torch.Tensor)]

        class Module(torch.nn.Module):
            def forward(self, *inputs: Any) -> Any:
                given = list(leaves)
                for place, value in zip(places, inputs, strict=True):
                    given[place] = value
                first, args, kwargs = pytree.tree_unflatten(given, spec)
                return function(first, *args, **kwargs)

        self.module = Module()
        self.tensors = tensors
        self.sample = sample
        self._at = spec, leaves, places

    def with_tensors(self, tensors: Sequence[Any]) -> Call:
        """The same call of other tensors."""
        from torch.utils import _pytree as pytree

        spec, leaves, places = self._at
        other, given = copy.copy(self), list(leaves)
        for place, value in zip(places, tensors, strict=True):
            given[place] = value
        first, args, kwargs = pytree.tree_unflatten(given, spec)
        other.tensors = list(tensors)
        other.sample = SimpleNamespace(input=first, args=args, kwargs=kwargs)
        return other

    def inputs(self) -> tuple[Any, ...]:
        """Fresh copies: torch may write into its inputs."""
        return tuple(x.clone() for x in self.tensors)


def attempt(entry: Any, dtype: Any, sample: Any, dynamic: bool = False) -> tuple[str, str]:
    """Status and reason of one sample of an entry of the database."""
    import torch
    from torch.utils import _pytree as pytree

    import relax2xla
    from relax2xla.errors import OpNotImplemented, UnsupportedError
    from relax2xla.frontend.torch import from_exported_program

    from . import dynamic as symbolic

    call = Call(entry.op, sample)
    try:
        torch.manual_seed(0)
        with torch.no_grad():
            want = pytree.tree_leaves(call.module(*call.inputs()))
    except Exception as e:
        return NO_EXPORT, f"eager torch: {_brief(e)}"
    try:
        with torch.no_grad():
            export = symbolic.exported if dynamic else torch.export.export
            program = export(call.module, call.inputs())
    except Exception as e:
        return NO_EXPORT, _brief(e)
    if program is None:
        return NO_EXPORT, symbolic.FIXED
    others: list[tuple[Call, list[Any]]] = [(call, want)]
    if dynamic and entry.name not in symbolic.SORTED:
        with torch.no_grad():
            others += symbolic.larger(program, call)
    try:
        mod = from_exported_program(program)
        executable = relax2xla.build(mod)
        machine = relax2xla.VirtualMachine(executable, relax2xla.cpu())
        results = [machine["main"](*c.inputs()) for c, _ in others]
    except (OpNotImplemented, UnsupportedError) as e:
        return REFUSED, _gaps(e)
    except Exception as e:
        return ERROR, f"{type(e).__name__}: {_brief(e, 600)}"
    verdicts = [
        _judged(entry, dtype, c, result, want)
        for (c, want), result in zip(others, results, strict=True)
    ]
    found = next((v for v in verdicts if v[0] == WRONG), verdicts[0])
    return (PASS, ONE_SIZE) if dynamic and found == (PASS, "") and len(others) == 1 else found


def _judged(
    entry: Any, dtype: Any, call: Call, result: Any, want: Sequence[Any]
) -> tuple[str, str]:
    """Status and reason of the machine's result beside eager torch's."""
    from .checks import as_exact, tolerance_of, verdict

    name, sample = full_name(entry), call.sample
    given = list(result) if isinstance(result, tuple | list) else [result]
    got = [_as_torch(x) for x in given[: len(want)]]
    wrong = verdict(name, sample, got, want)
    if not wrong:
        return PASS, ""
    if not verdict(name, sample, got, want, tolerance_of(entry, dtype)):
        return PASS, f"{BY_ENTRY}: {wrong}"
    if as_exact(got, want, lambda: _in_double(call)):
        return PASS, f"{BY_DOUBLE}: {wrong}"
    return WRONG, wrong


def _in_double(call: Call) -> list[Any]:
    """Eager torch's results from the inputs in double precision."""
    import torch
    from torch.utils import _pytree as pytree

    def double(x: torch.Tensor) -> torch.Tensor:
        if x.is_complex():
            return x.to(torch.complex128)
        return x.double() if x.is_floating_point() else x.clone()

    with torch.no_grad():
        return pytree.tree_leaves(call.module(*(double(x) for x in call.tensors)))


def _gaps(error: Exception) -> str:
    """The operators and reasons of a refusal on one line."""
    found = [f"{g.op}: {g.reason}" for g in getattr(error, "gaps", ())]
    return "; ".join(found) or _brief(error)


def _brief(error: Exception, size: int = 300) -> str:
    text = re.sub(r"\x1b\[[0-9;]*m", "", str(error)).strip()
    text = " ".join(text.split())
    return text[:size] or type(error).__name__


def _as_torch(value: Any) -> Any:
    """A result of the machine as a torch tensor; numbers, strings and () for None as they are."""
    import numpy as np

    from relax2xla.importers.torch.engine.tensor_data import from_numpy

    if not hasattr(value, "dtype"):
        return None if value == () else value
    return from_numpy(np.asarray(value))


def run_case(case: Case, samples: int = SAMPLES, dynamic: bool = False) -> Iterator[Outcome]:
    """The outcomes of one case; of symbolic sizes only samples that have some are tried."""
    import torch

    entry = database()[case.number]
    dtype = getattr(torch, case.dtype)
    torch.manual_seed(0)
    try:
        every = entry.sample_inputs("cpu", dtype)
        usable = filter(_has_sizes, every) if dynamic else every
        inputs = list(itertools.islice(usable, samples))
    except Exception as e:
        yield Outcome(case.name, case.dtype, 0, NO_EXPORT, f"no samples: {_brief(e)}")
        return
    if not inputs:
        yield Outcome(case.name, case.dtype, 0, NO_EXPORT, "the entry has no samples in this dtype")
    for at, sample in enumerate(inputs):
        begin = time.perf_counter()
        quiet = io.StringIO()
        with warnings.catch_warnings(), contextlib.redirect_stderr(quiet):
            warnings.simplefilter("ignore")
            status, reason = attempt(entry, dtype, sample, dynamic)
        taken = round(time.perf_counter() - begin, 3)
        torch.compiler.reset()
        yield Outcome(case.name, case.dtype, at, status, reason, taken)


def _has_sizes(sample: Any) -> bool:
    """Whether the first operand has an axis of two elements or more."""
    shape = getattr(sample.input, "shape", (2,))
    return any(n > 1 for n in shape)


# -- many cases -----------------------------------------------------------------------------------
def work(dynamic: bool = False) -> None:
    """A worker: a case a line comes in, its outcomes go out, then an empty line."""
    import torch

    # Torch prints, too: what it says goes with the errors.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    torch.set_num_threads(1)
    database()
    answers.write("ready\n")
    for line in sys.stdin:
        for outcome in run_case(Case(*json.loads(line)), 1 if dynamic else SAMPLES, dynamic):
            answers.write(json.dumps(outcome) + "\n")
        answers.write("\n")


class Worker:
    """A worker process, and a thread that reads what it writes."""

    def __init__(self, dynamic: bool = False) -> None:
        mode = ["--dynamic"] if dynamic else []
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.importers.torch.opinfo.suite", "--worker", *mode],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "RELAX2XLA_CACHE": os.environ.get("RELAX2XLA_CACHE", "")},
        )
        self.lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()
        if self.lines.get(timeout=300) is None:
            raise RuntimeError("an OpInfo worker does not start; run it with --worker to see why")

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.put(line.rstrip("\n"))
        self.lines.put(None)

    def run(self, case: Case) -> tuple[list[Outcome], bool]:
        """Outcomes of a case, and whether the worker still lives."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(case) + "\n")
        self.process.stdin.flush()
        done: list[Outcome] = []
        why = ""
        end = time.monotonic() + TIMEOUT
        while not why:
            try:
                line = self.lines.get(timeout=max(0.01, end - time.monotonic()))
            except queue.Empty:
                why = f"no result within {TIMEOUT:.0f} s"
                break
            if line is None:
                why = "the process died"
            elif line:
                done.append(Outcome(*json.loads(line)))
            else:
                return done, True
        self.close()
        return [*done, Outcome(case.name, case.dtype, len(done), ERROR, why)], False

    def close(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.wait()


def run_all(
    todo: Sequence[Case],
    workers: int,
    report: Callable[[list[Outcome]], None],
    dynamic: bool = False,
) -> None:
    """Run the cases on ``workers`` processes; ``report`` gets the outcomes of each in turn."""
    waiting: queue.SimpleQueue[Case] = queue.SimpleQueue()
    for case in todo:
        waiting.put(case)
    lock = threading.Lock()

    def serve() -> None:
        worker: Worker | None = None
        while True:
            try:
                case = waiting.get_nowait()
            except queue.Empty:
                break
            worker = worker or Worker(dynamic)
            outcomes, alive = worker.run(case)
            if not alive:
                worker = None
            with lock:
                report(outcomes)
        if worker is not None:
            worker.close()

    threads = [threading.Thread(target=serve) for _ in range(workers)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()


# -- results that outlive a run -------------------------------------------------------------------
def load(path: Path) -> dict[tuple[str, str], list[Outcome]]:
    """The latest outcomes of each case in a file of results."""
    found: dict[tuple[str, str], list[Outcome]] = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        outcomes = [Outcome(*o) for o in json.loads(line)]
        found[outcomes[0].case] = outcomes
    return found


def settled(outcomes: Iterable[Outcome]) -> bool:
    """Whether a case need not be run again: all samples pass, or torch does not export them."""
    return all(o.status in (PASS, NO_EXPORT) for o in outcomes)


def update(
    path: Path,
    todo: Sequence[Case],
    workers: int = 2,
    verbose: bool = False,
    dynamic: bool = False,
) -> None:
    """Run cases and write their outcomes to a file of results, a line a case."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:

        def report(outcomes: list[Outcome]) -> None:
            file.write(json.dumps(outcomes) + "\n")
            file.flush()
            if verbose:
                for o in outcomes:
                    if o.status not in (PASS, NO_EXPORT):
                        print(f"{o.name} {o.dtype} {o.sample} {o.status}: {o.reason}", flush=True)  # noqa: T201

        run_all(todo, workers, report, dynamic)


def chosen(
    path: Path, dtypes: Sequence[str] = (), only: Sequence[str] = (), failed: bool = False
) -> list[Case]:
    """The cases to run, all where nothing is asked for.

    ``dtypes`` in their order; ``only``: names, as regular expressions; ``failed``: those that a
    file of results does not settle.
    """
    known = load(path) if failed else {}
    every = cases()
    if dtypes:
        every = sorted((c for c in every if c.dtype in dtypes), key=lambda c: dtypes.index(c.dtype))
    found: list[Case] = []
    for case in every:
        before = known.get((case.name, case.dtype))
        if only and not any(re.fullmatch(pattern, case.name) for pattern in only):
            continue
        if before is None or not settled(before):
            found.append(case)
    return found


def main() -> None:
    """The command line, see the module's docstring."""
    parser = argparse.ArgumentParser(description="OpInfo through the PyTorch importer")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help="the file of results; by default in out/")
    parser.add_argument("--failed", action="store_true", help="only what has not passed yet")
    parser.add_argument("--only", nargs="*", default=(), help="names (regular expressions)")
    parser.add_argument("--dtypes", nargs="*", default=(), help="in this order; else all")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--dynamic", action="store_true", help="one sample, of symbolic sizes")
    args = parser.parse_args()
    if args.worker:
        work(args.dynamic)
        return
    name = "opinfo_dynamic.jsonl" if args.dynamic else "opinfo.jsonl"
    out = args.out or ROOT / "out" / name
    todo = chosen(out, args.dtypes, args.only, args.failed)
    update(out, todo, args.workers, verbose=True, dynamic=args.dynamic)


if __name__ == "__main__":
    main()
