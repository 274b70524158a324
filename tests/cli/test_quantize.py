"""``relax2xla quantize``: smaller files, and how far results are off."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import relax2xla as rx
from relax2xla import op
from relax2xla.builder import BlockBuilder
from relax2xla.ir import TensorStructInfo, Var, const
from tests.cli.conftest import Cli


@pytest.fixture
def model(tmp_path: Path) -> Path:
    weight = np.random.default_rng(0).normal(size=(64, 100)).astype(np.float32)
    bb, x = BlockBuilder(), Var("x", TensorStructInfo((3, 64)))
    with bb.function("main", [x]):
        with bb.dataflow():
            out = bb.emit_output(op.matmul(x, const(weight)))
        bb.emit_func_output(out)
    file = tmp_path / "model.mlirbc"
    file.write_bytes(rx.to_stablehlo(bb.get(), "bytecode"))
    return file


@pytest.mark.parametrize(("bits", "share", "error"), [(8, 0.5, 1.0), (4, 0.35, 15.0)])
def test_files_and_errors(
    bits: int, share: float, error: float, model: Path, cli: Cli, tmp_path: Path
) -> None:
    out = tmp_path / "small.mlirbc"
    done = cli("quantize", model, "-o", out, "--bits", bits, "--verify")
    assert done.code == 0, done.err
    assert out.stat().st_size < share * model.stat().st_size
    row = next(line for line in done.out.splitlines() if "output_0" in line)
    percent = float(next(w for w in row.split() if w.endswith("%"))[:-1])
    assert 0 < percent < error
    assert "of 3" in row
    assert cli("verify", out).code == 0  # what was written runs as it says


def test_what_is_refused(model: Path, cli: Cli, tmp_path: Path) -> None:
    assert "give -o OUT" in cli("quantize", model).err
    for wrong in (("--bits", 5), ("--group", 3), ("--group", 0)):
        done = cli("quantize", model, *wrong, "--verify")
        assert done.code == 2
        assert "bits are 8 or 4 and groups of an even number" in done.err
    assert "is the file that is read" in cli("quantize", model, "-o", model).err
    small = tmp_path / "small.mlirbc"
    assert cli("quantize", model, "-o", small).code == 0
    assert (
        "has no weights to quantise: float constants of at least 4,096 elements"
        in cli("quantize", small, "--verify").err
    )
