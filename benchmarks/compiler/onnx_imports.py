"""What ``from_onnx`` costs beside TVM's, and the memory that a gigabyte of external data takes.

TVM runs where ``RELAX2XLA_TVM`` names a Python that has it and onnx. Both import the same message
in processes of their own, in turn. CPU time counts: other work of the machine moves the clock.
"""

from __future__ import annotations

import json
import logging
import os
import statistics
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

NETWORKS = ("resnet50", "bert_base")
# The size of the model for the measurement of memory: matrices of SIDE x SIDE float32.
MATRICES, SIDE = 16, 4096

# Runs under either Python, so it uses nothing of this package.
CHILD = """
import json, logging, sys, time, warnings
warnings.simplefilter("ignore"); logging.disable(logging.CRITICAL)
import onnx
who, path, repeats = sys.argv[1], sys.argv[2], int(sys.argv[3])
if who == "tvm":
    from tvm.relax.frontend.onnx import from_onnx
else:
    from relax2xla.frontend.onnx import from_onnx
model = onnx.load(path)
times = []
for _ in range(repeats):
    start = time.process_time()
    from_onnx(model)
    times.append(time.process_time() - start)
print("\\n" + json.dumps(times))
"""


def export(folder: Path, name: str) -> Path:
    """A network of the examples, as torch's exporter writes it."""
    import onnx
    import torch

    from examples.models import MODELS

    entry = MODELS[name]
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    path = folder / f"{name}.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            entry.build(), entry.example_inputs(1, 0), dynamo=True, verbose=False
        )
    assert program is not None
    onnx.save(program.model_proto, path)
    return path


def measure(who: str, python: str, path: Path, repeats: int) -> list[float]:
    """CPU seconds of each import of a model, by one process."""
    command = [python, "-c", CHILD, who, str(path), str(repeats)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def external(folder: Path) -> Path:
    """A chain of products whose weights are a file of a gigabyte (of holes)."""
    import onnx
    from onnx import TensorProto, helper

    weights: list[Any] = []
    nodes: list[Any] = []
    for i in range(MATRICES):
        size = 4 * SIDE * SIDE
        t = TensorProto(name=f"w{i}", data_type=TensorProto.FLOAT, dims=[SIDE, SIDE])
        t.data_location = TensorProto.EXTERNAL
        for key, v in {"location": "w.bin", "offset": i * size, "length": size}.items():
            t.external_data.add(key=key, value=str(v))
        weights.append(t)
        nodes.append(helper.make_node("MatMul", [f"h{i}", f"w{i}"], [f"h{i + 1}"]))
    info = helper.make_tensor_value_info
    ends = [info("h0", 1, [1, SIDE])], [info(f"h{MATRICES}", 1, [1, SIDE])]
    graph = helper.make_graph(nodes, "chain", *ends, weights)
    opset = [helper.make_opsetid("", 18)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=9), folder / "m.onnx")
    with (folder / "w.bin").open("wb") as file:
        file.truncate(4 * SIDE * SIDE * MATRICES)
    return folder / "m.onnx"


def resident() -> dict[str, float]:
    """MiB of this process that are, and at most were, in memory, as Linux counts them."""
    lines = Path("/proc/self/status").read_text().splitlines()
    found = dict(line.split(":", 1) for line in lines)
    return {name: int(found[name].split()[0]) / 1024 for name in ("VmRSS", "VmHWM")}


def peak(path: Path) -> float:
    """MiB of resident memory that importing a file adds at most."""
    from relax2xla.importers.onnx import from_onnx
    from relax2xla.importers.onnx.engine.model import load_converters

    load_converters()
    before = resident()["VmRSS"]
    from_onnx(path)
    return resident()["VmHWM"] - before


def main(quick: bool = False) -> None:
    """Print both tables."""
    tvm = os.environ.get("RELAX2XLA_TVM", "")
    sides = {"relax2xla": sys.executable, **({"tvm": tvm} if tvm else {})}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        print("| from_onnx | CPU s | TVM's CPU s | ratio |\n|---|---|---|---|")
        for network in NETWORKS:
            path = export(folder, network)
            times: dict[str, list[float]] = {who: [] for who in sides}
            for _ in range(1 if quick else 5):
                for who, python in sides.items():
                    # The first import also loads what is needed.
                    times[who] += measure(who, python, path, 3)[1:]
            ours = statistics.median(times["relax2xla"])
            theirs = statistics.median(times["tvm"]) if tvm else float("nan")
            print(f"| {network} | {ours:.3f} | {theirs:.3f} | {ours / theirs:.2f} |", flush=True)
        print(
            "\n| imported file | its size in MiB | peak memory in MiB | ratio |\n|---|---|---|---|"
        )
        models = {"weights inside (bert_base)": folder / "bert_base.onnx"}
        models["external data"] = external(folder)
        sizes = [models["weights inside (bert_base)"], folder / "w.bin"]
        for (title, path), holder in zip(models.items(), sizes, strict=True):
            size = holder.stat().st_size / 2**20
            words = [sys.executable, "-m", "benchmarks.compiler.onnx_imports", str(path)]
            done = subprocess.run(words, check=True, capture_output=True, text=True)
            used = float(done.stdout.splitlines()[-1])
            print(f"| {title} | {size:.0f} | {used:.0f} | {used / size:.2f} |")


if __name__ == "__main__":
    print(peak(Path(sys.argv[1])))
