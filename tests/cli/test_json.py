"""``--json``: standard output is JSON alone, and says what the tables say."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relax2xla as rx
from relax2xla import op
from relax2xla.builder import BlockBuilder
from relax2xla.cli.app import app
from relax2xla.ir import TensorStructInfo, Var, const
from tests.cli.conftest import Cli

#: The words of each command behind its name; IN and PLUGIN are files, OUT a folder.
COMMANDS = {
    "inspect": ["IN", "--layers", "--forms", "--text", "--plugin", "PLUGIN"],
    "convert": ["IN", "-o", "OUT/m.mlir", "--plugin", "PLUGIN"],
    "run": ["IN", "--plugin", "PLUGIN", "-o", "OUT/y.npz", "--trace", "OUT/t.json"],
    "compile": ["IN", "-o", "OUT/m.r2x", "--plugin", "PLUGIN"],
    "verify": ["IN", "--plugin", "PLUGIN"],
    "quantize": ["IN", "-o", "OUT/q.mlir", "--verify", "--plugin", "PLUGIN"],
    "bench": ["IN", "--rounds", "2", "--plot", "OUT/times.svg", "--plugin", "PLUGIN"],
    "roundtrip": ["IN"],
    "diff": ["IN", "IN", "--plugin", "PLUGIN"],
    "opt": ["IN", "--passes", "RaiseStableHLO,zero", "--plugin", "PLUGIN"],
    "reduce": ["IN", "-o", "OUT/r.mlir", "--check", "grep -q divide {}", "--plugin", "PLUGIN"],
    "view": ["IN", "-o", "OUT/m.svg", "--plugin", "PLUGIN"],
    "cache": [],
    "doctor": [],
    "config": [],
}
NOISE = "a plug-in prints this"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    weight = np.random.default_rng(0).normal(size=(64, 100)).astype(np.float32)
    bb, x = BlockBuilder(), Var("x", TensorStructInfo((3, 64)))
    with bb.function("main", [x]):
        with bb.dataflow():
            # Infinity, which JSON has no number for, is among the results.
            y = bb.emit_output(op.divide(op.matmul(x, const(weight)), const(0.0, "float32")))
        bb.emit_func_output(y)
    file = tmp_path_factory.mktemp("json") / "model.mlir"
    rx.save(bb.get(), file)
    return file


def parsed(text: str) -> dict[str, Any]:
    def refused(word: str) -> None:
        raise AssertionError(f"{word} is no JSON")

    return json.loads(text, parse_constant=refused)


def words_of(command: str, model: Path, folder: Path) -> list[str]:
    plugin = folder / "noisy.py"
    plugin.write_text(f"print({NOISE!r})\n")
    places = {"IN": str(model), "PLUGIN": str(plugin)}
    return [places.get(w, w.replace("OUT", str(folder))) for w in COMMANDS[command]]


def test_every_command_is_tried() -> None:
    names = {c.name or getattr(c.callback, "__name__", "") for c in app.registered_commands}
    assert set(COMMANDS) == names, "say in COMMANDS with which arguments the command runs"


@pytest.mark.parametrize("command", list(COMMANDS))
def test_json_alone(command: str, model: Path, cli: Cli, tmp_path: Path) -> None:
    words = words_of(command, model, tmp_path)
    done = cli(command, *words, "--json")
    assert done.code in (0, 1), done.err
    found = parsed(done.out)
    assert isinstance(found, dict)
    if "--plugin" in words:
        assert NOISE in done.err
    # What is put aside for one command is there again for the next.
    assert cli("-V").out.startswith("relax2xla ")


def test_what_they_say(model: Path, cli: Cli, tmp_path: Path) -> None:
    out = tmp_path / "m.mlir"
    beside = tmp_path / "m.safetensors"
    found = parsed(cli("convert", model, "-o", out, "--weights", beside, "--json").out)
    assert found["bytes"] == out.stat().st_size
    assert (found["form"], found["weights_file"]) == ("mlir", str(beside))
    assert (found["weights"]["arrays"], found["weights"]["bytes"]) == (1, 64 * 100 * 4)
    done = cli("convert", out, "-o", tmp_path / "n.relax")
    assert f"wrote {tmp_path / 'n.relax'}" in done.err
    assert "1 weight, 25.0 KiB inline" in done.err
    found = parsed(cli("opt", out, "--passes", "zero", "--json").out)
    assert found["passes"][-1]["name"] == "zero"
    assert found["passes"][-1]["depth"] == 0
    assert "I.ir_module" in found["text"]
    assert "text" not in parsed(
        cli("opt", out, "--passes", "zero", "-o", tmp_path / "o.relax", "--json").out
    )
    small = tmp_path / "q.mlir"
    words = ("quantize", out, "-o", small, "--weights", tmp_path / "q.safetensors", "--json")
    found = parsed(cli(*words).out)
    assert found["weights"]["bytes"] < found["weights_before"]["bytes"] / 2
    assert found["weights_file"] == str(tmp_path / "q.safetensors")
    assert "dense_resource<" in small.read_text()
    assert cli("verify", small).code == 0
    done = cli("convert", model, "-o", "-", "--to", "mlir", "--json")
    assert (done.code, "both write to standard output" in done.err) == (2, True)


def test_a_checkpoint_beside_is_not_written_over(cli: Cli, tmp_path: Path) -> None:
    """model.safetensors, which came with the model, is not where its weights go unasked."""
    bb, x = BlockBuilder(), Var("x", TensorStructInfo((1 << 19,)))
    with bb.function("main", [x]):
        bb.emit_func_output(bb.emit(op.add(x, const(np.arange(1 << 19, dtype=np.float32)))))
    source, out, own = (tmp_path / n for n in ("in.mlirbc", "model.mlir", "model.safetensors"))
    rx.save(bb.get(), source)
    own.write_bytes(b"mine")
    done = cli("convert", source, "-o", out)
    assert (done.code, "is there already" in done.err) == (2, True)
    assert (own.read_bytes(), out.exists()) == (b"mine", False)
    own.unlink()
    for _ in range(2):  # its own are written again
        assert cli("convert", source, "-o", out).code == 0
    other = out.with_suffix(".relax")
    assert cli("convert", source, "-o", other).code == 2
    assert cli("convert", source, "-o", other, "--weights", tmp_path / "r.safetensors").code == 0
    before = out.read_bytes(), own.read_bytes()

    def full(file: Callable[..., object], *args: object) -> None:
        raise OSError(28, "No space left on device")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("relax2xla.runtime.weights.write_safetensors", full)
        done = cli("convert", source, "-o", out)
    assert (done.code, "No space left" in done.err) == (2, True)
    assert (out.read_bytes(), own.read_bytes()) == before
    assert not list(tmp_path.glob(".*.tmp"))
