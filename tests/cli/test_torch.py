"""What the command line does with PyTorch models alone: taps."""

from __future__ import annotations

import io
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


class Splitting(torch.nn.Module):  # type: ignore[misc]
    """Numbers from sizes, a tuple, and bfloat16 between its operators."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.SiLU())

    def forward(self, x: Any) -> Any:
        y = self.inner(x).to(torch.bfloat16)
        left, right = torch.split(torch.add(y, x.shape[0]), 2, dim=1)
        return torch.maximum(left, right)


def _with_an_error(op: Any) -> Any:
    def convert(ctx: Any, self: Any, other: Any) -> Any:
        return R.add(op(self, other), const(0.5, "bfloat16"))

    return Converter(convert, frozenset({"self", "other"}))


def test_the_part_that_departs_alone(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(CONVERTERS, "maximum", _with_an_error(R.maximum))
    file, folder = tmp_path / "model.pt2", tmp_path / "piece"
    sizes = ({0: torch.export.Dim("n")},)
    made = torch.export.export(Splitting(), (torch.randn(3, 4),), dynamic_shapes=sizes)
    torch.export.save(made, file)
    done = cli("verify", file, "--trust", "--shape", "x=5x4", "--bisect", folder)
    assert done.code == 1, done.out + done.err
    assert "reproduce.py (maximum), which departs as well" in done.out
    assert {p.name for p in folder.iterdir()} == {"model.pt2", "inputs.npz", "reproduce.py"}
    with np.load(folder / "inputs.npz") as inputs:
        assert {n: a.shape for n, a in inputs.items()} == {"getitem": (5, 2), "getitem_1": (5, 2)}
    monkeypatch.setattr("sys.argv", ["reproduce.py"])
    with pytest.raises(SystemExit) as ended:
        exec((folder / "reproduce.py").read_text(), {"__file__": str(folder / "reproduce.py")})
    assert ended.value.code == 1


def test_pieces_of_torch_grow() -> None:
    from torch.export import export, load

    from relax2xla.cli.proof.torch_pieces import torch_pieces
    from relax2xla.importers.torch.verification import evaluated

    x = torch.randn(5, 4)
    made = evaluated(export(Splitting(), (x,)), (x,), {}, True, None)
    pieces = list(torch_pieces(made, "maximum"))
    assert pieces[0].nodes == ["maximum"]
    # The tuple of a split is none of the inputs, which are tensors.
    assert all(a.dtype != object for p in pieces for a in p.inputs.values())
    assert pieces[-1].nodes[0] == "linear in inner.0"
    assert set(pieces[-1].inputs) == {"x", "p_inner_0_weight", "p_inner_0_bias"}
    program = load(io.BytesIO(pieces[-1].data))
    given = [torch.from_numpy(pieces[-1].inputs[n]) for n in program.graph_signature.user_inputs]
    (want,) = (v.want for v in made.values if v.name == "maximum")
    assert torch.equal(program.module()(*given)[0], want)


def test_a_piece_that_torch_does_not_repeat(cli: Cli, tmp_path: Path) -> None:
    class Noisy(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return x + torch.rand_like(x)

    file = tmp_path / "noisy.pt2"
    torch.export.save(torch.export.export(Noisy(), (torch.randn(3, 4),)), file)
    done = cli("verify", file, "--trust", "--bisect", tmp_path / "piece")
    assert done.code == 2
    assert "it draws random numbers" in done.err


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
