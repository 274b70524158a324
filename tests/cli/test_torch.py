"""What the command line does with PyTorch models alone: taps."""

from __future__ import annotations

import json
from typing import Any

import pytest

from relax2xla.ir import const
from tests.cli.conftest import Cli

torch = pytest.importorskip("torch")

from relax2xla import op as R  # noqa: E402
from relax2xla.importers.torch.registry import CONVERTERS, Converter  # noqa: E402


def test_taps_agree(models: Any, cli: Cli) -> None:
    done = cli("verify", models("pt2"), "--trust", "--taps")
    assert done.code == 0, done.out + done.err
    assert "3 values compared; 0 depart" in done.out
    assert "agrees with torch" in done.out


def test_taps_name_the_first_value_that_departs(
    models: Any, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    def relu(ctx: Any, self: Any) -> Any:
        return R.add(R.nn.relu(self), const(0.5, "float32"))

    monkeypatch.setitem(CONVERTERS, "relu", Converter(relu, frozenset({"self"})))
    file = models("pt2")
    done = cli("verify", file, "--trust", "--taps")
    assert done.code == 1
    assert "3 values compared; 2 depart" in done.out
    assert "first departure: 'relu' (" in done.out
    assert "max abs 5.00e-01" in done.out
    done = cli("verify", file, "--trust", "--taps", "--json")
    first = json.loads(done.out)["references"][0]["taps"]["first"]
    assert first["output"]["name"] == "relu"
    assert first["where"]
