"""Quantised networks beside ONNX Runtime and Inductor, on one core, in processor time.

ONNX Runtime's own tools make the models, with weights of int8 by channel and bytes without sign
between the layers: operators on integers (QOperator), between dequantise and quantise (QDQ), and
products whose scale is found at the call (dynamic). Each has a process of its own, in which both
take turns; the ratio is the median by rounds. The error is the largest difference to ONNX Runtime,
of its largest result, beside that of the float32 model: without VNNI, ONNX Runtime's sums of bytes
saturate. Files are kept in ``out/quantised``. ``--only 'bert*'`` takes some.

``pt2e``: torchao quantises for x86 (a package that nothing else here needs), and Inductor, with
weights that it may fold, is the peer; it compiles for minutes.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.chosen import chosen

HOME = Path(__file__).parents[2] / "out/quantised"
# Seconds that one row may take, and its rounds about.
LIMIT = 1800
SECONDS = 10.0
ROWS = (
    *("resnet50 qoperator", "resnet50 qdq", "bert2 qoperator", "bert2 dynamic", "bert2 qdq"),
    "resnet50 pt2e",
)


def main(quick: bool = False, only: Sequence[str] | None = None) -> None:
    """Print a row for each model as it is done."""
    rows = chosen(ROWS, only)
    if not rows:
        raise SystemExit(f"no model is named so; there are {', '.join(ROWS)}")
    print(f"load of the machine: {os.getloadavg()[0]:.1f}\n")
    print("| model | relax2xla ms | peer ms | ratio | error | error of float32 | first s |")
    print("|---|---|---|---|---|---|---|", flush=True)
    for row in rows:
        command = [
            sys.executable,
            "-W",
            "ignore",
            "-m",
            "benchmarks.machine.quantised",
            *row.split(),
        ]
        command += ["--quick"] * quick
        run = subprocess.run(command, stdout=subprocess.PIPE, timeout=LIMIT, check=False, text=True)
        if run.returncode:
            print(f"| {row} | its process ended with {run.returncode} |", flush=True)
            continue
        found = json.loads(run.stdout.strip().splitlines()[-1])
        cells = [f"{found[k]:.1f}" for k in ("ours", "peer")]
        cells += [f"{found['ratio']:.2f}", f"{found['error']:.0e}", f"{found['of_float']:.0e}"]
        print(f"| {row} | {' | '.join(cells)} | {found['first']:.1f} |", flush=True)


def _network(name: str, seed: int) -> tuple[Any, tuple[Any, ...]]:
    """A network, and arguments by ``seed``."""
    import torch
    from torch import nn

    from examples.models import bert_base, resnet50
    from examples.models._common import random_images

    if name == "resnet50":
        return resnet50.build(), (random_images(1, 224, seed),)

    class Layers(nn.Module):
        """Two layers of BERT-base behind their embeddings."""

        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(bert_base.build(layers=2).layers)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            mask = torch.zeros(1, 1, 1, 1)
            for layer in self.layers:
                x = layer(x, mask)
            return x

    made = Layers().eval()
    generator = torch.Generator().manual_seed(1)
    for parameter_name, parameter in made.named_parameters():
        # The quantiser trips over biases that several layers share, as those that are all zero.
        if parameter_name.endswith("bias"):
            parameter.data = 0.02 * torch.randn(parameter.shape, generator=generator)
    data = torch.Generator().manual_seed(seed)
    return made, (torch.randn(1, 128, 768, generator=data),)


def _model(name: str, kind: str) -> tuple[Path, Path, list[Any]]:
    """Files of the quantised and of the float32 model, made where they are not there; arguments."""
    import torch
    from onnxruntime.quantization import (
        CalibrationDataReader,
        QuantFormat,
        QuantType,
        quantize_dynamic,
        quantize_static,
    )

    HOME.mkdir(parents=True, exist_ok=True)
    network, args = _network(name, 0)
    whole, made = HOME / f"{name}.onnx", HOME / f"{name}_{kind}.onnx"
    if not whole.exists():
        with torch.no_grad():
            program: Any = torch.onnx.export(
                network, args, dynamo=True, verbose=False, input_names=["x"]
            )
        program.save(str(whole))

    class Samples(CalibrationDataReader):
        def __init__(self) -> None:
            self.left = [{"x": _network(name, seed)[1][0].numpy()} for seed in range(4)]

        def get_next(self) -> Any:
            return self.left.pop() if self.left else None

    if not made.exists() and kind == "dynamic":
        quantize_dynamic(whole, made, weight_type=QuantType.QInt8)
    elif not made.exists():
        quantize_static(
            whole,
            made,
            Samples(),
            quant_format=QuantFormat.QDQ if kind == "qdq" else QuantFormat.QOperator,
            per_channel=True,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
        )
    return made, whole, [a.numpy() for a in args]


def measure(name: str, kind: str, quick: bool) -> dict[str, float]:
    """The row of one model."""
    import onnx
    import onnxruntime

    from benchmarks.peers.onnxruntime_options import one_thread
    from relax2xla.frontend.onnx import from_onnx

    file, whole, args = _model(name, kind)
    ours, found, first = _started(lambda: from_onnx(onnx.load(file)), args)
    session = onnxruntime.InferenceSession(file, one_thread())
    expected = session.run(None, {"x": args[0]})[0]
    exact = onnxruntime.InferenceSession(whole, one_thread()).run(None, {"x": args[0]})[0]
    results = found, expected, exact
    return _row(ours, lambda: session.run(None, {"x": args[0]}), results, first, quick)


def measure_torch(name: str, quick: bool) -> dict[str, float]:
    """The row of a model that torchao quantises for x86, beside Inductor."""
    import torch
    from torch._inductor import config

    from relax2xla.frontend.torch import from_exported_program

    home = "torchao.quantization.pt2e"
    pt2e: Any = importlib.import_module(f"{home}.quantize_pt2e")
    x86: Any = importlib.import_module(f"{home}.quantizer.x86_inductor_quantizer")
    torch.set_num_threads(1)
    network, args = _network(name, 0)
    exact = network(*args).detach().numpy()
    quantizer = x86.X86InductorQuantizer()
    quantizer.set_global(x86.get_default_x86_inductor_quantization_config())
    observed = pt2e.prepare_pt2e(torch.export.export(network, args).module(), quantizer)
    for seed in range(4):
        observed(*_network(name, seed)[1])
    quantised = pt2e.convert_pt2e(observed)
    program = torch.export.export(quantised, args)
    ours, found, first = _started(
        lambda: from_exported_program(program, unwrap_unit_return_tuple=True),
        [a.numpy() for a in args],
    )
    expected = quantised(*args).detach().numpy()
    config.freezing = True
    compiled = torch.compile(program.module())
    with torch.no_grad():
        return _row(ours, lambda: compiled(*args), (found, expected, exact), first, quick)


def _started(make: Callable[[], Any], args: Sequence[Any]) -> tuple[Callable[[], Any], Any, float]:
    """A call of the module that ``make`` imports, its result, and the seconds up to that."""
    import jax
    import numpy as np

    import relax2xla as rx

    start = time.process_time()
    function = rx.VirtualMachine(rx.build(make()))["main"]
    given = [rx.nd.array(a) for a in args]

    def ours() -> Any:
        return jax.block_until_ready(function(*given))

    found = np.asarray(ours())
    return ours, found, time.process_time() - start


def _row(
    ours: Callable[[], Any],
    peer: Callable[[], Any],
    results: tuple[Any, Any, Any],
    first: float,
    quick: bool,
) -> dict[str, float]:
    """Both in turn; ``results``: ours, the model's own, and those of the float32 model."""
    import numpy as np

    from relax2xla.cli.figures.timing import interleaved, ratio, rounds_for

    found, expected, exact = results
    size = np.abs(expected).max()
    variants = {"ours": ours, "peer": peer}
    rounds = rounds_for(variants, SECONDS / 4 if quick else SECONDS, least=7, most=60)
    times = interleaved(variants, rounds, warmup=1, clock=time.process_time)
    return {
        "ours": 1e3 * min(times["ours"]),
        "peer": 1e3 * min(times["peer"]),
        "ratio": ratio(times, "ours", "peer"),
        "error": float(np.abs(found - expected).max() / size),
        "of_float": float(np.abs(found - exact).max() / size),
        "first": first,
    }


def _main(name: str, kind: str, quick: bool) -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    warnings.simplefilter("ignore")
    found = measure_torch(name, quick) if kind == "pt2e" else measure(name, kind, quick)
    print(json.dumps(found))


if __name__ == "__main__":
    _main(sys.argv[1], sys.argv[2], "--quick" in sys.argv)
