"""One small model of each format, and ways to run the command line."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from relax2xla.cli import main

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Result:
    """What a command gave."""

    code: int
    out: str
    err: str


Cli = Callable[..., Result]


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    """Run a command in this process; output is captured, and so no terminal."""

    def run(*words: object) -> Result:
        capsys.readouterr()
        code = main([str(w) for w in words])
        found = capsys.readouterr()
        return Result(code, found.out, found.err)

    return run


def shell(*words: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a command as users do, in a process of its own."""
    command = [sys.executable, "-m", "relax2xla", *map(str, words)]
    options["env"] = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=False, **options
    )


def weights() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)


def write_mlir(folder: Path) -> Path:
    import jax
    import jax.numpy as jnp

    def network(x: jax.Array, bias: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jnp.tanh(x @ weights()) + bias, jnp.max(x, axis=1)

    lowered = jax.jit(network).lower(
        jax.ShapeDtypeStruct((2, 4), np.float32), jax.ShapeDtypeStruct((3,), np.float32)
    )
    path = folder / "model.mlir"
    path.write_text(lowered.as_text())
    return path


def write_onnx(folder: Path) -> Path:
    onnx = pytest.importorskip("onnx")
    h, T = onnx.helper, onnx.TensorProto
    graph = h.make_graph(
        [
            h.make_node("MatMul", ["in.x", "w"], ["y"], name="matmul"),
            h.make_node("Softmax", ["y"], ["z"], name="softmax", axis=-1),
        ],
        "graph",
        [h.make_tensor_value_info("in.x", T.FLOAT, ["n", 4])],
        [h.make_tensor_value_info("z", T.FLOAT, ["n", 3])],
        [onnx.numpy_helper.from_array(weights(), "w")],
    )
    opsets = [h.make_opsetid("", 17)]
    path = folder / "model.onnx"
    onnx.save(h.make_model(graph, ir_version=9, opset_imports=opsets), path)
    return path


def write_pt2(folder: Path) -> Path:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    path = folder / "model.pt2"
    torch.export.save(torch.export.export(network.eval(), (torch.zeros(2, 4),)), path)
    return path


RELAX = """
from relax2xla.script import ir as I, relax as R

@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", 4), "float32")) -> R.Tensor(("n", 4), "float32"):
        with R.dataflow():
            y = R.nn.softmax(R.multiply(x, R.const(2.0, "float32")))
            R.output(y)
        return y
"""


def write_relax(folder: Path) -> Path:
    path = folder / "model.relax"
    path.write_text(RELAX)
    return path


WRITERS = {"mlir": write_mlir, "onnx": write_onnx, "pt2": write_pt2, "relax": write_relax}
# What a command needs beside the file.
OPTIONS: dict[str, list[str]] = {
    "mlir": [],
    "onnx": ["--shape", "n=3"],
    "pt2": ["--trust"],
    "relax": ["--shape", "n=3"],
}


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The path of the model of a format; each is made once."""
    made: dict[str, Path] = {}

    def get(kind: str) -> Path:
        if kind not in made:
            made[kind] = WRITERS[kind](tmp_path_factory.mktemp(kind))
        return made[kind]

    return get
