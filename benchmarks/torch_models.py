"""Architectures of torchvision, timm and transformers through both ways in, beside eager torch.

Each is small and has random weights (``torch_models_zoo``). It is exported for one batch size and
for any, imported, built and run; and compiled by ``torch.compile`` and called with three batch
sizes. Outcomes are kept in ``out/torch_models.jsonl``, a line an architecture, and written to
``docs/torch.md``. ``--quick`` runs those only that have not passed yet.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
import numpy as np
import torch
from torch.utils import _pytree as pytree

from benchmarks.timing import interleaved, ratio
from benchmarks.torch_models_zoo import DEEP, PACKAGES, ZOO, Example, absent
from relax2xla import VirtualMachine, build
from relax2xla.frontend.torch import from_exported_program

ROOT = Path(__file__).parents[1]
RESULTS = Path(os.environ.get("TORCH_MODELS_RESULTS", ROOT / "out/torch_models.jsonl"))
PAGE = ROOT / "docs/torch.md"
BEGIN, END = "<!-- torch_models: begin -->", "<!-- torch_models: end -->"

# Of the largest value of an output. Rounding in networks as deep as these stays well below.
TOLERANCE = 1e-4
IMPORTS = "**Import of 24 layers**"
SPEED = "**Speed of torch.compile on one core**"
# The batch for which a network is exported, and others that are tried.
BATCH, OTHERS = 2, (3, 5)
WAYS = ("export", "export for any batch", "torch.compile")

Outcome = dict[str, Any]


class TorchRefuses(Exception):
    """torch itself does not export the network in this way."""


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


def through_export(example: Example, dynamic: bool) -> Outcome:
    """Export, import, build, run."""
    program = program_of(example, dynamic)
    nodes = len(program.graph.nodes)
    start = time.process_time()
    mod = from_exported_program(program)
    imported = time.process_time() - start
    start = time.process_time()
    main = VirtualMachine(build(mod))["main"]
    # A program for any batch is not run for the one that it was exported for.
    batch = OTHERS[0] if dynamic else BATCH
    args, kwargs = example.inputs(batch)
    found = main(*(x.numpy() for x in leaves((args, kwargs))))
    return {
        "error": error(jax.tree.leaves(found), eager(example, batch)),
        "nodes": nodes,
        "import_s": imported,
        "first_call_s": time.process_time() - start,
    }


def through_compile(example: Example, rounds: int) -> Outcome:
    """torch.compile, at several batch sizes; then times beside eager's."""
    torch._dynamo.reset()
    network: Callable[..., Any] = torch.compile(example.network, backend="relax2xla")
    worst = 0.0
    seconds: list[float] = []
    with warnings.catch_warnings(record=True) as caught, torch.no_grad():
        warnings.simplefilter("always")
        for batch in (BATCH, *OTHERS):
            args, kwargs = example.inputs(batch)
            start = time.process_time()
            found = network(*args, **kwargs)
            seconds.append(time.process_time() - start)
            worst = max(worst, error(leaves(found), eager(example, batch)))
        left = [str(w.message) for w in caught if "relax2xla leaves" in str(w.message)]
        args, kwargs = example.inputs(BATCH)
        times = interleaved(
            {
                "eager": lambda: example.network(*args, **kwargs),
                "relax2xla": lambda: network(*args, **kwargs),
            },
            rounds,
            warmup=2,
            clock=time.process_time,
        )
    return {
        "error": worst,
        "compile_s": seconds[0],
        "recompile_s": seconds[1],
        "cpu_ms": {k: 1000 * min(v) for k, v in times.items()},
        "ratio": ratio(times, "relax2xla", "eager"),
        "left": left,
    }


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


def first_line(e: BaseException) -> str:
    """An exception in a line."""
    lines = [x.strip() for x in str(e).splitlines() if x.strip()] or [""]
    return f"{type(e).__name__}: {' '.join(lines)[:400]}"


def run(name: str, rounds: int) -> dict[str, Outcome]:
    """One architecture through all ways; a failure is an outcome."""
    found: dict[str, Outcome] = {}
    example = ZOO[name]()
    ways: dict[str, Callable[[], Outcome]] = {
        WAYS[0]: lambda: through_export(example, False),
        WAYS[1]: lambda: through_export(example, True),
        WAYS[2]: lambda: through_compile(example, rounds),
    }
    for way, attempt in ways.items():
        try:
            outcome = attempt()
            outcome["status"] = "pass" if outcome["error"] <= TOLERANCE else "wrong"
            if outcome.get("left"):
                outcome["status"] = "partly torch"
        except TorchRefuses as e:
            outcome = {"status": "torch refuses", "reason": str(e)}
        except Exception as e:  # whatever goes wrong is what the table is for
            outcome = {"status": "error", "reason": first_line(e)}
        found[way] = outcome
    gc.collect()
    return found


def load() -> dict[str, dict[str, Outcome]]:
    """Kept outcomes; the last line of a name counts."""
    if not RESULTS.exists():
        return {}
    lines = (json.loads(line) for line in RESULTS.read_text().splitlines())
    return {line["name"]: line["ways"] for line in lines}


def settled(ways: Mapping[str, Outcome]) -> bool:
    """Whether nothing of ours is left to do."""
    return all(o["status"] in ("pass", "torch refuses") for o in ways.values())


def update(names: Iterable[str], rounds: int = 5) -> None:
    """Run these and keep the outcomes."""
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    for name in names:
        start = time.perf_counter()
        try:
            ways = run(name, rounds)
        except Exception as e:
            ways = {way: {"status": "no model", "reason": first_line(e)} for way in WAYS}
        with RESULTS.open("a") as file:
            file.write(json.dumps({"name": name, "ways": ways}) + "\n")
        shown = "; ".join(f"{o['status']} {_detail(o)}" for o in ways.values())
        print(f"{name} ({time.perf_counter() - start:.0f} s): {shown}", flush=True)


def _detail(outcome: Outcome) -> str:
    """The error of a way that ran, or why it did not."""
    found = outcome.get("reason") or "; ".join(outcome.get("left", ()))
    return found or f"{outcome['error']:.1e}"


# -- the page ------------------------------------------------------------------------------------
def table(results: Mapping[str, Mapping[str, Outcome]]) -> list[str]:
    """Markdown: a line an architecture, then what went wrong and what torch refuses."""
    done = [name for name in ZOO if name in results]
    counts = [
        f"{sum(results[n][way]['status'] == 'pass' for n in done)} through {way}" for way in WAYS
    ]
    lines = [
        f"Of {len(done)} architectures that were run, of {len(ZOO)} in the list, "
        f"{', '.join(counts)} agree with eager torch. Times are of the CPU: of the first call, of "
        "the first one for a second batch size, and the least of several later ones.",
        "",
        "| network | export: error | any batch: error | torch.compile: error | graph nodes "
        "| import s | compile s | new batch s | ms a call | eager ms | time to eager |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    notes: list[str] = []
    for name in done:
        ways = results[name]
        cells = [f"{o['error']:.1e}" if "error" in o else o["status"] for o in ways.values()]
        static, compiled = ways[WAYS[0]], ways[WAYS[2]]
        cells += [str(static.get("nodes", "")), _number(static.get("import_s"), 2)]
        times = compiled.get("cpu_ms", {})
        cells += [_number(compiled.get(k), 1) for k in ("compile_s", "recompile_s")]
        cells += [_number(times.get(k), 2) for k in ("relax2xla", "eager")]
        cells.append(_number(compiled.get("ratio"), 2))
        lines.append(f"| {name} | {' | '.join(cells)} |")
        notes += [
            f"- {name}, {way}: {o['status']}: {_escaped(_detail(o))}"
            for way, o in ways.items()
            if o["status"] != "pass"
        ]
    return [*lines, "", *notes]


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def _escaped(text: str) -> str:
    """Without what Markdown would take for marks, and without the places of files."""
    text = text.partition(", /")[0].partition(" at /")[0]
    for mark in "<>|*_`":
        text = text.replace(mark, f"\\{mark}")
    return text if len(text) <= 200 else f"{text[:200]} ..."


def write(
    results: Mapping[str, Mapping[str, Outcome]], deep: Sequence[str], speed: Sequence[str]
) -> None:
    """Replace the tables in the page; where speed was not measured its table stays."""
    head, _, rest = PAGE.read_text().partition(BEGIN)
    old, _, tail = rest.partition(END)
    before = old.partition(SPEED)[2].strip().splitlines()
    versions = ", ".join(
        f"{p} {metadata.version(p)}" for p in ("torch", *PACKAGES) if p not in absent()
    )
    lines = [
        BEGIN,
        f"{versions}. `python -m benchmarks torch_models` makes these tables.",
        "",
        *table(results),
    ]
    if deep:
        lines += ["", IMPORTS, "", *deep]
    if speed or before:
        lines += ["", SPEED, "", *(speed or before)]
    PAGE.write_text(head + "\n".join(lines).rstrip() + "\n" + END + tail)


def main(quick: bool = False) -> None:
    """Run the architectures, measure speed, write the page."""
    torch.set_num_threads(1)
    if not quick:
        RESULTS.unlink(missing_ok=True)
    lacking = absent()
    if lacking:
        print(f"not installed: {', '.join(lacking)} (`pip install 'relax2xla[models]'`)")
    done = load()
    update(
        name
        for name in ZOO
        if name.partition("/")[0] not in lacking
        and not (quick and name in done and settled(done[name]))
    )
    speed = [] if quick else _speed()
    results = load()
    deep = [] if "transformers" in lacking else imports()
    print("\n".join([*table(results), "", *deep, "", *speed]))
    write(results, deep, speed)


def _speed() -> list[str]:
    """The table of ``torch_models_speed``, which needs a process of its own with one core."""
    command = [sys.executable, "-m", "benchmarks.torch_models_speed"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT)
    return done.stdout.splitlines()
