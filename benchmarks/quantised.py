"""Quantised networks beside ONNX Runtime, on one core, in processor time.

ONNX Runtime's own tools make the models, with weights of int8 by channel and bytes without sign
between the layers: operators on integers (QOperator), between dequantise and quantise (QDQ), and
products whose scale is found at the call (dynamic). Each has a process of its own, in which both
take turns; the ratio is the median by rounds. The error is the largest difference to ONNX Runtime,
of its largest result, beside that of the float32 model: without VNNI, ONNX Runtime's sums of bytes
saturate. Files are kept in ``out/quantised``. ``--only 'bert*'`` takes some.
"""

from __future__ import annotations

import fnmatch
import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HOME = Path(__file__).parents[1] / "out/quantised"
# Seconds that one row may take, and its rounds about.
LIMIT = 1800
SECONDS = 10.0
ROWS = ("resnet50 qoperator", "resnet50 qdq", "bert2 qoperator", "bert2 dynamic", "bert2 qdq")


def main(quick: bool = False, only: Sequence[str] | None = None) -> None:
    """Print a row for each model as it is done."""
    rows = [r for r in ROWS if any(fnmatch.fnmatch(r, p) for p in only or ("*",))]
    if not rows:
        raise SystemExit(f"no model is named so; there are {', '.join(ROWS)}")
    print(f"load of the machine: {os.getloadavg()[0]:.1f}\n")
    print("| model | relax2xla ms | ONNX Runtime ms | ratio | error | error of float32 | first s |")
    print("|---|---|---|---|---|---|---|", flush=True)
    for row in rows:
        command = [sys.executable, "-W", "ignore", "-m", "benchmarks.quantised", *row.split()]
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
    import jax
    import numpy as np
    import onnx
    import onnxruntime

    import relax2xla as rx
    from benchmarks.peers.onnxruntime_options import one_thread
    from relax2xla.cli.figures.timing import interleaved, ratio, rounds_for
    from relax2xla.frontend.onnx import from_onnx

    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    warnings.simplefilter("ignore")
    file, whole, args = _model(name, kind)
    start = time.process_time()
    function = rx.VirtualMachine(rx.build(from_onnx(onnx.load(file))))["main"]
    given = [rx.nd.array(a) for a in args]

    def ours() -> Any:
        return jax.block_until_ready(function(*given))

    found = np.asarray(ours())
    first = time.process_time() - start
    session = onnxruntime.InferenceSession(file, one_thread())
    expected = session.run(None, {"x": args[0]})[0]
    exact = onnxruntime.InferenceSession(whole, one_thread()).run(None, {"x": args[0]})[0]
    size = np.abs(expected).max()
    variants = {"ours": ours, "peer": lambda: session.run(None, {"x": args[0]})}
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


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], sys.argv[2], "--quick" in sys.argv)))
