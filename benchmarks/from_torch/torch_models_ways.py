"""What is done with one architecture: each way in is tried, then timed beside its peers.

A ``Subject`` is a network; ``STEPS`` are functions of it that give an outcome each. They run in a
process that ``torch_models`` watches and ends where a step takes too long (``serve``).
"""

from __future__ import annotations

import copy
import functools
import gc
import json
import os
import resource
import statistics
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import jax
import numpy as np
import torch
from torch import nn
from torch.utils import _pytree as pytree

from benchmarks.from_torch.torch_models_zoo import DEEP, PACKAGES, ZOO, Example, absent
from benchmarks.timing import interleaved, ratio
from relax2xla import VirtualMachine, build
from relax2xla.cli.figures.timing import rounds_for
from relax2xla.frontend.torch import from_exported_program

ROOT = Path(__file__).parents[2]
# Of the largest value of an output. Rounding in networks as deep as these stays well below.
TOLERANCE = 1e-4
# The batch for which a network is exported, and others that are tried.
BATCH, OTHERS = 2, (3, 5)
# Seconds on the clock that the calls of all variants, or of TVM, take together.
CALLS = 2.0

Outcome = dict[str, Any]


class TorchRefuses(Exception):
    """torch itself does not export the network in this way."""


@dataclass
class Subject:
    """A network, and what its steps leave for later ones: calls for one batch, by variant."""

    name: str
    example: Example
    calls: dict[str, Callable[[], Any]] = field(default_factory=dict[str, Callable[[], Any]])


def leaves(value: Any) -> list[torch.Tensor]:
    """The tensors in nested outputs, in order."""
    return [x for x in pytree.tree_leaves(value) if isinstance(x, torch.Tensor)]


def error(ours: Sequence[Any], theirs: Sequence[torch.Tensor]) -> float:
    """The largest difference relative to each output's largest value.

    Raises ValueError where number, dtypes or shapes of the outputs differ.
    """
    if len(ours) != len(theirs):
        raise ValueError(f"{len(ours)} outputs where torch has {len(theirs)}")
    worst = 0.0
    for number, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        a, b = np.asarray(a), b.detach().numpy()
        if a.dtype != b.dtype or a.shape != b.shape:
            raise ValueError(f"output {number}: {a.dtype}{a.shape}, torch {b.dtype}{b.shape}")
        if not b.size:
            continue
        if not np.array_equal(np.isnan(a), np.isnan(b)):
            raise ValueError(f"output {number}: NaN in other places than torch's")
        # Masks are -inf or the lowest number in both; equal values have no difference.
        a, b = (x.astype(np.float64) for x in (a, b))
        gap = np.where((a == b) | np.isnan(a), 0.0, np.abs(a - b)).max()
        worst = max(worst, float(gap / max(np.nanmax(np.abs(b)), 1e-6)))
    return worst


def eager(example: Example, batch: int) -> list[torch.Tensor]:
    """What torch computes."""
    args, kwargs = example.inputs(batch)
    with torch.no_grad():
        return leaves(example.network(*args, **kwargs))


def in_float64(
    example: Example, batch: int, like: Sequence[torch.Tensor]
) -> list[torch.Tensor] | None:
    """What torch computes in float64, in the dtypes of ``like``; None for what does not run so."""
    args, kwargs = pytree.tree_map_only(
        torch.Tensor, lambda x: x.double() if x.is_floating_point() else x, example.inputs(batch)
    )
    try:
        with torch.no_grad():
            found = leaves(copy.deepcopy(example.network).double()(*args, **kwargs))
    except Exception:  # of any kind, for dtypes that a network has by name
        return None
    return [a.to(b.dtype) for a, b in zip(found, like, strict=True)]


def error_of(ours: Sequence[Any], example: Example, batch: int) -> float:
    """The error beside eager torch; beyond TOLERANCE, that beside float64 where it is less."""
    expected = eager(example, batch)
    found = error(ours, expected)
    exact = in_float64(example, batch, expected) if found > TOLERANCE else None
    return found if exact is None else min(found, error(ours, exact))


def cpu_seconds() -> float:
    """Of this process and of those that it ran to their end, such as compilers of C++."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


# -- export --------------------------------------------------------------------------------------
def program_of(example: Example, dynamic: bool) -> torch.export.ExportedProgram:
    """The network exported for one batch size or for any; raises TorchRefuses."""
    args, kwargs = example.inputs(BATCH)
    shapes = None
    if dynamic:
        batch = torch.export.Dim("batch", min=1, max=64)

        def free(x: Any) -> Any:
            return {0: batch} if isinstance(x, torch.Tensor) else None

        shapes = tuple(map(free, args)) if args else {k: free(x) for k, x in kwargs.items()}
    try:
        with torch.no_grad():
            return torch.export.export(example.network, args, kwargs, dynamic_shapes=shapes)
    except Exception as e:
        raise TorchRefuses(first_line(e)) from e


def _exported(subject: Subject, dynamic: bool) -> Outcome:
    """Export, import, build, run."""
    program = program_of(subject.example, dynamic)
    nodes = len(program.graph.nodes)
    start = time.process_time()
    mod = from_exported_program(program)
    imported = time.process_time() - start
    start = time.process_time()
    machine = VirtualMachine(build(mod))
    # What the network writes to in its forward pass (Rwkv scales its weights) is no input.
    main = machine.bind_state("main") if "state" in mod["main"].attrs else machine["main"]
    # A program for any batch is not run for the one that it was exported for.
    batch = OTHERS[0] if dynamic else BATCH
    inputs = [x.numpy() for x in leaves(subject.example.inputs(batch))]
    found = main(*inputs)
    took = imported + time.process_time() - start
    if not dynamic:
        subject.calls["exported"] = lambda: jax.block_until_ready(main(*inputs))
    return {
        "error": error_of(jax.tree.leaves(found), subject.example, batch),
        "nodes": nodes,
        "import_s": imported,
        "first_s": took,
    }


# -- torch.compile -------------------------------------------------------------------------------
@functools.cache
def _warm(backend: str) -> None:
    """Let a backend load what it needs before the first network is timed."""
    torch.compile(lambda x: x + 1, backend=backend)(torch.ones(3))


def _compiled(subject: Subject, backend: str) -> Outcome:
    """torch.compile for one batch size."""
    _warm(backend)
    network: Callable[..., Any] = torch.compile(subject.example.network, backend=backend)
    args, kwargs = subject.example.inputs(BATCH)
    subject.calls[backend] = lambda: network(*args, **kwargs)
    with warnings.catch_warnings(record=True) as caught, torch.no_grad():
        warnings.simplefilter("always")
        start = cpu_seconds()
        found = network(*args, **kwargs)
        took = cpu_seconds() - start
    return {
        "error": error_of(leaves(found), subject.example, BATCH),
        "first_s": took,
        "left": _left(caught),
    }


def _batches(subject: Subject) -> Outcome:
    """torch.compile called for other batch sizes; the first of them makes the graph symbolic."""
    if "relax2xla" not in subject.calls:
        _compiled(subject, "relax2xla")
    network: Callable[..., Any] = torch.compile(subject.example.network, backend="relax2xla")
    worst = 0.0
    seconds: list[float] = []
    with warnings.catch_warnings(record=True) as caught, torch.no_grad():
        warnings.simplefilter("always")
        for batch in OTHERS:
            args, kwargs = subject.example.inputs(batch)
            start = time.process_time()
            found = network(*args, **kwargs)
            seconds.append(time.process_time() - start)
            worst = max(worst, error_of(leaves(found), subject.example, batch))
    return {"error": worst, "first_s": seconds[0], "left": _left(caught)}


def _left(caught: Sequence[warnings.WarningMessage]) -> list[str]:
    """The warnings that name operators left to torch."""
    return [str(w.message) for w in caught if "relax2xla leaves" in str(w.message)]


def _times(subject: Subject) -> Outcome:
    """A call of each variant that the steps before have left, in turn."""
    args, kwargs = subject.example.inputs(BATCH)
    calls = {"eager": lambda: subject.example.network(*args, **kwargs), **subject.calls}
    # By itself, as TVM is measured.
    alone = {name: calls.pop(name) for name in ("exported",) if name in calls}
    with torch.no_grad():
        rounds = rounds_for(calls, CALLS)
        times = interleaved(calls, rounds, warmup=2, clock=time.process_time)
    if alone:
        times |= interleaved(alone, rounds_for(alone, CALLS), warmup=2, clock=time.process_time)
    return {
        "rounds": rounds,
        "cpu_ms": {name: 1000 * statistics.median(v) for name, v in times.items()},
        "ratio": {
            f"relax2xla/{peer}": ratio(times, "relax2xla", peer)
            for peer in ("eager", "inductor")
            if "relax2xla" in times and peer in times
        },
    }


# -- TVM -----------------------------------------------------------------------------------------
class _Flat(nn.Module):
    """A network with tensors alone in and out: another process knows no other types."""

    def __init__(self, example: Example) -> None:
        super().__init__()
        self.network = example.network
        self.parts, self.spec = pytree.tree_flatten(example.inputs(BATCH))

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        rest = iter(tensors)
        parts = [next(rest) if isinstance(x, torch.Tensor) else x for x in self.parts]
        args, kwargs = pytree.tree_unflatten(parts, self.spec)
        return tuple(leaves(self.network(*args, **kwargs)))


def _tvm(subject: Subject) -> Outcome:
    """The same network through TVM, by another Python that has it."""
    python = os.environ.get("RELAX2XLA_TVM")
    if not python:
        return {"status": "not run", "reason": "RELAX2XLA_TVM names no Python"}
    inputs = leaves(subject.example.inputs(BATCH))
    flat = _Flat(subject.example).eval()
    try:
        with torch.no_grad():
            program = torch.export.export(flat, tuple(inputs))
    except Exception as e:
        raise TorchRefuses(first_line(e)) from e
    with tempfile.TemporaryDirectory() as name:
        torch.export.save(program, Path(name) / "program.pt2")
        expected = eager(subject.example, BATCH)
        exact = in_float64(subject.example, BATCH, expected) or expected
        torch.save((inputs, expected, exact), Path(name) / "case.pt")
        del program
        command = [python, "-m", "benchmarks.from_torch.torch_models_tvm", name, str(CALLS)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [""])[-1]
        return {"status": "error", "reason": f"exit status {done.returncode}: {last[:300]}"}
    return json.loads(done.stdout.splitlines()[-1])


# -- all of it -----------------------------------------------------------------------------------
STEPS: Mapping[str, Callable[[Subject], Outcome]] = {
    "export": lambda s: _exported(s, False),
    "any batch": lambda s: _exported(s, True),
    "torch.compile": lambda s: _compiled(s, "relax2xla"),
    "inductor": lambda s: _compiled(s, "inductor"),
    "times": _times,
    "other batches": _batches,
    "tvm": _tvm,
}
# What a step leaves in ``Subject.calls``; it does so only where it agreed with torch.
LEAVES = {"export": "exported", "torch.compile": "relax2xla", "inductor": "inductor"}


def first_line(e: BaseException) -> str:
    """An exception in a line."""
    lines = [x.strip() for x in str(e).splitlines() if x.strip()] or [""]
    return f"{type(e).__name__}: {' '.join(lines)[:400]}"


def attempt(subject: Subject, step: str) -> Outcome:
    """One step; a failure is an outcome."""
    try:
        outcome = STEPS[step](subject)
        status = "pass" if outcome.get("error", 0.0) <= TOLERANCE else "wrong"
        outcome.setdefault("status", "partly torch" if outcome.get("left") else status)
    except TorchRefuses as e:
        outcome = {"status": "torch refuses", "reason": str(e)}
    except Exception as e:  # whatever goes wrong is what the table is for
        outcome = {"status": "error", "reason": first_line(e)}
    if outcome["status"] not in ("pass", "partly torch"):
        subject.calls.pop(LEAVES.get(step, ""), None)
    return outcome


def imports(rounds: int = 3) -> list[str]:
    """Markdown: what the import of transformers of 24 layers costs, without the export."""
    lines = ["| network | batch | graph nodes | CPU s, least | CPU s a 1,000 nodes |"]
    lines.append("|---|---|---|---|---|")
    for name, make in DEEP.items():
        example = make()
        for dynamic in (False, True):
            program = program_of(example, dynamic)
            nodes = len(program.graph.nodes)
            seconds: list[float] = []
            for _ in range(rounds):
                start = time.process_time()
                from_exported_program(program)
                seconds.append(time.process_time() - start)
            least, batch = min(seconds), "any" if dynamic else str(BATCH)
            lines.append(
                f"| {name} | {batch} | {nodes} | {least:.2f} | {1000 * least / nodes:.2f} |"
            )
    return lines


def versions() -> dict[str, str]:
    """Of what a row was made with."""
    present = ("torch", *(p for p in PACKAGES if p not in absent()), "jax")
    return {p: metadata.version(p) for p in present}


def serve(connection: Connection) -> None:
    """Answer requests ``(name, step, steps whose calls are wanted)`` until there are no more.

    The answer is an outcome. A network stays until another one is asked for.
    """
    os.setpgid(0, 0)  # a compiler that a step has started ends with it
    torch.set_num_threads(1)
    subject: Subject | None = None
    with tempfile.TemporaryDirectory() as cache:
        # Inductor begins with an empty cache, as we do.
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache
        while (request := connection.recv()) is not None:
            name, step, wanted = request
            try:
                if subject is None or subject.name != name:
                    subject = None
                    torch.compiler.reset()
                    gc.collect()
                    subject = Subject(name, ZOO[name]())
                    for earlier in wanted:  # after a step that had to be ended
                        attempt(subject, earlier)
                outcome = attempt(subject, step)
            except Exception as e:
                outcome = {"status": "no model", "reason": first_line(e)}
            connection.send(outcome)
