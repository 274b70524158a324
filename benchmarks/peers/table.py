"""Networks by all our roads beside ONNX Runtime, torch eager and Inductor.

Each network has a process of its own, in which its variants take turns, on one core; times are that
process's own CPU time, so other work on the machine counts little. A ratio is the median of the
ratios round by round. The floor is the operations of the network by what the core multiplies in a
second. ``--only 'resnet*'`` takes some, ``--inductor`` adds a column that takes minutes to compile,
``--quick`` takes one road of ours, torch.export. ``--batch 8`` takes eight inputs at once.
``--cores 2`` measures on two cores, by the clock, so that nothing else should run. ONNX files are
kept in ``out/peers``.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.chosen import chosen

RESULTS = Path(__file__).parents[2] / "out/peers.jsonl"
# Seconds that one network may take.
LIMIT = 1800
# Seconds of calls before one is measured on several cores: as long as threads of the variant before
# it may look out for more work.
SETTLE = 0.01
# Seconds that the rounds of one network take, about.
SECONDS = 20.0
OURS = ("export", "onnx", "compile")
HEAD = (
    "| network | export | ONNX road | compile | ONNX Runtime | torch eager | Inductor "
    "| best road / best peer | floor | best road / floor | error | first call s |"
)


def _picture(name: str) -> Callable[[], tuple[Any, tuple[Any, ...]]]:
    def make() -> tuple[Any, tuple[Any, ...]]:
        from benchmarks.peers import pictures
        from examples.models._common import random_images

        network = pictures.settled(getattr(pictures, name)(), random_images(2, 224, 0))
        return network, (random_images(1, 224, 0),)

    return make


def _example(name: str) -> Callable[[], tuple[Any, tuple[Any, ...]]]:
    def make() -> tuple[Any, tuple[Any, ...]]:
        from examples.models import MODELS

        return MODELS[name].build(), MODELS[name].example_inputs()

    return make


def _group_norms() -> tuple[Any, tuple[Any, ...]]:
    import torch

    from benchmarks.peers import pictures

    image = torch.randn(1, 32, 128, 128, generator=torch.Generator().manual_seed(0))
    return pictures.settled(pictures.group_norms(), image), (image,)


def _llama() -> tuple[Any, tuple[Any, ...]]:
    import torch

    from benchmarks.peers.sequences import Llama

    torch.manual_seed(0)
    return Llama().eval(), (torch.randint(0, 16000, (1, 128)),)


def _lstm() -> tuple[Any, tuple[Any, ...]]:
    import torch

    from benchmarks.peers.sequences import LSTM

    torch.manual_seed(0)
    return LSTM().eval(), (torch.randn(1, 50, 256),)


#: Networks in evaluation mode, with arguments.
NETWORKS: Mapping[str, Callable[[], tuple[Any, tuple[Any, ...]]]] = {
    "resnet50": _example("resnet50"),
    "mobilenet_v3_large": _picture("mobilenet_v3_large"),
    "efficientnet_b0": _picture("efficientnet_b0"),
    "convnext_tiny": _picture("convnext_tiny"),
    "regnet_y_1_6gf": _picture("regnet_y_1_6gf"),
    "vit_b_16": _example("vit_b16"),
    "swin_t": _picture("swin_t"),
    "vgg11": _picture("vgg11"),
    "densenet121": _picture("densenet121"),
    "bert_base": _example("bert_base"),
    "gpt2": _example("gpt2_small"),
    "llama": _llama,
    "group_norms": _group_norms,
    "lstm": _lstm,
}
# What torch's counter does not see: multiplications and additions of the cells.
_UNCOUNTED = {"lstm": 2 * 2 * 50 * 4 * 256 * 512}


class Settings(NamedTuple):
    """How networks are measured; see the command line."""

    quick: bool = False
    inductor: bool = False
    batch: int = 1
    cores: int = 1

    def flags(self) -> list[str]:
        """The same on the command line of one network's process."""
        switches = [f"--{n}" for n in ("quick", "inductor") if getattr(self, n)]
        return [*switches, "--batch", str(self.batch), "--cores", str(self.cores)]


def main(
    quick: bool = False,
    only: Sequence[str] | None = None,
    inductor: bool = False,
    batch: int = 1,
    cores: int = 1,
) -> None:
    """Print a row for each network as it is done, and the geometric mean of their ratios."""
    names = chosen(NETWORKS, only)
    if not names:
        raise SystemExit(f"no network is named so; there are {', '.join(NETWORKS)}")
    RESULTS.parent.mkdir(exist_ok=True)
    print(f"load of the machine: {os.getloadavg()[0]:.1f}\n")
    print(f"{HEAD}\n|{'---|' * (HEAD.count('|') - 1)}")
    ratios: list[float] = []
    for name in names:
        row = _in_a_process(name, Settings(quick, inductor, batch, cores))
        with RESULTS.open("a") as f:
            f.write(json.dumps(row) + "\n")
        print(_line(row), flush=True)
        if "ratio" in row:
            ratios.append(row["ratio"])
    if ratios:
        mean = math.exp(statistics.fmean(map(math.log, ratios)))
        ahead = sum(r <= 1 for r in ratios)
        print(f"\ngeometric mean {mean:.2f}; at most 1.0 in {ahead} of {len(ratios)}")


def _in_a_process(name: str, how: Settings) -> dict[str, Any]:
    own = how.flags()
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.peers.table", name, *own]
    try:
        run = subprocess.run(command, stdout=subprocess.PIPE, timeout=LIMIT, check=False, text=True)
    except subprocess.TimeoutExpired:
        return {"network": name, "reason": f"longer than {LIMIT} s"}
    lines = run.stdout.strip().splitlines()
    if run.returncode or not lines:
        return {"network": name, "reason": f"its process ended with {run.returncode}"}
    return json.loads(lines[-1])


def _line(row: Mapping[str, Any]) -> str:
    if "reason" in row:
        return f"| {row['network']} | {row['reason']} |"
    times = [row["ms"].get(v) for v in (*OURS, "onnxruntime", "eager", "inductor")]
    cells = [
        row["network"],
        *("-" if t is None else f"{t:.1f}" for t in times),
        f"{row['ratio']:.2f}",
        f"{row['floor']:.1f}",
        f"{row['to_floor']:.2f}",
        f"{row['error']:.0e}",
        f"{row['first']:.1f}",
    ]
    return f"| {' | '.join(cells)} |"


def _say(text: str) -> None:
    """Progress, where it is not in the table's way."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def measure(name: str, how: Settings) -> dict[str, Any]:
    """The row of one network: least milliseconds of each variant, and ratios by rounds."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-how.cores :])
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    from relax2xla.cli.figures.timing import calls_for, interleaved, ratio, rounds_for

    warnings.simplefilter("ignore")
    torch.set_num_threads(how.cores)
    _say(f"{name}: made")
    network, args = NETWORKS[name]()
    args = tuple(a.repeat(how.batch, *[1] * (a.ndim - 1)) for a in args)
    with torch.inference_mode(), FlopCounterMode(display=False) as counted:
        expected = network(*args)
    first = expected if isinstance(expected, torch.Tensor) else expected[0]
    operations = counted.get_total_flops() + how.batch * _UNCOUNTED.get(name, 0)
    variants, started = _variants(name, network, args, how)
    errors = [_error(variants[v](), first) for v in variants]
    _say(f"{name}: measured")
    rounds = rounds_for(variants, SECONDS / 4 if how.quick else SECONDS, least=7, most=100)
    alone = how.cores == 1
    clock = time.process_time if alone else time.perf_counter
    untimed = 0 if alone else max(calls_for(run, SETTLE) for run in variants.values())
    times = interleaved(variants, rounds, warmup=1, untimed=untimed, clock=clock)
    # The core is measured in the same minute: its clock follows what the others do.
    speed = how.cores * _speed(3 if how.quick else 8)
    _say("")
    least = {v: 1e3 * min(t) for v, t in times.items()}
    best = min((v for v in ("export", "onnx") if v in least), key=least.__getitem__)
    peer = min((v for v in least if v not in OURS), key=least.__getitem__)
    floor = 1e3 * operations / speed
    return {
        "network": name,
        "ms": least,
        "median": {v: 1e3 * statistics.median(t) for v, t in times.items()},
        "peer": peer,
        "ratio": ratio(times, best, peer),
        "ratios": {v: ratio(times, v, peer) for v in times},
        "gflops": speed / 1e9,
        "floor": floor,
        "to_floor": least[best] / floor,
        "error": max(errors),
        "first": started,
        "rounds": rounds,
        "load": os.getloadavg()[0],
    }


def _error(found: Any, expected: Any) -> float:
    import numpy as np

    if isinstance(found, list | tuple):
        found = found[0]
    difference = np.abs(np.asarray(found) - expected.numpy()).max()
    return float(difference / np.abs(expected.numpy()).max())


def _speed(rounds: int) -> float:
    """Operations a second of this core: squares of 1024, the best round of the best library.

    Which that is depends on the processor: torch's takes twice as long as XLA's on AMD's.
    """
    import jax
    import numpy as np
    import torch

    host = np.random.default_rng(0).standard_normal((2, 1024, 1024), dtype="float32")
    a, b = torch.from_numpy(host[0]), torch.from_numpy(host[1])
    x, y = jax.numpy.asarray(host[0]), jax.numpy.asarray(host[1])
    product = jax.jit(jax.numpy.matmul)
    libraries: list[Callable[[], Any]] = [
        lambda: torch.mm(a, b),
        lambda: np.matmul(host[0], host[1]),
        lambda: product(x, y).block_until_ready(),
    ]
    found: list[float] = []
    for multiply in libraries:
        multiply()
        for _ in range(rounds):
            start = time.process_time()
            for _ in range(4):
                multiply()
            found.append((time.process_time() - start) / 4)
    return 2 * 1024**3 / min(found)


def _variants(
    name: str, network: Any, args: tuple[Any, ...], how: Settings
) -> tuple[dict[str, Callable[[], Any]], float]:
    """Calls by name, and the seconds (of this process) of the first call by the export road."""
    import onnx
    import onnxruntime
    import torch

    from benchmarks.peers.onnxruntime_options import on_threads
    from relax2xla.frontend.onnx import from_onnx
    from relax2xla.frontend.torch import from_exported_program

    host = [a.numpy() for a in args]
    variants: dict[str, Callable[[], Any]] = {}

    def torch_call(call: Callable[..., Any]) -> Callable[[], Any]:
        def run() -> Any:
            with torch.inference_mode():
                return call(*args)

        return run

    _say(f"{name}: export")
    with torch.no_grad():
        exported = torch.export.export(network, args)
        start = time.process_time()
        variants["export"] = _ours(from_exported_program(exported), host)
        variants["export"]()
        started = time.process_time() - start
    _say(f"{name}: ONNX")
    file = RESULTS.parent / "peers" / f"{name}{'' if how.batch == 1 else how.batch}.onnx"
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        program: Any = torch.onnx.export(network, args, dynamo=True, verbose=False)
        program.save(str(file))
    if not how.quick:
        variants["onnx"] = _ours(from_onnx(onnx.load(file)), host)
        variants["compile"] = torch_call(torch.compile(network, backend="relax2xla"))
    if how.inductor:
        variants["inductor"] = torch_call(torch.compile(network, backend="inductor"))
    session = onnxruntime.InferenceSession(file, on_threads(how.cores))
    feeds = dict(zip((i.name for i in session.get_inputs()), host, strict=True))
    variants["onnxruntime"] = lambda: session.run(None, feeds)
    variants["eager"] = torch_call(network)
    return variants, started


def _ours(mod: Any, host: Sequence[Any]) -> Callable[[], Any]:
    import jax

    import relax2xla as rx

    run = rx.VirtualMachine(rx.build(mod))["main"]
    given = [rx.nd.array(h) for h in host]
    return lambda: jax.block_until_ready(run(*given))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    for switch in ("--quick", "--inductor"):
        parser.add_argument(switch, action="store_true")
    for number in ("--batch", "--cores"):
        parser.add_argument(number, type=int)
    given = vars(parser.parse_args())
    print(json.dumps(measure(given.pop("name"), Settings(**given))))
