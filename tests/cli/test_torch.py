"""What the command line does with PyTorch models alone: taps."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from relax2xla.ir import const
from tests.cli.conftest import Cli

torch = pytest.importorskip("torch")

from relax2xla import op as R  # noqa: E402
from relax2xla.importers.torch.engine.converters import CONVERTERS, Converter  # noqa: E402


def test_taps_agree(models: Any, cli: Cli) -> None:
    done = cli("verify", models("pt2"), "--trust", "--taps")
    assert done.code == 0, done.out + done.err
    assert "3 values compared; 0 depart" in done.out
    assert "agrees with torch" in done.out


class Counting(torch.nn.Module):  # type: ignore[misc]
    """Changes a buffer and an input, and returns numbers beside tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(8, 3)
        self.register_buffer("calls", torch.zeros(()))
        self.register_buffer("last", torch.ones(3, dtype=torch.bfloat16))

    def forward(self, x: Any, seen: Any) -> Any:
        y = self.linear(x)
        self.calls.add_(1)
        self.last.copy_(y.sum(0) * self.last)
        seen.add_(x.shape[0])
        return {"y": y, "rows": x.shape[0], "scale": 2.5, "nothing": None, "good": True}


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_state_and_numbers(tmp_path: Path, cli: Cli, dynamic: bool) -> None:
    file = tmp_path / "counting.pt2"
    args = (torch.randn(4, 8), torch.zeros(2))
    shapes = {"x": {0: torch.export.Dim("batch")}, "seen": {}} if dynamic else None
    torch.export.save(torch.export.export(Counting(), args, dynamic_shapes=shapes), file)
    sizes = ["--shape", "x=5x8"] if dynamic else []
    done = cli("verify", file, "--trust", "--taps", *sizes)
    assert done.code == 0, done.out + done.err
    assert "agrees with torch" in done.out
    done = cli("verify", file, "--trust", "--json", *sizes)
    rows = json.loads(done.out)["references"][0]["outputs"]
    assert [r["dtype"] for r in rows] == (
        ["float32", "int64", "float64", "bool", "float32", "bfloat16", "float32"]
    )
    assert cli("run", file, "--trust", "--output", tmp_path / "out.npz", *sizes).code == 0
    with np.load(tmp_path / "out.npz") as saved:
        assert set(saved) == {"y", "rows", "scale", "good", "calls", "last", "seen"}
        assert (saved["scale"], bool(saved["good"]), saved["calls"]) == (2.5, True, 1)


def test_state_is_what_the_user_gives(tmp_path: Path, cli: Cli) -> None:
    file = tmp_path / "counting.pt2"
    torch.export.save(torch.export.export(Counting(), (torch.randn(4, 8), torch.zeros(2))), file)
    np.save(tmp_path / "calls.npy", np.array(7, np.float32))
    given = ["--inputs", f"b_calls={tmp_path / 'calls.npy'}"]
    assert cli("verify", file, "--trust", *given).code == 0
    assert cli("run", file, "--trust", *given, "--output", tmp_path / "out.npz").code == 0
    with np.load(tmp_path / "out.npz") as saved:
        assert saved["calls"] == 8


def test_taps_name_the_first_value_that_departs(
    models: Any, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    def relu(ctx: Any, self: Any) -> Any:
        return R.add(R.nn.relu(self), const(0.5, "float32"))

    monkeypatch.setitem(CONVERTERS, "relu", Converter(relu, frozenset({"self"})))
    file = models("pt2")
    done = cli("verify", file, "--trust")  # it looks by itself
    assert done.code == 1
    assert re.search(r"^1 +relu +float32", done.out, re.MULTILINE)  # the module's path
    assert "3 values compared; 2 depart" in done.out
    assert "first departure: 'relu' (" in done.out
    assert "max abs 5.00e-01" in done.out
    done = cli("verify", file, "--trust", "--taps", "--json")
    first = json.loads(done.out)["references"][0]["taps"]["first"]
    assert first["output"]["name"] == "relu"
    assert first["where"]
    assert first["layer"] == "1"


def test_sizes_that_torch_named(models: Any, cli: Cli, tmp_path: Path) -> None:
    """A .pt2 file loses the names of Dim: it is said, and only where there are sizes."""
    file, batch = tmp_path / "dynamic.pt2", torch.export.Dim("batch")
    network = torch.nn.ReLU()
    made = torch.export.export(network, (torch.zeros(3, 4),), dynamic_shapes=({0: batch},))
    torch.export.save(made, file)
    said = re.search(r"sizes have torch's names, (s\d+):", cli("inspect", file, "--trust").err)
    assert said is not None
    assert "torch's names" not in cli("inspect", models("pt2"), "--trust").err
    assert "torch's names" not in cli("run", file, "--trust", "--shape", f"{said[1]}=2").err
