"""Saved executables through faults: an export killed at any moment, and any bit that flips."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import relax2xla as rx
from relax2xla import op as R
from relax2xla.errors import CallError, FileFormatError
from relax2xla.vm.save import archive

T = rx.TensorStructInfo
ROOT = Path(__file__).resolve().parents[3]
# Of exports with XLA's part, which take long, and of those without.
KILLS = (10, 40)


def network(rng: np.random.Generator) -> tuple[rx.VMExecutable, np.ndarray, np.ndarray]:
    """tanh(x @ w.T) on an argument, and its result."""
    w = rng.standard_normal((64, 16)).astype(np.float32)
    x = rng.standard_normal((2, 16)).astype(np.float32)
    builder = rx.BlockBuilder()
    params = [rx.Var("x", T((2, 16), "float32")), rx.Var("w", T((64, 16), "float32"))]
    with builder.function("main", params):
        y = builder.emit(R.matmul(params[0], builder.emit(R.permute_dims(params[1]))))
        builder.emit_func_output(builder.emit(R.tanh(y)))
    return rx.build(builder.get(), params={"w": w}), x, np.tanh(x @ w.T)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="POSIX")
def test_exports_killed_at_random_moments(tmp_path: Path) -> None:
    """Each leaves one of the two whole files that were written in turn."""
    path = tmp_path / "m.r2x"
    pair = [network(np.random.default_rng(i)) for i in (0, 1)]
    weights: list[bytes] = []
    for executable, _, _ in pair:
        executable.export_library(path)
        weights.append(bytes(archive.Archive(path).tensors()))
    command = [sys.executable, "-W", "ignore", "-m", "tests.vm.save.killed_exports", str(path), "1"]
    env = {**os.environ, "RELAX2XLA_CACHE_DIR": str(tmp_path / "cache")}
    found: list[int] = []
    with subprocess.Popen(
        [*command, *map(str, KILLS)], env=env, stdin=-1, stdout=-1, cwd=ROOT
    ) as writer:
        assert writer.stdout is not None
        assert writer.stdin is not None
        for number in range(sum(KILLS)):
            assert writer.stdout.readline()
            held = archive.Archive(path)
            found.append(weights.index(bytes(held.tensors())))
            assert all(
                held.read(name) for name in held.manifest["files"] if name != archive.TENSORS
            )
            held.close()
            if number % 10 == 0:
                _, x, expected = pair[found[-1]]
                main = rx.VirtualMachine(rx.load_module(path))["main"]
                np.testing.assert_allclose(main(x), expected, rtol=1e-5, atol=1e-6)
            writer.stdin.write(b"\n")
            writer.stdin.flush()
    assert writer.returncode == 0
    assert {*found} == {0, 1}


def test_any_bit_that_flips_is_said_or_without_effect(
    tmp_path: Path, rng: np.random.Generator
) -> None:
    executable, x, expected = network(rng)
    path = tmp_path / "m.r2x"
    executable.export_library(path)
    good = path.read_bytes()
    draw = random.Random(0)
    refused: list[str] = []
    for _ in range(120):
        changed = bytearray(good)
        changed[draw.randrange(len(good))] ^= 1 << draw.randrange(8)
        path.unlink()
        path.write_bytes(changed)
        try:
            main = rx.VirtualMachine(rx.load_module(path))["main"]
            np.testing.assert_allclose(main(x), expected, rtol=1e-5, atol=1e-6)
        except FileFormatError as e:
            refused.append(str(e))
    assert len(refused) > 60
    assert all(str(path) in message for message in refused)


@pytest.mark.parametrize("weights", ["raw", "computed"])
def test_weights_after_loading(weights: str, tmp_path: Path, rng: np.random.Generator) -> None:
    """A weight that is used as it is and transposed: "computed" keeps what the first call needs."""
    w = rng.standard_normal((8, 4)).astype(np.float32)
    x = rng.standard_normal((2, 8)).astype(np.float32)
    weight = rx.Constant(w, span=rx.ir.Span(name="fc.weight"))
    builder = rx.BlockBuilder()
    var = rx.Var("x", T((2, 8), "float32"))
    with builder.function("main", [var]):
        y = builder.emit(R.matmul(var, weight))
        builder.emit_func_output(builder.emit(R.matmul(y, builder.emit(R.permute_dims(weight)))))
    rx.build(builder.get()).export_library(tmp_path / "m.r2x", weights=weights)
    for compiled in (True, False):
        vm = rx.VirtualMachine(rx.load_module(tmp_path / "m.r2x", compiled=compiled))
        np.testing.assert_allclose(vm["main"](x), x @ w @ w.T, rtol=1e-4, atol=1e-5)
        assert list(vm.params()) == ["fc.weight"]
        vm.set_params({"fc.weight": w + 1})
        np.testing.assert_allclose(vm["main"](x), x @ (w + 1) @ (w + 1).T, rtol=1e-4, atol=1e-4)
        with pytest.raises(CallError, match=r"fc\.weight is"):
            vm.set_params({"fc.weight": w.T})
        np.testing.assert_allclose(vm["main"](x), x @ (w + 1) @ (w + 1).T, rtol=1e-4, atol=1e-4)
